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

__global__ void window_max(const float *in, float *out, int rounds) {
    extern __shared__ float window[];
    int t = threadIdx.x;
    window[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    float best = window[t], position = best;
    for (int r = 0; r < rounds; r++) position = sqrtf(fabsf(position * 1.5f + window[(t + r) & 127])), best = fmaxf(best, position);
    out[blockIdx.x * blockDim.x + t] = best;
}

int main() {
    int bytes = 512;
    float *in, *out;
    CHECK(cudaMalloc(&in, (size_t)(1 << 20) * 4));
    CHECK(cudaMalloc(&out, (size_t)(1 << 20) * 4));
    CHECK(cudaMemset(in, 0, (size_t)(1 << 20) * 4));
    CHECK(cudaFuncSetAttribute(window_max, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    report([&] { window_max<<<8192, 128, bytes>>>(in, out, 400); });
    return 0;
}
