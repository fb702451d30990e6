// A score board in device memory that blocks update under a spin lock.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

struct Board { int mutex; int games; float best; int winner; };

__device__ void acquire(int* mutex) {
  while (atomicCAS(mutex, 0, 1) != 0) __nanosleep(100);
  __threadfence();
}

__device__ void release(int* mutex) {
  __threadfence();
  atomicExch(mutex, 0);
}

__device__ void set_winner(Board* board, float score, int winner) {
  acquire(&board->mutex);
  board->best = score;
  board->winner = winner;
  release(&board->mutex);
}

__global__ void report_scores(Board* board, const float* scores) {
  if (threadIdx.x != 0) return;
  float score = scores[blockIdx.x];
  acquire(&board->mutex);
  board->games += 1;
  if (score > board->best) set_winner(board, score, blockIdx.x);
  release(&board->mutex);
}

int main() {
  float host[16], *scores;
  for (int i = 0; i < 16; ++i) host[i] = 1.f + i;
  Board* board;
  CHECK(cudaMalloc(&board, sizeof(Board)));
  CHECK(cudaMalloc(&scores, sizeof host));
  CHECK(cudaMemset(board, 0, sizeof(Board)));
  CHECK(cudaMemcpy(scores, host, sizeof host, cudaMemcpyHostToDevice));
  report_scores<<<16, 64>>>(board, scores);
  CHECK(cudaGetLastError());
  printf("launched\n");
  fflush(stdout);
  CHECK(cudaDeviceSynchronize());
  printf("done\n");
  return 0;
}
