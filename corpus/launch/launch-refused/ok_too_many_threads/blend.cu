#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void blend(const float *a, const float *b, float *out, int width) {
    int i = threadIdx.y * width + threadIdx.x;
    out[i] = 0.5f * (a[i] + b[i]);
}

int main() {
    int width = 32, height = 32;
    float *a, *b, *out;
    CHECK(cudaMalloc(&a, width * height * 4));
    CHECK(cudaMalloc(&b, width * height * 4));
    CHECK(cudaMalloc(&out, width * height * 4));
    CHECK(cudaMemset(a, 0, width * height * 4));
    CHECK(cudaMemset(b, 0, width * height * 4));
    blend<<<1, dim3(width, height)>>>(a, b, out, width);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("blended\n");
    return 0;
}
