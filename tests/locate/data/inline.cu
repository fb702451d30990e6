// Inlining of every kind: nested, repeated, through a template and a lambda, several kernels in one file.
template <typename T>
__device__ __forceinline__ T load(const T* p, int i) {
  return p[i] * T(3);
}

__device__ __forceinline__ float blend(const float* p, int i, float w) {
  float a = load(p, i);
  float b = load(p, i + 7) * w;
  if (a > b)
    a = load(p, i - 1) - b;
  return a + b;
}

__device__ __noinline__ float slow(const float* p, int i) {
  return blend(p, i * 2, 0.25f) / p[i];
}

template <int N, typename F>
__device__ __forceinline__ float repeat(F f) {
  float sum = 0;
#pragma unroll
  for (int n = 0; n < N; n++)
    sum += f(n);
  return sum;
}

__global__ void plain(const float* in, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

__global__ void nested(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = blend(in, i, 0.5f) + blend(in, i + n, 0.75f);
}

__global__ void lambda(const float* in, float* out, int n) {
  int i = threadIdx.x;
  auto get = [=](int k) {
    return load(in, i + k * n);
  };
  out[i] = repeat<3>(get) + repeat<2>([=](int k) { return blend(in, k + i, 0.1f); });
}

__global__ void doubles(const double* in, double* out) {
  out[threadIdx.x] = load(in, threadIdx.x) + load(out, threadIdx.x);
}

__global__ void calling(const float* in, float* out, int n) {
  out[threadIdx.x] = slow(in, n) + slow(in, threadIdx.x) * blend(in, n, 2.f);
  __syncthreads();
  out[n] = slow(out, n);
}
