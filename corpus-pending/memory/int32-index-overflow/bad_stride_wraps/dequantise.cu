#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void dequantise(const unsigned char *packed, unsigned char *plain, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) plain[i] = packed[i] ^ 0x80;
}

int main() {
    int n = 2147483647 - 100;
    unsigned char *packed, *plain;
    CHECK(cudaMalloc(&packed, n));
    CHECK(cudaMalloc(&plain, n));
    CHECK(cudaMemset(packed, 1, n));
    dequantise<<<1056, 1024>>>(packed, plain, n);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
