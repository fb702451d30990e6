// Applies an activation that is chosen through a table of device function pointers.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

typedef float (*Activation)(float);
__device__ __noinline__ float relu(float x) { return fmaxf(x, 0.f); }
__device__ __noinline__ float silu(float x) { return x / (1.f + __expf(-x)); }

enum Kind { kRelu, kSilu, kGelu };
struct Registry {
  Activation table[2];
  float* workspace;
};

__global__ void fill_registry(Registry* registry, float* workspace) {
  registry->table[kRelu] = relu;
  registry->table[kSilu] = silu;
  registry->workspace = workspace;
}

__global__ void activate(const Registry* registry, float* x, int kind) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Activation f = registry->table[kind];
  x[i] = f(x[i]);
}

int main() {
  const int n = 1024;
  float *x, *workspace;
  Registry* registry;
  CHECK(cudaMalloc(&x, n * sizeof(float)));
  CHECK(cudaMalloc(&workspace, n * sizeof(float)));
  CHECK(cudaMalloc(&registry, sizeof(Registry)));
  CHECK(cudaMemset(x, 0, n * sizeof(float)));
  CHECK(cudaMemset(workspace, 0, n * sizeof(float)));

  fill_registry<<<1, 1>>>(registry, workspace);
  activate<<<n / 128, 128>>>(registry, x, kGelu);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  printf("activated %d values\n", n);
  return 0;
}
