#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void tile_product(const float *a, const float *b, float *c, int n) {
#if __CUDA_ARCH__ >= 900
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] * b[i];
#else
    if (blockIdx.x == 0 && threadIdx.x == 0) printf("tile_product needs sm_100\n");
    __trap();
#endif
}

int main() {
    int n = 1024;
    float *a, *b, *c;
    CHECK(cudaMalloc(&a, n * 4));
    CHECK(cudaMalloc(&b, n * 4));
    CHECK(cudaMalloc(&c, n * 4));
    tile_product<<<n / 256, 256>>>(a, b, c, n);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
