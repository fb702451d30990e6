#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void busy(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
}

__global__ void add_batch(const int *batch, int *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, batch[i]);
}

int main() {
    const int n = 1 << 14, batches = 4;
    int *staging, *device[batches], *sum, total = 0;
    CHECK(cudaMallocHost(&staging, n * 4));
    for (int b = 0; b < batches; b++) CHECK(cudaMalloc(&device[b], n * 4));
    CHECK(cudaMalloc(&sum, 4));
    CHECK(cudaMemset(sum, 0, 4));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    for (int b = 0; b < batches; b++) {
        for (int i = 0; i < n; i++) staging[i] = b + 1;
        busy<<<1, 1, 0, stream>>>(2000000);
        CHECK(cudaMemcpyAsync(device[b], staging, n * 4, cudaMemcpyHostToDevice, stream));
        add_batch<<<n / 256, 256, 0, stream>>>(device[b], sum, n);
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&total, sum, 4, cudaMemcpyDeviceToHost));
    printf("sum %d, expected %d\n", total, 10 * n);
    return total == 10 * n ? 0 : 1;
}
