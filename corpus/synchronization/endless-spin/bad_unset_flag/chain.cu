// Prefix sum in which every block waits for the total of the block before it.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__device__ float block_total(float v) {
  __shared__ float parts[8];
  for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  float total = 0.f;
  for (int w = 0; w < 8; ++w) total += parts[w];
  return total;
}

__global__ void chained_totals(const float* in, float* totals, volatile int* ready) {
  float total = block_total(in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (blockIdx.x > 0) {
    while (ready[blockIdx.x - 1] == 0) {
    }
    total += reinterpret_cast<volatile float*>(totals)[blockIdx.x - 1];
  }
  if (threadIdx.x == blockDim.x) {
    totals[blockIdx.x] = total;
    __threadfence();
    ready[blockIdx.x] = 1;
  }
}

int main() {
  const int blocks = 8, threads = 256;
  float *in, *totals;
  int* ready;
  CHECK(cudaMalloc(&in, blocks * threads * sizeof(float)));
  CHECK(cudaMalloc(&totals, blocks * sizeof(float)));
  CHECK(cudaMalloc(&ready, blocks * sizeof(int)));
  CHECK(cudaMemset(in, 0, blocks * threads * sizeof(float)));
  CHECK(cudaMemset(ready, 0, blocks * sizeof(int)));
  chained_totals<<<blocks, threads>>>(in, totals, ready);
  CHECK(cudaGetLastError());
  printf("launched\n");
  fflush(stdout);
  CHECK(cudaDeviceSynchronize());
  printf("done\n");
  return 0;
}
