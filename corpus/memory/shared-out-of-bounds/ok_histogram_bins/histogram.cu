// Histogram of 16-bit detector samples in 256 bins.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void histogram16(const unsigned short* samples, unsigned* counts, int n, int shift) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&bins[samples[i] >> shift], 1u);
  __syncthreads();
  atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}

int main() {
  const int n = 1 << 16, bits = 16;
  std::vector<unsigned short> host(n);
  for (int i = 0; i < n; ++i) host[i] = static_cast<unsigned short>(i * 257);

  unsigned short* samples;
  unsigned* counts;
  CHECK(cudaMalloc(&samples, n * sizeof(unsigned short)));
  CHECK(cudaMalloc(&counts, 256 * sizeof(unsigned)));
  CHECK(cudaMemset(counts, 0, 256 * sizeof(unsigned)));
  CHECK(cudaMemcpy(samples, host.data(), n * sizeof(unsigned short), cudaMemcpyHostToDevice));

  histogram16<<<16, 256>>>(samples, counts, n, bits - 8);
  CHECK(cudaGetLastError());
  unsigned first;
  CHECK(cudaMemcpy(&first, counts, sizeof first, cudaMemcpyDeviceToHost));
  printf("%u samples in bin 0\n", first);
  return 0;
}
