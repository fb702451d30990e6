#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
// a barrier inside a divergent branch and a spin-wait between blocks
__global__ void barrier_in_branch(float* x, int n) {
  __shared__ float s[256];
  int i = threadIdx.x;
  if (i < n) { s[i] = x[i]; __syncthreads(); x[i] = s[n - 1 - i]; }
  else { __syncthreads(); __syncthreads(); x[i] = 0; }
}
__global__ void spin_wait(volatile int* flag, int* out) {
  if (blockIdx.x == 0) { while (*flag == 0) { } out[0] = 1; }
  else if (threadIdx.x == 0 && blockIdx.x == 7777) *flag = 1;
}
__global__ void missing_sync(const float* x, float* y) {
  __shared__ float s[256];
  int i = threadIdx.x;
  s[i] = x[i];
  y[i] = s[255 - i];
}
int main(int c, char** v) {
  float* x; float* y; int* f; cudaMalloc(&x, 4096); cudaMalloc(&y, 4096); cudaMalloc(&f, 64); cudaMemset(f, 0, 64);
  switch (atoi(v[1])) {
    case 0: barrier_in_branch<<<1, 256>>>(x, 100); break;
    case 1: spin_wait<<<8, 64>>>(f, f + 4); break;
    case 2: missing_sync<<<1, 256>>>(x, y); break;
  }
  cudaError_t e = cudaDeviceSynchronize(); printf("%s\n", cudaGetErrorName(e)); return e;
}
