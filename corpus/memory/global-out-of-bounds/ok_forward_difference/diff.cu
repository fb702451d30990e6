// Forward differences of a signal.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void forward_difference(const float* signal, float* slope, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n - 1)
    slope[i] = signal[i + 1] - signal[i];
}

int main() {
  const int n = 100000;
  std::vector<float> host(n);
  for (int i = 0; i < n; ++i) host[i] = 0.5f * i;

  float *signal, *slope;
  CHECK(cudaMalloc(&signal, n * sizeof(float)));
  CHECK(cudaMalloc(&slope, n * sizeof(float)));
  CHECK(cudaMemset(slope, 0, n * sizeof(float)));
  CHECK(cudaMemcpy(signal, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));

  forward_difference<<<(n + 255) / 256, 256>>>(signal, slope, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(host.data(), slope, n * sizeof(float), cudaMemcpyDeviceToHost));
  printf("slope at the start: %g\n", host[0]);
  return 0;
}
