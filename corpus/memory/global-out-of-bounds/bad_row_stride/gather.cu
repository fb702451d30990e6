// Gathers rows of an embedding table that lives in pitched memory.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void gather_rows(const float* table, size_t pitch, const int* ids, float* out, int dim) {
  const float* row = table + ids[blockIdx.x] * pitch;
  for (int c = threadIdx.x; c < dim; c += blockDim.x)
    out[blockIdx.x * dim + c] = row[c];
}

int main() {
  const int rows = 1 << 18, dim = 512, picks = 256;
  std::vector<int> picked(picks);
  for (int i = 0; i < picks; ++i) picked[i] = i * (rows / picks);

  float *table, *out;
  int* ids;
  size_t pitch;
  CHECK(cudaMallocPitch(&table, &pitch, dim * sizeof(float), rows));
  CHECK(cudaMalloc(&out, sizeof(float) * picks * dim));
  CHECK(cudaMalloc(&ids, sizeof(int) * picks));
  CHECK(cudaMemset(table, 0, pitch * rows));
  CHECK(cudaMemcpy(ids, picked.data(), sizeof(int) * picks, cudaMemcpyHostToDevice));

  gather_rows<<<picks, 128>>>(table, pitch, ids, out, dim);
  CHECK(cudaGetLastError());

  std::vector<float> host(size_t(picks) * dim);
  CHECK(cudaMemcpy(host.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
  printf("gathered %d rows, first value %g\n", picks, host[0]);
  return 0;
}
