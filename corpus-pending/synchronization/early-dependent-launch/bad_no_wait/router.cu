#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void score(const int *tokens, int *scores, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    long long start = clock64();
    while (clock64() - start < 3000000) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) scores[i] = tokens[i] % 8;
}

__global__ void route(const int *scores, int *load, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&load[scores[i]], 1);
}

int main() {
    int n = 4096, load_of[8] = {}, balanced = 0;
    std::vector<int> host(n);
    for (int i = 0; i < n; i++) host[i] = i;
    int *tokens, *scores, *load;
    CHECK(cudaMalloc(&tokens, n * 4));
    CHECK(cudaMalloc(&scores, n * 4));
    CHECK(cudaMalloc(&load, 8 * 4));
    CHECK(cudaMemcpy(tokens, host.data(), n * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(scores, 0, n * 4));
    CHECK(cudaMemset(load, 0, 8 * 4));
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
    score<<<n / 256, 256, 0, stream>>>(tokens, scores, n);
    CHECK(cudaLaunchKernelEx(&config, route, (const int *)scores, load, n));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(load_of, load, 8 * 4, cudaMemcpyDeviceToHost));
    for (int count : load_of) balanced += count == n / 8;
    printf("%d of 8 experts balanced\n", balanced);
    return balanced == 8 ? 0 : 1;
}
