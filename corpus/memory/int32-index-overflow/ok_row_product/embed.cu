#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void copy_rows(const unsigned char *table, unsigned char *out, const int *rows, int width) {
    int row = rows[blockIdx.x];
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        out[blockIdx.x * width + c] = table[(size_t)row * width + c];
}

int main() {
    int width = 16384, picked[4] = {0, 100000, 140000, 200000}, *rows;
    unsigned char *table, *out;
    CHECK(cudaMalloc(&table, (size_t)200001 * width));
    CHECK(cudaMalloc(&out, 4 * width));
    CHECK(cudaMalloc(&rows, sizeof picked));
    CHECK(cudaMemcpy(rows, picked, sizeof picked, cudaMemcpyHostToDevice));
    copy_rows<<<4, 256>>>(table, out, rows, width);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
