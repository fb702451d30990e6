// Adds the rows of a batch into running sums.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void accumulate_rows(const float* batch, float* sums, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = sums[col];
  for (int r = 0; r < rows; ++r)
    sum += batch[r * cols + col];
  sums[col] = sum;
}

int main() {
  const int rows = 8, cols = 1024;
  std::vector<float> host(rows * cols, 1.f);
  float *batch, *sums, first;
  CHECK(cudaMalloc(&batch, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&sums, cols * sizeof(float)));
  CHECK(cudaMemcpy(batch, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));

  accumulate_rows<<<cols / 256, 256>>>(batch, sums, rows, cols);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&first, sums, sizeof first, cudaMemcpyDeviceToHost));
  printf("first sum %g\n", first);
  return 0;
}
