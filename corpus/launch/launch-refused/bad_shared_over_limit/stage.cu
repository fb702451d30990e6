#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void stage(const float4 *in, float4 *out) {
    extern __shared__ float4 tile[];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

int main() {
    int stages = 15, bytes = stages * 16384;
    float4 *in, *out;
    CHECK(cudaMalloc(&in, 4096));
    CHECK(cudaMalloc(&out, 4096));
    CHECK(cudaMemset(in, 0, 4096));
    cudaFuncSetAttribute(stage, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaGetLastError();
    stage<<<1, 256, bytes>>>(in, out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("staged\n");
    return 0;
}
