#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void share(float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x; }

int main() {
    float *out;
    CHECK(cudaMalloc(&out, 64 * 128 * 4));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 32;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = 64;
    config.blockDim = 128;
    config.attrs = &cluster;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, share, out));
    CHECK(cudaDeviceSynchronize());
    printf("shared\n");
    return 0;
}
