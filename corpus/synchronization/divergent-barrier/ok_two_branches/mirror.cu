// Mirrors the first n entries of a row and clears the rest.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void mirror_row(float* x, int n) {
  __shared__ float row[256];
  int i = threadIdx.x;
  row[i] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n)
    x[i] = row[n - 1 - i];
  else
    x[i] = row[i] - 1.f;
}

int main() {
  float *x, last;
  CHECK(cudaMalloc(&x, 256 * sizeof(float)));
  CHECK(cudaMemset(x, 0, 256 * sizeof(float)));
  mirror_row<<<1, 256>>>(x, 100);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&last, x + 255, sizeof last, cudaMemcpyDeviceToHost));
  printf("last value %g\n", last);
  return 0;
}
