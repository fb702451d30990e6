#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void __launch_bounds__(1024) accumulate(const float *in, float *out, int rounds) {
    float sum[96];
#pragma unroll
    for (int k = 0; k < 96; k++) sum[k] = in[(threadIdx.x + k * 1024) & 0xffff];
    for (int r = 0; r < rounds; r++)
#pragma unroll
        for (int k = 0; k < 96; k++) sum[k] = sum[k] * sum[(k + 5) % 96] + sum[(k + 41) % 96];
    float total = 0;
#pragma unroll
    for (int k = 0; k < 96; k++) total += sum[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

int main() {
    float *in, *out;
    CHECK(cudaMalloc(&in, 65536 * 4));
    CHECK(cudaMalloc(&out, 4096 * 4));
    CHECK(cudaMemset(in, 0, 65536 * 4));
    accumulate<<<4, 1024>>>(in, out, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("accumulated\n");
    return 0;
}
