#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void smooth(const float *raw, float *smoothed, int n, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) smoothed[i] = 0.5f * raw[i];
}

__global__ void threshold(const float *smoothed, int *hits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && smoothed[i] > 0.25f) atomicAdd(hits, 1);
}

int main() {
    int n = 1 << 16, found = 0, *hits;
    std::vector<float> ones(n, 1.0f);
    float *raw, *smoothed;
    CHECK(cudaMalloc(&raw, n * sizeof(float)));
    CHECK(cudaMalloc(&smoothed, n * sizeof(float)));
    CHECK(cudaMalloc(&hits, sizeof(int)));
    CHECK(cudaMemcpy(raw, ones.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(smoothed, 0, n * sizeof(float)));
    CHECK(cudaMemset(hits, 0, sizeof(int)));
    cudaStream_t compute, detect;
    CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&detect, cudaStreamNonBlocking));
    cudaEvent_t smooth_done;
    CHECK(cudaEventCreateWithFlags(&smooth_done, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    smooth<<<n / 256, 256, 0, compute>>>(raw, smoothed, n, 4000000);
    CHECK(cudaEventRecord(smooth_done, compute));
    CHECK(cudaStreamWaitEvent(detect, smooth_done, 0));
    threshold<<<n / 256, 256, 0, detect>>>(smoothed, hits, n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&found, hits, sizeof(int), cudaMemcpyDeviceToHost));
    printf("%d of %d samples above the threshold\n", found, n);
    return found == n ? 0 : 1;
}
