#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void total_of(const int *values, unsigned long long *total, int n, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(total, (unsigned long long)values[i]);
}

__global__ void fill(int *values, int value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value;
}

int main() {
    const int n = 1 << 20;
    int *values, *scratch;
    unsigned long long *total, answer = 0;
    CHECK(cudaMalloc(&total, 8));
    CHECK(cudaMemset(total, 0, 8));
    cudaStream_t main_stream, reader;
    CHECK(cudaStreamCreateWithFlags(&main_stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    CHECK(cudaMallocAsync(&values, n * 4, main_stream));
    fill<<<n / 256, 256, 0, main_stream>>>(values, 1, n);
    CHECK(cudaStreamSynchronize(main_stream));
    total_of<<<n / 256, 256, 0, reader>>>(values, total, n, 400000);
    CHECK(cudaStreamSynchronize(reader));
    CHECK(cudaFreeAsync(values, main_stream));
    CHECK(cudaMallocAsync(&scratch, n * 4, main_stream));
    fill<<<n / 256, 256, 0, main_stream>>>(scratch, 9, n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&answer, total, 8, cudaMemcpyDeviceToHost));
    printf("total %llu, expected %d\n", answer, n);
    return answer == n ? 0 : 1;
}
