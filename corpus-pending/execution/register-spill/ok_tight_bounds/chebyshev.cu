#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

template <typename Launch>
void report(Launch launch) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < 6; i++) {
        CHECK(cudaEventRecord(begin));
        launch();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(ms * 1000);
    }
    std::sort(times.begin(), times.end());
    printf("%.1f us\n", times[times.size() / 2]);
}

__global__ void __launch_bounds__(256, 2) chebyshev(const float *in, float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float term[80];
#pragma unroll
    for (int k = 0; k < 80; k++) term[k] = in[(i + k * 4096) & 0xfffff];
    for (int r = 0; r < rounds; r++)
#pragma unroll
        for (int k = 0; k < 80; k++) term[k] = term[k] * term[(k + 7) % 80] - term[(k + 31) % 80];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 80; k++) sum += term[k];
    out[i] = sum;
}

int main() {
    float *in, *out;
    CHECK(cudaMalloc(&in, (size_t)(1 << 20) * 4));
    CHECK(cudaMalloc(&out, (size_t)(1 << 20) * 4));
    CHECK(cudaMemset(in, 0, (size_t)(1 << 20) * 4));
    report([&] { chebyshev<<<4096, 256>>>(in, out, 10); });
    return 0;
}
