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

__global__ void decay(float *values) { values[threadIdx.x] *= 0.999f; }

int main() {
    float *values;
    CHECK(cudaMalloc(&values, 256 * 4));
    CHECK(cudaMemset(values, 0, 256 * 4));
    report([&] { for (int s = 0; s < 2000; s++) decay<<<1, 256>>>(values); });
    return 0;
}
