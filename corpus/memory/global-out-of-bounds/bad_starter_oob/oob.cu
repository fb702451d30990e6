#include <cstdio>
#include <cuda_runtime.h>
// bad: tail not guarded: the last vector load runs past n
__device__ float4 fetch4(const float* in, long i) {
  return *reinterpret_cast<const float4*>(in + i * (1l<<20));
}
__global__ void scale_tail(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = fetch4(in, i);
  out[i % n] = v.x + v.y;
}
int main() {
  int n = 1 << 20; float *a, *b;
  cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4);
  scale_tail<<<64, 128>>>(a, b, n);
  cudaError_t e = cudaDeviceSynchronize();
  printf("%d %s %s\n", e, cudaGetErrorName(e), cudaGetErrorString(e));
  return e != cudaSuccess;
}
