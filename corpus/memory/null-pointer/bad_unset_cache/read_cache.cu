// Reads pages of a key cache that is allocated on first use.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void read_pages(const float* cache, const int* pages, float* out, int page_floats) {
  const float* page = cache + size_t(pages[blockIdx.x]) * page_floats;
  for (int c = threadIdx.x; c < page_floats; c += blockDim.x)
    out[blockIdx.x * page_floats + c] = page[c];
}

int main() {
  const int pages_total = 4096, page_floats = 16384, wanted = 8;
  bool warm = false;
  std::vector<int> order = {3000, 3001, 3002, 3003, 3100, 3101, 3102, 3103};

  float *cache = nullptr, *out;
  int* pages;
  if (warm) CHECK(cudaMalloc(&cache, sizeof(float) * pages_total * page_floats));
  if (warm) CHECK(cudaMemset(cache, 0, sizeof(float) * pages_total * page_floats));
  CHECK(cudaMalloc(&out, sizeof(float) * wanted * page_floats));
  CHECK(cudaMalloc(&pages, sizeof(int) * wanted));
  CHECK(cudaMemcpy(pages, order.data(), sizeof(int) * wanted, cudaMemcpyHostToDevice));

  read_pages<<<wanted, 256>>>(cache, pages, out, page_floats);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  printf("read %d pages\n", wanted);
  return 0;
}
