// nvcc -arch=sm_90 -lineinfo -O3 -Xptxas -v -cubin pressure.cu -o pressure.cubin 2> pressure.ptxas.txt
__global__ void __launch_bounds__(512, 4) crowded(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float kept[40];
#pragma unroll
    for (int k = 0; k < 40; k++) kept[k] = in[(i + k * 977) % n];
    for (int round = 0; round < 9; round++)
#pragma unroll
        for (int k = 0; k < 40; k++) kept[k] = kept[k] * kept[(k + 7) % 40] + kept[(k + 31) % 40];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 40; k++) sum += kept[k];
    out[i] = sum;
}

__global__ void tiled(const float *in, float *out) {
    __shared__ float tile[256];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[255 - threadIdx.x];
}

__global__ void indexed(const int *pick, int *out) {
    int votes[16];
    for (int k = 0; k < 16; k++) votes[k] = pick[k];
    for (int k = 0; k < 64; k++) votes[pick[k + threadIdx.x] & 15] += k;
    out[threadIdx.x] = votes[pick[threadIdx.x] & 15];
}
