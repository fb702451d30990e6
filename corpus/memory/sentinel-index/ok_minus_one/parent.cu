#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void depth_of(const unsigned *parent, unsigned *depth, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned node = i, steps = 0;
    while (node != 0 && node != 0xffffffffu) {
        node = parent[node];
        steps++;
    }
    depth[i] = steps;
}

int main() {
    int n = 4096;
    unsigned *host = new unsigned[n], *parent, *depth;
    host[0] = 0xffffffffu;
    for (int i = 1; i < n; i++) host[i] = (i - 1) / 2;
    host[4095] = 0xffffffffu;
    CHECK(cudaMalloc(&parent, n * 4));
    CHECK(cudaMalloc(&depth, n * 4));
    CHECK(cudaMemcpy(parent, host, n * 4, cudaMemcpyHostToDevice));
    depth_of<<<n / 256, 256>>>(parent, depth, n);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
