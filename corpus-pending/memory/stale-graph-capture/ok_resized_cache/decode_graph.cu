#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void append_token(float *cache, int slot, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width) cache[(size_t)slot * width + i] = slot;
}

int main() {
    int width = 4096;
    size_t small = (size_t)512 * width * sizeof(float), large = 8 * small;
    float *cache, last = 0;
    CHECK(cudaMalloc(&cache, small));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    cudaGraphExec_t step;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    append_token<<<width / 256, 256, 0, stream>>>(cache, 511, width);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&step, graph, 0));
    CHECK(cudaGraphLaunch(step, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(cache));
    CHECK(cudaMalloc(&cache, large));
    CHECK(cudaGraphExecDestroy(step));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    append_token<<<width / 256, 256, 0, stream>>>(cache, 511, width);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&step, graph, 0));
    CHECK(cudaGraphLaunch(step, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(&last, cache + (size_t)511 * width, 4, cudaMemcpyDeviceToHost));
    printf("last slot holds %.0f\n", last);
    return last == 511 ? 0 : 1;
}
