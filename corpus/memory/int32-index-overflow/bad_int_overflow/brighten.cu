// Adds a constant to the border pixels of every 500th row of a very large 8-bit scan.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

constexpr int kRowStep = 500;

__global__ void brighten_border(unsigned char* image, int rows, int cols, int amount) {
  int row = blockIdx.x * kRowStep;
  int offset = row * cols + threadIdx.x;
  unsigned char* pixel = image + offset;
  *pixel = min(*pixel + amount, 255);
}

int main() {
  const int rows = 100000, cols = 32768;
  unsigned char* image;
  CHECK(cudaMalloc(&image, size_t(rows) * cols));
  CHECK(cudaMemset(image, 10, size_t(rows) * cols));

  brighten_border<<<rows / kRowStep, 64>>>(image, rows, cols, 5);
  CHECK(cudaGetLastError());

  unsigned char first;
  CHECK(cudaMemcpy(&first, image, 1, cudaMemcpyDeviceToHost));
  printf("first pixel %d\n", first);
  return 0;
}
