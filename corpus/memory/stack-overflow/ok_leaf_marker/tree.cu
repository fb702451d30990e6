// Scores small binary trees: a node counts its value plus the product of its two subtrees' scores.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

struct Node { int left, right; float value; };

__device__ float subtree_score(const Node* nodes, int i) {
  if (i < 0) return 0.f;
  Node node = nodes[i];
  return node.value + subtree_score(nodes, node.left) * subtree_score(nodes, node.right);
}

__global__ void forest_scores(const Node* nodes, float* scores) {
  scores[threadIdx.x] = subtree_score(nodes, threadIdx.x % 3);
}

int main() {
  std::vector<Node> tree(7);
  for (int i = 0; i < 7; ++i) {
    bool leaf = 2 * i + 1 >= 7;
    tree[i].left = leaf ? -1 : 2 * i + 1;
    tree[i].right = leaf ? -1 : 2 * i + 2;
    tree[i].value = 1.f;
  }
  Node* nodes;
  float* scores;
  CHECK(cudaMalloc(&nodes, tree.size() * sizeof(Node)));
  CHECK(cudaMalloc(&scores, 32 * sizeof(float)));
  CHECK(cudaMemcpy(nodes, tree.data(), tree.size() * sizeof(Node), cudaMemcpyHostToDevice));

  forest_scores<<<1, 32>>>(nodes, scores);
  CHECK(cudaGetLastError());
  float first;
  CHECK(cudaMemcpy(&first, scores, sizeof first, cudaMemcpyDeviceToHost));
  printf("score of the root: %g\n", first);
  return 0;
}
