#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__device__ int find(const int *keys, int count, int key) {
    for (int i = 0; i < count; i++)
        if (keys[i] == key) return i;
    return count;
}

__global__ void fetch(const int *keys, const float4 *rows, int count, const int *wanted, float4 *out) {
    int slot = find(keys, count, wanted[threadIdx.x]);
    out[threadIdx.x] = rows[(size_t)slot * 32768];
}

int main() {
    int count = 64, host[64], ask[32], *keys, *wanted;
    for (int i = 0; i < 64; i++) host[i] = 3 * i;
    for (int i = 0; i < 32; i++) ask[i] = 6 * i;
    ask[17] = 100;
    float4 *rows, *out;
    CHECK(cudaMalloc(&keys, sizeof host));
    CHECK(cudaMalloc(&wanted, sizeof ask));
    CHECK(cudaMalloc(&rows, (size_t)count * 32768 * 16));
    CHECK(cudaMalloc(&out, 32 * 16));
    CHECK(cudaMemcpy(keys, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(wanted, ask, sizeof ask, cudaMemcpyHostToDevice));
    fetch<<<1, 32>>>(keys, rows, count, wanted, out);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
