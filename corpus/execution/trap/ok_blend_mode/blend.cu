// Blends two images; the mode is chosen at run time.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

enum Mode { kAdd, kMultiply, kScreen, kOverlay };

__device__ float blend_pixel(float a, float b, int mode) {
  switch (mode) {
    case kAdd: return fminf(a + b, 1.f);
    case kMultiply: return a * b;
    case kScreen: return 1.f - (1.f - a) * (1.f - b);
    default: __trap();
  }
  return 0.f;
}

__global__ void blend_images(const float* a, const float* b, float* out, int n, int mode) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = blend_pixel(a[i], b[i], mode);
}

int main() {
  const int n = 4096;
  float *a, *b, *out, first;
  CHECK(cudaMalloc(&a, n * sizeof(float)));
  CHECK(cudaMalloc(&b, n * sizeof(float)));
  CHECK(cudaMalloc(&out, n * sizeof(float)));
  CHECK(cudaMemset(a, 0, n * sizeof(float)));
  CHECK(cudaMemset(b, 0, n * sizeof(float)));

  blend_images<<<n / 256, 256>>>(a, b, out, n, kScreen);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&first, out, sizeof first, cudaMemcpyDeviceToHost));
  printf("first pixel %g\n", first);
  return 0;
}
