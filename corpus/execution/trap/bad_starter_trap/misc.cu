#include <cstdio>
#include <cstdlib>
#include <cassert>
#include <cuda_runtime.h>
__global__ void int_div0(int* out, int z) { int lane = threadIdx.x & 31; if (lane == 0) out[blockIdx.x] = 10 / z; }
__global__ void misaligned(char* p, float* out) { out[threadIdx.x] = *reinterpret_cast<float*>(p + threadIdx.x * 4 + 1); }
__global__ void shared_oob(float* out, int k) { __shared__ float s[64]; s[threadIdx.x * k] = 1.f; __syncthreads(); out[threadIdx.x] = s[threadIdx.x]; }
__global__ void trap_it(int* p) { if (threadIdx.x == 5) asm("trap;"); p[threadIdx.x] = 1; }
__global__ void assert_it(int* p, int lim) { assert(p[threadIdx.x] + (int)threadIdx.x < lim); p[threadIdx.x] = 1; }
__global__ void null_deref(int* p) { *p = 3; }
__device__ int recurse(int n, int* p) { volatile int a[256]; a[n & 255] = n; return n <= 0 ? a[0] : recurse(n - 1, p) + a[n & 255] + *p; }
__global__ void stack_ovf(int* p) { *p = recurse(1 << 20, p); }
__global__ void hang(volatile int* flag) { while (*flag == 0) {} }
int main(int argc, char** argv) {
  int which = atoi(argv[1]); int* p; float* f; cudaMalloc(&p, 4096); cudaMalloc(&f, 4096); cudaMemset(p, 0, 4096);
  const char* names[] = {"int_div0","misaligned","shared_oob","trap","assert","null","stack","hang","too_many_threads","too_much_smem"};
  switch (which) {
    case 0: int_div0<<<1, 32>>>(p, 0); break;
    case 1: misaligned<<<1, 32>>>((char*)f, f); break;
    case 2: shared_oob<<<1, 64>>>(f, 1 << 20); break;
    case 3: trap_it<<<2, 64>>>(p); break;
    case 4: assert_it<<<1, 64>>>(p, 40); break;
    case 5: null_deref<<<1, 1>>>(nullptr); break;
    case 6: stack_ovf<<<1, 1>>>(p); break;
    case 7: hang<<<1, 32>>>(p); break;
    case 8: null_deref<<<1, 2048>>>(p); break;
    case 9: trap_it<<<1, 32, 1 << 20>>>(p); break;
  }
  cudaError_t l = cudaGetLastError();
  printf("%s launch: %d %s\n", names[which], l, cudaGetErrorName(l)); fflush(stdout);
  cudaError_t e = cudaDeviceSynchronize();
  printf("%s sync: %d %s\n", names[which], e, cudaGetErrorName(e));
  int h = -1; cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost); printf("value %d\n", h);
}
