// Bias gradient of a linear layer: the column sums of the incoming gradient.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t err = (call); if (err != cudaSuccess) { \
  fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); return 1; } } while (0)

struct Linear {
  const float* weight;
  float* grad_weight;
  float* grad_bias;
  int inputs, outputs;
};

__global__ void bias_backward(Linear layer, const float* grad_out, int batch) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= layer.outputs) return;
  float sum = 0.f;
  for (int b = 0; b < batch; ++b) sum += grad_out[b * layer.outputs + j];
  layer.grad_bias[j] = sum;
}

int main() {
  const int batch = 32, inputs = 64, outputs = 128;
  float *weight, *grad_weight, *grad_bias, *grad_out;
  CHECK(cudaMalloc(&weight, sizeof(float) * inputs * outputs));
  CHECK(cudaMalloc(&grad_weight, sizeof(float) * inputs * outputs));
  CHECK(cudaMalloc(&grad_bias, sizeof(float) * outputs));
  CHECK(cudaMalloc(&grad_out, sizeof(float) * batch * outputs));
  CHECK(cudaMemset(grad_out, 0, sizeof(float) * batch * outputs));

  Linear layer{};
  layer.weight = weight;
  layer.grad_weight = grad_weight;
  layer.inputs = inputs;
  layer.outputs = outputs;
  bias_backward<<<1, 128>>>(layer, grad_out, batch);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  printf("bias gradient done\n");
  return 0;
}
