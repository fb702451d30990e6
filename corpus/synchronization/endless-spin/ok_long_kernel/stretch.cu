// Stretches keys with many rounds of mixing; slow on purpose.
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void stretch_keys(uint64_t* keys, int rounds) {
  uint64_t h = keys[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    h = h * 6364136223846793005ull + 1442695040888963407ull;
    h ^= h >> 29;
  }
  keys[threadIdx.x] = h;
}

int main() {
  uint64_t host[64], *keys;
  for (int i = 0; i < 64; ++i) host[i] = i;
  CHECK(cudaMalloc(&keys, sizeof host));
  CHECK(cudaMemcpy(keys, host, sizeof host, cudaMemcpyHostToDevice));
  stretch_keys<<<1, 64>>>(keys, 350000000);
  CHECK(cudaGetLastError());
  printf("launched\n");
  fflush(stdout);
  CHECK(cudaMemcpy(host, keys, sizeof host, cudaMemcpyDeviceToHost));
  printf("first key %016llx\n", static_cast<unsigned long long>(host[0]));
  return 0;
}
