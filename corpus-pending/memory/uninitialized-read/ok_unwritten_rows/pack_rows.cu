#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void pack_rows(const float *rows, const int *lengths, float *packed, int width) {
    if (threadIdx.x < lengths[blockIdx.x]) packed[blockIdx.x * width + threadIdx.x] = rows[blockIdx.x * width + threadIdx.x];
}

__global__ void row_means(const float *packed, float *means, int width) {
    float sum = 0;
    for (int c = 0; c < width; c++) sum += packed[threadIdx.x * width + c];
    means[threadIdx.x] = sum / width;
}

int main() {
    int width = 64, rows_count = 32, host[32], *lengths;
    for (int r = 0; r < 32; r++) host[r] = 64 - r % 3;
    float *rows, *packed, *means;
    CHECK(cudaMalloc(&rows, width * rows_count * 4));
    CHECK(cudaMalloc(&packed, width * rows_count * 4));
    CHECK(cudaMalloc(&means, rows_count * 4));
    CHECK(cudaMalloc(&lengths, sizeof host));
    CHECK(cudaMemcpy(lengths, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(rows, 0, width * rows_count * 4));
    CHECK(cudaMemset(packed, 0, width * rows_count * 4));
    pack_rows<<<rows_count, width>>>(rows, lengths, packed, width);
    row_means<<<1, rows_count>>>(packed, means, width);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
