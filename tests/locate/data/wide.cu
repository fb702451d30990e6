// One kernel for each family of instructions, so that what they write and where they jump can be checked.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

namespace cg = cooperative_groups;
using namespace nvcuda;

__global__ void shuffles(int* o, const int* in, unsigned m) {
  int v = in[threadIdx.x], p;
  v += __shfl_xor_sync(~0u, v, 1) + __shfl_down_sync(~0u, v, v & 3);
  long long w = v + __shfl_sync(~0u, (long long)v, 3);
  unsigned k = __match_any_sync(~0u, v) + __match_all_sync(~0u, v, &p) + __ballot_sync(~0u, v > 3) + __any_sync(~0u, v > 7);
  k += __popc(m) + __clz(m) + __ffs(m) + __brev(m) + __reduce_add_sync(~0u, v) + __reduce_max_sync(~0u, v);
  o[k] = v + p + w;
}
__global__ void atomics(int* o, unsigned long long* q, float* f, double* d, unsigned* u, __half2* h) {
  extern __shared__ int s[];
  int t = threadIdx.x, a = atomicAdd(o + t, 3);
  a += atomicCAS(o + a, 4, 5) + atomicExch(o + a, 7) + atomicMax(o + a, 9);
  unsigned long long b = atomicAdd(q + a, 3ull);
  b += atomicCAS(q + b, 4ull, b) + atomicMin(q + b, 7ull);
  double e = atomicAdd(d + b, (double)atomicAdd(f + b, 2.f));
  s[t] = a;
  a += atomicAdd(s + a, 4) + atomicCAS(s + a, 4, 5);
  atomicAdd(s + a, 1); atomicInc(u + a, 7); atomicAdd(h + a, __half2{}); atomicAnd(u + t, 3);
  o[(int)e] = a;
}
__global__ void doubles(double* o, const double* a, float* f, long long* l, int n) {
  double x = a[threadIdx.x], y = x * a[n] + sin(x) / a[n + 1];
  o[threadIdx.x] = sqrt(y) + (x > y ? 1. : y) + fmin(x, y) + floor(x);
  f[n] = (float)y; l[n] = (long long)y; l[n + 1] = (long long)f[1]; o[n] = (double)l[4] + (double)f[3] + (double)n; f[5] = (float)l[6];
  l[9] = l[7] / l[8]; l[10] = l[8] % n; l[11] = __mul64hi(l[1], l[2]); o[5] = rint(y);
  l[13] = __double_as_longlong(x) + clock64(); l[14] = l[5] << n; l[16] = l[6] >> n; l[15] = min(l[1], l[2]);
}
__global__ void halves(__half* h, __half2* g, __nv_bfloat16* b, float* f, int n) {
  int i = threadIdx.x;
  h[i] = __hfma(h[n], h[n + 1], h[i]); g[i] = __hmul2(g[n], g[i]) + g[4]; b[i] = b[n] * b[i] + b[3];
  f[i] = __half2float(h[i]) + __bfloat162float(b[i]); h[i + 1] = __float2half(f[n]); h[i + 2] = __hmax(h[n], h[i]);
  f[4] = __expf(f[4]) * __sinf(f[5]) * rsqrtf(f[6]) / f[7];
}
template <typename A, typename C, int K>
__device__ void multiply(const A* a, const A* b, C* c) {
  wmma::fragment<wmma::matrix_a, K == 4 ? 8 : 16, K == 4 ? 8 : 16, K, A, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, K == 4 ? 8 : 16, K == 4 ? 8 : 16, K, A, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, K == 4 ? 8 : 16, K == 4 ? 8 : 16, K, C> z;
  wmma::fill_fragment(z, C(0));
  for (int k = 0; k < 64; k += 16) { wmma::load_matrix_sync(x, a + k, 64); wmma::load_matrix_sync(y, b + k, 64); wmma::mma_sync(z, x, y, z); }
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
__global__ void tensor(const half* a, const half* b, float* c) { multiply<half, float, 16>(a, b, c); }
__global__ void tensor64(const double* a, const double* b, double* c) { multiply<double, double, 4>(a, b, c); }
__global__ void tensor8(const signed char* a, const signed char* b, int* c) { multiply<signed char, int, 16>(a, b, c); }
__global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float4* o, float x, int i) {
  o[0] = tex2D<float4>(t, x, x + 1); o[1].x = tex1Dfetch<float>(t, i); o[2] = tex3D<float4>(t, x, x, x);
  o[4] = tex2Dgather<float4>(t, x, x, 1); o[5].y = surf2Dread<float>(s, 4 * i, i); surf2Dwrite(x, s, 4 * i, i); o[6].x = surf1Dread<uint4>(s, 4).y;
}
__global__ void groups(int* o, const int* in) {
  auto g = cg::this_grid();
  auto b = cg::this_thread_block();
  int v = cg::reduce(cg::tiled_partition<16>(b), in[threadIdx.x], cg::plus<int>());
  g.sync();
  auto c = cg::coalesced_threads();
  o[c.thread_rank() + v] = c.shfl(v, 0);
  b.sync();
  if (threadIdx.x & 1) { auto d = cg::coalesced_threads(); o[d.size()] = 5; d.sync(); }
}
__device__ __noinline__ int recurse(int n, int* p) {
  if (n <= 0) return p[0];
  p[n] = recurse(n - 1, p) + recurse(n - 2, p);
  return p[n];
}
__global__ void calls(int* p, int n) { p[threadIdx.x] = recurse(n, p + threadIdx.x); if (n == 78) __trap(); }
typedef int (*Function)(int, int*);
__device__ Function table[4];
__global__ void indirect(int* p, int n) { p[n] = table[n & 3](n, p); }
__global__ void switches(int* p, int n) {
  switch (p[n]) {
    case 0: p[1] = 5; break; case 1: p[2] = n; break; case 2: p[n] = 4; break; case 3: p[n + 1] = 9; break;
    case 4: p[5] = n * n; break; case 5: p[6] = 1; case 6: p[7] = 2; break; case 7: p[8]++; break; default: p[0] = 0;
  }
}
__global__ void locals(int* p, int n) {
  int a[64];
  for (int i = 0; i < 64; i++) a[i] = p[i];
  for (int i = 0; i < n; i++) a[a[i] & 63] += i;
  p[n] = a[n];
}
__global__ void divisions(int* p, unsigned* u, unsigned long long* q, int n, unsigned m, unsigned long long l) {
  int i = threadIdx.x;
  p[i / n] = i % n; u[i / m] = i % m; q[(i + l) / (l + 1)] = i % l; p[i / 7] = p[i % 7];
}
__global__ void spin(volatile int* f, int* p) { while (f[blockIdx.x] == 0) __nanosleep(20); p[threadIdx.x] = 1; __threadfence(); }
__global__ void simd(unsigned* o, const unsigned* a, int n) {
  unsigned x = a[n], y = a[n + 1];
  o[0] = __vadd4(x, y); o[1] = __vmaxs2(x, y); o[2] = __dp4a(x, y, 3u); o[3] = __byte_perm(x, y, n); o[4] = __funnelshift_l(x, y, n);
  o[5] = __vabsdiffu4(x, y); o[6] = __viaddmax_s32(x, y, n); o[7] = __vimax3_s32(x, y, n); o[8] = __sad(x, y, n); o[14] = __fns(x, 3, n);
}
__global__ void copies(float* o, const float4* in, int n) {
  __shared__ float4 s[256];
  __pipeline_memcpy_async(s + threadIdx.x, in + threadIdx.x + n, 16);
  __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
  o[threadIdx.x] = s[255 - threadIdx.x].x;
}
#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(2, 1, 1) clusters(int* o) {
  __shared__ int s[32];
  auto c = cg::this_cluster();
  s[threadIdx.x] = threadIdx.x;
  c.sync();
  int* r = c.map_shared_rank(s, 1);
  o[threadIdx.x] = r[threadIdx.x + 1] + atomicAdd(r, 3);
  c.sync();
}
__global__ void vector_atomics(float4* f, float2* g) { float4 v = atomicAdd(f + threadIdx.x, float4{1, 2, 3, 4}); atomicAdd(g, float2{v.x, v.w}); }
#endif
