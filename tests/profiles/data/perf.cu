#include <cstdio>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#define T 32
__global__ void transpose_bad(const float* in, float* out, int n) {
  __shared__ float tile[T][T];
  int x = blockIdx.x * T + threadIdx.x, y = blockIdx.y * T + threadIdx.y;
  for (int j = 0; j < T; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
  __syncthreads();
  x = blockIdx.y * T + threadIdx.x; y = blockIdx.x * T + threadIdx.y;
  for (int j = 0; j < T; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void transpose_good(const float* in, float* out, int n) {
  __shared__ float tile[T][T + 1];
  int x = blockIdx.x * T + threadIdx.x, y = blockIdx.y * T + threadIdx.y;
  for (int j = 0; j < T; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
  __syncthreads();
  x = blockIdx.y * T + threadIdx.x; y = blockIdx.x * T + threadIdx.y;
  for (int j = 0; j < T; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void strided(const float* in, float* out, int n, int s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[((long)i * s) % n] * 2.f;
}
__global__ void divergent(const int* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
  if (threadIdx.x % 4 == 0) for (int k = 0; k < 400; ++k) v = sinf(v) + k;
  else if (threadIdx.x % 4 == 1) for (int k = 0; k < 300; ++k) v = cosf(v) * k;
  else if (threadIdx.x % 4 == 2) for (int k = 0; k < 200; ++k) v = sqrtf(fabsf(v)) + k;
  out[i] = v;
}
__global__ void __launch_bounds__(256, 8) spill(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float r[96];
  #pragma unroll
  for (int k = 0; k < 96; ++k) r[k] = in[(i + k * 977) % n];
  for (int t = 0; t < 20; ++t) {
    #pragma unroll
    for (int k = 0; k < 96; ++k) r[k] = r[k] * r[(k + 7) % 96] + r[(k + 31) % 96];
  }
  float s = 0;
  #pragma unroll
  for (int k = 0; k < 96; ++k) s += r[k];
  out[i] = s;
}
int main() {
  int n = 4096; float *a, *b; cudaMalloc(&a, (long)n * n * 4); cudaMalloc(&b, (long)n * n * 4); cudaMemset(a, 1, (long)n * n * 4);
  dim3 g(n / T, n / T), t(T, 8);
  transpose_bad<<<g, t>>>(a, b, n); transpose_good<<<g, t>>>(a, b, n);
  strided<<<n * n / 256, 256>>>(a, b, n * n, 33); divergent<<<n * n / 256 / 16, 256>>>((int*)a, b, n * n);
  spill<<<n * n / 256 / 16, 256>>>(a, b, n * n / 16);
  cudaError_t e = cudaDeviceSynchronize(); printf("%s\n", cudaGetErrorName(e)); return e;
}
