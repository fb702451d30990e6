// Scales the payload of a buffer that starts with one header word.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

__global__ void scale_payload(float4* payload, float factor, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n4) return;
  float4 v = payload[i];
  payload[i] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

int main() {
  const int header = 1, n = 4096;
  std::vector<float> host(header + n, 2.f);
  float* buffer;
  CHECK(cudaMalloc(&buffer, host.size() * sizeof(float)));
  CHECK(cudaMemcpy(buffer, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));

  float4* payload = reinterpret_cast<float4*>(buffer + header);
  scale_payload<<<n / 4 / 256, 256>>>(payload, 3.f, n / 4);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(host.data(), buffer, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
  printf("last value %g\n", host.back());
  return 0;
}
