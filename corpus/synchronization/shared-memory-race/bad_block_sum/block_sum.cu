// Sums each block's slice: first inside warps, then across warps through shared memory.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__device__ float warp_sum(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
  return v;
}

__global__ void block_sum(const float* in, float* sums) {
  __shared__ float partial[8];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float v = warp_sum(in[blockIdx.x * blockDim.x + threadIdx.x]);
  if (lane == 0) partial[warp] = v;
  if (warp == 0) {
    v = lane < 8 ? partial[lane] : 0.f;
    v = warp_sum(v);
    if (lane == 0) sums[blockIdx.x] = v;
  }
}

int main() {
  const int blocks = 16, threads = 256;
  std::vector<float> host(blocks * threads, 1.f);
  float *in, *sums, last;
  CHECK(cudaMalloc(&in, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&sums, blocks * sizeof(float)));
  CHECK(cudaMemcpy(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  block_sum<<<blocks, threads>>>(in, sums);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&last, sums + blocks - 1, sizeof last, cudaMemcpyDeviceToHost));
  printf("last sum %g\n", last);
  return 0;
}
