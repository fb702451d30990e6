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

__global__ void lower_rows(const float *in, float *out, int n) {
    float sum = 0;
    for (int c = threadIdx.x; c < (blockIdx.x < 132 ? blockIdx.x : 395 - blockIdx.x) * 256; c += blockDim.x)
        for (int k = 0; k < 8; k++) sum = sum * 0.999f + in[(c + k * 977) & 0xfffff];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
    int n = 264;
    float *in, *out;
    CHECK(cudaMalloc(&in, (size_t)(1 << 20) * 4));
    CHECK(cudaMalloc(&out, (size_t)(1 << 20) * 4));
    CHECK(cudaMemset(in, 0, (size_t)(1 << 20) * 4));
    report([&] { lower_rows<<<n, 1024>>>(in, out, n); });
    return 0;
}
