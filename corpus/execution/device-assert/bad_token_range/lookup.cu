// Looks up the embedding of every token of a prompt.
#include <cassert>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__device__ const float* embedding_row(const float* table, int token, int vocab, int dim) {
  assert(token < vocab && "token id out of range");
  return table + token * dim;
}

__global__ void embed_tokens(const float* table, const int* tokens, float* out, int vocab, int dim) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* row = embedding_row(table, tokens[i], vocab, dim);
  for (int c = 0; c < dim; ++c) out[i * dim + c] = row[c];
}

int main() {
  const int words = 32000, special = 1, dim = 16, n = 1024;
  const int vocab = words;
  std::vector<int> prompt(n);
  for (int i = 0; i < n; ++i) prompt[i] = i * 31 % words;
  prompt[777] = words;  // end of text

  float *table, *out;
  int* tokens;
  CHECK(cudaMalloc(&table, sizeof(float) * (words + special) * dim));
  CHECK(cudaMalloc(&out, sizeof(float) * n * dim));
  CHECK(cudaMalloc(&tokens, sizeof(int) * n));
  CHECK(cudaMemset(table, 0, sizeof(float) * (words + special) * dim));
  CHECK(cudaMemcpy(tokens, prompt.data(), sizeof(int) * n, cudaMemcpyHostToDevice));

  embed_tokens<<<n / 128, 128>>>(table, tokens, out, vocab, dim);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  printf("embedded %d tokens\n", n);
  return 0;
}
