#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void project(const float *x, float *hidden, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    long long start = clock64();
    while (clock64() - start < 3000000) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) hidden[i] = 2.0f * x[i];
}

__global__ void normalise(const float *hidden, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? hidden[i] : 0.0f;
    cudaGridDependencySynchronize();
    if (i < n) out[i] = value / 2.0f;
}

int main() {
    int n = 4096, right = 0;
    std::vector<float> host(n, 3.0f);
    float *x, *hidden, *out;
    CHECK(cudaMalloc(&x, n * 4));
    CHECK(cudaMalloc(&hidden, n * 4));
    CHECK(cudaMalloc(&out, n * 4));
    CHECK(cudaMemcpy(x, host.data(), n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(hidden, 0, n * 4));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = n / 256;
    config.blockDim = 256;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    project<<<n / 256, 256, 0, stream>>>(x, hidden, n);
    CHECK(cudaLaunchKernelEx(&config, normalise, (const float *)hidden, out, n));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host.data(), out, n * 4, cudaMemcpyDeviceToHost));
    for (float v : host) right += v == 3.0f;
    printf("%d of %d values right\n", right, n);
    return right == n ? 0 : 1;
}
