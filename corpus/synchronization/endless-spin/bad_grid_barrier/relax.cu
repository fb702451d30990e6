// Jacobi relaxation of a rod; all steps run in one cooperative launch.
#include <cooperative_groups.h>
#include <cstdio>
#include <utility>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

namespace cg = cooperative_groups;

__global__ void relax_rod(float* now, float* next, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int s = 0; s < steps; ++s) {
    next[i] = 0.5f * (now[i > 0 ? i - 1 : 0] + now[i < n - 1 ? i + 1 : n - 1]);
    grid.sync();
    float* t = now;
    now = next;
    next = t;
  }
}

int main() {
  const int threads = 256, blocks = 64;
  int n = 60 * threads, steps = 10;
  float *now, *next;
  CHECK(cudaMalloc(&now, n * sizeof(float)));
  CHECK(cudaMalloc(&next, n * sizeof(float)));
  CHECK(cudaMemset(now, 0, n * sizeof(float)));
  void* args[] = {&now, &next, &n, &steps};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(relax_rod), dim3(blocks), dim3(threads), args, 0, nullptr));
  printf("launched\n");
  fflush(stdout);
  CHECK(cudaDeviceSynchronize());
  printf("done\n");
  return 0;
}
