// Counts decimal digits per thread with a counter helper written for global memory.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__device__ __noinline__ void bump(int* counter, int by) {
  atomicAdd(counter, by);
}

__global__ void count_digits(const int* numbers, int* totals, int per_thread) {
  int first = (blockIdx.x * blockDim.x + threadIdx.x) * per_thread;
  int counts[10] = {0};
  for (int k = 0; k < per_thread; ++k)
    for (int rest = numbers[first + k]; rest > 0; rest /= 10)
      bump(&counts[rest % 10], 1);
  for (int d = 0; d < 10; ++d)
    bump(&totals[d], counts[d]);
}

int main() {
  const int threads = 128, per_thread = 8;
  int host[threads * per_thread], *numbers, *totals, fives;
  for (int i = 0; i < threads * per_thread; ++i) host[i] = 1234567 + i;
  CHECK(cudaMalloc(&numbers, sizeof host));
  CHECK(cudaMalloc(&totals, 10 * sizeof(int)));
  CHECK(cudaMemset(totals, 0, 10 * sizeof(int)));
  CHECK(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));

  count_digits<<<1, threads>>>(numbers, totals, per_thread);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&fives, totals + 5, sizeof fives, cudaMemcpyDeviceToHost));
  printf("%d fives\n", fives);
  return 0;
}
