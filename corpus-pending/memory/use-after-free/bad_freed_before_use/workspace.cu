#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(1); } } while (0)

__global__ void scale(const float *in, float *out, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = factor * in[i];
}

float *make_workspace(int n) {
    float *temporary;
    CHECK(cudaMalloc(&temporary, (size_t)n * 4));
    CHECK(cudaMemset(temporary, 0, (size_t)n * 4));
    CHECK(cudaFree(temporary));
    return temporary;
}

int main() {
    int n = 1 << 24;
    float *out;
    CHECK(cudaMalloc(&out, (size_t)n * 4));
    float *workspace = make_workspace(n);
    scale<<<n / 256, 256>>>(workspace, out, 2.0f, n);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
