#include <cstdio>
#include <cuda_runtime.h>
// a producer/consumer pair of warps that wait on each other through named barriers with different counts
__global__ void ring_wait(int* out) {
  int warp = threadIdx.x / 32;
  if (warp == 0) asm volatile("bar.sync 1, 96;");   // expects 96 threads, only 64 ever arrive
  else asm volatile("bar.sync 1, 96;");
  out[threadIdx.x] = 1;
}
int main() { int* o; cudaMalloc(&o, 1024); ring_wait<<<2, 64>>>(o); cudaError_t e = cudaDeviceSynchronize(); printf("%s\n", cudaGetErrorName(e)); return e; }
