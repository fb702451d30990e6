#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void row_sums(const float *rows, float *sums, int width) {
    extern __shared__ float partial[];
    partial[threadIdx.x] = rows[(size_t)blockIdx.x * width + threadIdx.x];
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

int main() {
    int width = 1024, rows_count = 8;
    float *rows, *sums;
    CHECK(cudaMalloc(&rows, width * rows_count * 4));
    CHECK(cudaMalloc(&sums, rows_count * 4));
    CHECK(cudaMemset(rows, 0, width * rows_count * 4));
    row_sums<<<rows_count, width, width * sizeof(float)>>>(rows, sums, width);
    CHECK(cudaDeviceSynchronize());
    printf("summed\n");
    return 0;
}
