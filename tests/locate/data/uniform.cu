// For sm_75 the compiler adds a thread's own 32-bit offset to a pointer in a uniform pair: [R9.U32+UR6].
// And a thread's 64-bit offset to one: [R4.64+UR4].
extern "C" {
__device__ float g[4096];
__constant__ float tab[1024];
__global__ void narrow(const int* __restrict__ in, int* out, unsigned n) {
  int s = 0;
  in += n * (unsigned long long)blockIdx.x;
  for (unsigned j = 0; j < 8; j++) s += __ldg((const int*)((const char*)in + (unsigned)(threadIdx.x ^ j)));
  out[s] = s;
}
__global__ void wide(float* out, int n) { out[n] = tab[n] + g[threadIdx.x] + g[n]; g[threadIdx.x * n] = 1; }
}
