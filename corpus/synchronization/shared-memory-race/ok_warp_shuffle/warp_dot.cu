// Dot products of one row per warp, reduced with full-mask shuffles and no barrier.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void warp_dot(const float* a, const float* b, float* dots, int cols) {
  int lane = threadIdx.x % 32;
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  __shared__ float results[8];
  float sum = 0.f;
  for (int c = lane; c < cols; c += 32) sum += a[row * cols + c] * b[row * cols + c];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) results[threadIdx.x / 32] = sum;
  __syncwarp();
  if (lane == 0) dots[row] = results[threadIdx.x / 32];
}

int main() {
  const int rows = 64, cols = 200;
  std::vector<float> host(rows * cols, 1.f);
  float *a, *b, *dots, last;
  CHECK(cudaMalloc(&a, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&b, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&dots, rows * sizeof(float)));
  CHECK(cudaMemcpy(a, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  warp_dot<<<rows / 8, 256>>>(a, b, dots, cols);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&last, dots + rows - 1, sizeof last, cudaMemcpyDeviceToHost));
  printf("last dot product %g\n", last);
  return 0;
}
