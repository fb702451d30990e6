// Softmax of one row per block; the maximum and the sum are two block reductions.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

struct Max { __device__ float operator()(float a, float b) const { return fmaxf(a, b); } };
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

template <typename Op>
__device__ float block_reduce(float v, float start, float* scratch, Op op) {
  for (int step = 16; step > 0; step /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, step));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float result = start;
  for (int w = 0; w < blockDim.x / 32; ++w) result = op(result, scratch[w]);
  return result;
}

__global__ void softmax_rows(const float* in, float* out) {
  __shared__ float scratch[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
  float largest = block_reduce(x, -INFINITY, scratch, Max());
  float e = __expf(x - largest);
  float total = block_reduce(e, 0.f, scratch, Sum());
  out[i] = e / total;
}

int main() {
  const int rows = 16, cols = 512;
  std::vector<float> host(rows * cols);
  for (int i = 0; i < rows * cols; ++i) host[i] = float(i % 13);
  float *in, *out, first;
  CHECK(cudaMalloc(&in, host.size() * sizeof(float)));
  CHECK(cudaMalloc(&out, host.size() * sizeof(float)));
  CHECK(cudaMemcpy(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  softmax_rows<<<rows, cols>>>(in, out);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&first, out, sizeof first, cudaMemcpyDeviceToHost));
  printf("first probability %g\n", first);
  return 0;
}
