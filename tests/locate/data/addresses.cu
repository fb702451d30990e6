// Kernels whose addresses are known in closed form: test_evaluate.py states each load's and store's.
// Every kernel loads once from its first pointer and stores once through its second, unless it says so.
#include <cuda_pipeline.h>

#define X (int)(blockIdx.x * blockDim.x + threadIdx.x)
typedef long long i64;
typedef unsigned long long u64;

extern "C" {
__global__ void linear(const float* in, float* out) { int i = X; out[i] = in[i + 5]; }
__global__ void wide_index(const float* in, float* out, i64 stride) {
  i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; out[i * stride] = in[i * 0x100000001ll]; }
__global__ void negative(const float* in, float* out, int n) { int i = X; out[-i - 1] = in[i - n]; }
__global__ void two_d(const float* in, float* out, int pitch, int height) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  out[col * height + row] = in[row * pitch + col]; }
__global__ void three_d(const double* in, double* out) {
  unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; out[b * 1024u + t] = in[t + b * gridDim.z]; }
struct View { const short* data; i64 stride; int offset; short shift; signed char bias; unsigned char step; };
__global__ void by_value(View v, short* out) { int i = X;
  out[i * v.step + v.bias] = v.data[(i64)(i + v.offset) * v.stride + (i >> v.shift)]; }
__global__ void shifts(const int* in, int* out, int n) { int i = X - 40; unsigned u = i;
  out[(u << n) ^ (u >> 3)] = in[(i >> 2) + (i << 5) - (i >> n)]; }
__global__ void by_constant(const int* in, int* out) { int i = X - 100; unsigned u = X; out[u / 10 + u % 1000 * 3] = in[i / 7 + i % 13 * 100 + i % 8]; }
__global__ void wide_constant(const int* in, int* out, i64 l, u64 u) { i64 i = X + l; u64 v = X + u;
  out[v % 1000003 + v / 10 % 4096] = in[i % 1000003 - i / 0x100000007ll]; }
__global__ void clamp(const int* in, int* out, int n, unsigned m) { int i = X; out[min(i * 3u, m)] = in[min(max(i - 30, 0), n - 1)]; }
__global__ void wide_clamp(const int* in, int* out, i64 n, u64 m) { i64 i = (i64)X * 3 - 50; u64 u = (u64)X << 31;
  out[u < m ? u >> 29 : m] = in[i < 0 ? 0 : i > n ? n : i]; }
__global__ void ternary(const int* in, int* out, int n) { int i = X; out[(i & 4) ? i * 2 : n - i] = in[i % 3 == 0 ? n + i : i < 17 ? i : -i]; }
__global__ void unsigned_wide(const char* in, char* out, unsigned n) { unsigned i = X; out[(u64)i * n] = in[(u64)(i * n) + (u64)n * 0xfffffff1u]; }
__global__ void small_types(const char* in, char* out, signed char k, unsigned short h, bool b, short s) { int i = X;
  out[i * s + (b ? h : -h)] = in[(unsigned char)(i * 7) + (short)(i * 0x3001) + k]; }
__global__ void wide_shifts(const char* in, char* out, i64 l, u64 u, int n) { int i = X;
  out[(u >> n) + ((u64)i << n) + (u << 7)] = in[((l + i) >> (n + 3)) + ((i64)-i << 33)]; }
__global__ void bytes(const int* in, int* out, unsigned n) { unsigned i = X; out[__byte_perm(i, n, 0x7430) & 0xffff] = in[((i * 77) >> 4 & 0xff) | (n & 0xf00)]; }
__global__ void absolute(const int* in, int* out, int n) { int i = X; out[abs(i - n)] = in[abs(n - 2 * i) + 1]; }
__global__ void high(const int* in, int* out, int n, unsigned m) { int i = X; out[__umulhi(i * 0x9e3779b9u, m)] = in[__mulhi(i * 0x3779b97f, n)]; }
__global__ void backwards(const char* in, char* out, u64 l, i64 n) { u64 i = X; out[-(i64)(i << 32)] = in[(i64)(l - i) - n]; }
__global__ void funnel(const char* in, char* out, unsigned n, unsigned m) { unsigned i = X; out[__funnelshift_r(i, n, m)] = in[__funnelshift_l(i, n, 5)]; }
__global__ void block_only(const int* in, int* out, int n) { out[blockIdx.x * n + 3] = in[blockIdx.y * gridDim.x + blockIdx.x - n]; }
__global__ void vectors(const float4* in, double2* out, int n) { int i = X; float4 v = in[i * n]; out[i + n] = make_double2(v.x + v.y, v.z + v.w); }
__global__ void guarded(const int* in, int* out, int n) { int i = X; if (i >= n) return; int v = in[i * 2]; if (v > 3) v *= n; out[i + n] = v; }
__global__ void masked(const int* in, int* out, int n) { int i = X; int v = 0; if (i < n) v = in[i * 2]; __syncthreads(); if ((i & 3) == 1) out[i + v] = v; }
__global__ void atomics(int* in, unsigned* out, int n) { int i = X; int v = atomicCAS(in + i * n, 5, n); atomicAdd(out + i - n, v); }
__global__ void copies(const float4* in, float4* out, int n) { __shared__ float4 s[256]; int i = X;
  __pipeline_memcpy_async(s + (threadIdx.x & 255), in + i * n, 16); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
  out[i ^ n] = s[255 - (threadIdx.x & 255)]; }
__global__ void three_terms(const char* in, char* out, i64 a, i64 b, u64 c) { int i = X; out[a - b + i * 7ll] = in[a + b + c + (i64)i * 0x123456789abll]; }
__global__ void far(const char* in, char* out, int n) { int i = X; out[i * 12345678ll - 0x7fffffffffffll] = in[(i + n) * -3ll + 0x80000000ll]; }
__global__ void wrapping(const short* in, short* out, unsigned short h, unsigned char c) { short s = X * 321; unsigned char u = X * 77 + c; out[(short)(s + h)] = in[u - (int)(unsigned char)(u + c)]; }
__global__ void bits(const int* in, int* out, unsigned n) { unsigned i = X; out[(i & n) + (i | n) * 2 + (~i & 0xff)] = in[(i ^ n) & ~(i << 4) & 0xffff]; }
__global__ void logic(const int* in, int* out, int n, int m) { int i = X; bool a = i > n, b = (i & 1) != 0, c = i < m;
  out[(a && b) || c ? i : i + m] = in[a != b ? i : (b || !c ? n : m)]; }
__global__ void wide_min(const int* in, int* out, i64 a, i64 b, u64 c) { i64 i = X - 33; u64 u = (u64)i; out[max(min(i * a, b), -b)] = in[min(u, c) & 0xffffff]; }
__global__ void nested(const int* in, int* out, int n) { int i = X, r = i >> 5, l = i & 31; out[r * 33 + l] = in[((r * n + l) * n + (l ^ 16)) * n + r]; }
__global__ void wide_bits(const char* in, char* out, u64 a, u64 b) { u64 i = X; out[(i * 0x0101010101010101ull & a) ^ (b >> (i & 31))] = in[(i | a) & ~(b << 13)]; }
__global__ void carried(const char* in, char* out, u64 a, u64 b) { u64 i = X; out[(a - i) * 3 - (b + i)] = in[(a + i) * (b - i)]; }
__global__ void shared_tile(const float* in, float* out, int n) { __shared__ float s[4096]; int t = threadIdx.x;
  s[t * 33 + 7] = in[t]; __syncthreads(); out[t] = s[(t ^ n) * 8 + 1]; }

// Loops: an address that changes from turn to turn must not be told.
__global__ void strided(const int* in, int* out, int n) { int v = 0;
#pragma unroll 1
  for (int i = X; i < n; i += gridDim.x * blockDim.x) v += in[i]; out[X] = v; }
__global__ void filled(const int* in, int* out, int n) { int v = in[X];
#pragma unroll 1
  for (int i = X; i < n; i += gridDim.x * blockDim.x) out[i] = v; }
__global__ void walked(const int* in, int* out, int n) { const int* p = in + X; int v = 0;
#pragma unroll 1
  while (n-- > 0) { v = v * 3 + *p; p += n; } out[v] = v; }
__global__ void branched(const int* in, int* out, int n, volatile int* side) { int i = X, k;
  if (i > n) { side[0] = 1; k = i * 3; } else { side[1] = 2; k = i - n; } side[2] = 3; out[k] = in[k]; }
}
