#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void clip_gradient(const float *raw, float *gradient, int width) {
    size_t i = (size_t)blockIdx.z * width + blockIdx.x * blockDim.x + threadIdx.x;
    gradient[i] = fminf(raw[i], 1.0f);
}

int main() {
    int width = 128, heads = 65536;
    size_t bytes = (size_t)width * heads * 4;
    float *raw, *gradient, last = 0;
    CHECK(cudaMalloc(&raw, bytes));
    CHECK(cudaMalloc(&gradient, bytes));
    CHECK(cudaMemset(raw, 0x40, bytes));
    CHECK(cudaMemset(gradient, 0, bytes));
    clip_gradient<<<dim3(1, 1, heads), width>>>(raw, gradient, width);
    cudaDeviceSynchronize();
    CHECK(cudaMemcpy(&last, gradient + (size_t)width * heads - 1, 4, cudaMemcpyDeviceToHost));
    printf("last gradient %.1f\n", last);
    return last == 1.0f ? 0 : 1;
}
