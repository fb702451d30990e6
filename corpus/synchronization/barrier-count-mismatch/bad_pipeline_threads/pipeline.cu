// A producer warp hands tiles to a consumer warp through two named barriers.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

constexpr int kProducerWarps = 1, kConsumerWarps = 1;
constexpr int kPipeThreads = 32 * (kProducerWarps + 2);

__global__ void pipelined_sum(const float* in, float* out, int tiles) {
  __shared__ float tile[32];
  int lane = threadIdx.x % 32;
  if (threadIdx.x < 32 * kProducerWarps) {
    for (int t = 0; t < tiles; ++t) {
      asm volatile("bar.sync 1, %0;" ::"n"(kPipeThreads) : "memory");  // wait until the tile is empty
      tile[lane] = in[(blockIdx.x * tiles + t) * 32 + lane];
      __threadfence_block();
      asm volatile("bar.arrive 2, %0;" ::"n"(kPipeThreads) : "memory");
    }
  } else {
    float sum = 0.f;
    asm volatile("bar.arrive 1, %0;" ::"n"(kPipeThreads) : "memory");
    for (int t = 0; t < tiles; ++t) {
      asm volatile("bar.sync 2, %0;" ::"n"(kPipeThreads) : "memory");  // wait until the tile is full
      sum += tile[lane];
      if (t + 1 < tiles) asm volatile("bar.arrive 1, %0;" ::"n"(kPipeThreads) : "memory");
    }
    out[blockIdx.x * 32 + lane] = sum;
  }
}

int main() {
  const int blocks = 4, tiles = 16;
  float *in, *out;
  CHECK(cudaMalloc(&in, sizeof(float) * blocks * tiles * 32));
  CHECK(cudaMalloc(&out, sizeof(float) * blocks * 32));
  CHECK(cudaMemset(in, 0, sizeof(float) * blocks * tiles * 32));
  pipelined_sum<<<blocks, 32 * (kProducerWarps + kConsumerWarps)>>>(in, out, tiles);
  CHECK(cudaGetLastError());
  printf("launched\n");
  fflush(stdout);
  CHECK(cudaDeviceSynchronize());
  printf("done\n");
  return 0;
}
