#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void fill_bins(const unsigned *keys, unsigned *bins, int n, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[keys[i] & 63], 1u);
}

__global__ void prefix(const unsigned *bins, unsigned *starts) {
    unsigned sum = 0;
    for (int b = 0; b < 64; b++) {
        starts[b] = sum;
        sum += bins[b];
    }
    starts[64] = sum;
}

int main() {
    int n = 1 << 15;
    std::vector<unsigned> host(n);
    for (int i = 0; i < n; i++) host[i] = i * 7;
    unsigned *keys, *bins, *starts, total = 0;
    CHECK(cudaMalloc(&keys, n * 4));
    CHECK(cudaMalloc(&bins, 64 * 4));
    CHECK(cudaMalloc(&starts, 65 * 4));
    CHECK(cudaMemcpy(keys, host.data(), n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(bins, 0, 64 * 4));
    cudaStream_t scan;
    CHECK(cudaStreamCreateWithFlags(&scan, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    fill_bins<<<n / 256, 256>>>(keys, bins, n, 4000000);
    prefix<<<1, 1, 0, scan>>>(bins, starts);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&total, starts + 64, 4, cudaMemcpyDeviceToHost));
    printf("%u of %d keys counted\n", total, n);
    return total == (unsigned)n ? 0 : 1;
}
