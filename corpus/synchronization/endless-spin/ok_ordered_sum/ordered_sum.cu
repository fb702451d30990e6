// Adds block sums in block order, so that the result is the same in every run.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void ordered_sum(const float* in, float* total, int* turn) {
  float v = in[blockIdx.x * 32 + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
  if (threadIdx.x != 0) return;
  while (atomicAdd(turn, 0) != blockIdx.x) __nanosleep(50);
  __threadfence();
  *total += v;
  __threadfence();
  atomicAdd(turn, 1);
}

int main() {
  const int blocks = 64;
  float *in, *total, host;
  int* turn;
  CHECK(cudaMalloc(&in, blocks * 32 * sizeof(float)));
  CHECK(cudaMalloc(&total, sizeof(float)));
  CHECK(cudaMalloc(&turn, sizeof(int)));
  CHECK(cudaMemset(in, 0, blocks * 32 * sizeof(float)));
  CHECK(cudaMemset(total, 0, sizeof(float)));
  CHECK(cudaMemset(turn, 0, sizeof(int)));
  ordered_sum<<<blocks, 32>>>(in, total, turn);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&host, total, sizeof host, cudaMemcpyDeviceToHost));
  printf("total %g\n", host);
  return 0;
}
