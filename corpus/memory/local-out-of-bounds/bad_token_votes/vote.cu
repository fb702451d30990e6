// Each thread votes for the most frequent class among the tokens of one document.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void vote_class(const int* tokens, const int* class_of, int* winners, int length) {
  int doc = blockIdx.x * blockDim.x + threadIdx.x;
  int votes[16] = {0};
  for (int k = 0; k < length; ++k)
    votes[tokens[doc * length + k]]++;
  int best = 0;
  for (int c = 1; c < 16; ++c)
    if (votes[c] > votes[best]) best = c;
  winners[doc] = class_of[best];
}

int main() {
  const int docs = 256, length = 64, vocab = 1 << 21;
  std::vector<int> words(docs * length), classes(vocab);
  for (int i = 0; i < docs * length; ++i) words[i] = (vocab / 2 + i * 17) % vocab;
  for (int i = 0; i < vocab; ++i) classes[i] = i % 16;

  int *tokens, *class_of, *winners;
  CHECK(cudaMalloc(&tokens, words.size() * sizeof(int)));
  CHECK(cudaMalloc(&class_of, classes.size() * sizeof(int)));
  CHECK(cudaMalloc(&winners, docs * sizeof(int)));
  CHECK(cudaMemcpy(tokens, words.data(), words.size() * sizeof(int), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(class_of, classes.data(), classes.size() * sizeof(int), cudaMemcpyHostToDevice));

  vote_class<<<docs / 64, 64>>>(tokens, class_of, winners, length);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  printf("voted on %d documents\n", docs);
  return 0;
}
