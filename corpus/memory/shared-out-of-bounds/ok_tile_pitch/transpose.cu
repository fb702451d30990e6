// Transposes a square matrix through a padded tile in shared memory.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

constexpr int kTile = 32;

__global__ void transpose_tile(const float* in, float* out, int n, int pitch) {
  __shared__ float tile[kTile * (kTile + 1)];
  int x = blockIdx.x * kTile + threadIdx.x;
  int y = blockIdx.y * kTile + threadIdx.y;
  tile[threadIdx.y * pitch + threadIdx.x] = in[y * n + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  out[y * n + x] = tile[threadIdx.x * pitch + threadIdx.y];
}

int main() {
  const int n = 256;
  std::vector<float> host(n * n);
  for (int i = 0; i < n * n; ++i) host[i] = float(i);

  float *in, *out;
  CHECK(cudaMalloc(&in, n * n * sizeof(float)));
  CHECK(cudaMalloc(&out, n * n * sizeof(float)));
  CHECK(cudaMemcpy(in, host.data(), n * n * sizeof(float), cudaMemcpyHostToDevice));

  const int pitch = kTile + 1;
  transpose_tile<<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(in, out, n, pitch);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(host.data(), out, n * n * sizeof(float), cudaMemcpyDeviceToHost));
  printf("out[1] = %g\n", host[1]);
  return 0;
}
