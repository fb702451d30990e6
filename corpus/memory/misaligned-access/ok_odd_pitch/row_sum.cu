// Sums the features of each sample; every row ends with a label that is left out.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void row_sum(const float* samples, float* sums, int pitch) {
  const float4* row = reinterpret_cast<const float4*>(samples + blockIdx.x * pitch);
  float4 v = row[threadIdx.x];
  float sum = v.x + v.y + v.z + v.w;
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

int main() {
  const int rows = 4, features = 128, pitch = features + 4;
  std::vector<float> host(rows * pitch, 1.f), result(rows);

  float *samples, *sums;
  CHECK(cudaMalloc(&samples, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&sums, rows * sizeof(float)));
  CHECK(cudaMemcpy(samples, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));

  row_sum<<<rows, features / 4>>>(samples, sums, pitch);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(result.data(), sums, rows * sizeof(float), cudaMemcpyDeviceToHost));
  printf("sum of row 1: %g\n", result[1]);
  return 0;
}
