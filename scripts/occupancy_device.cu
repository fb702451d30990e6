// Answers of the driver for random configurations of kernels with 8 to 255 registers, as CSV; needs a GPU.
//
//   nvcc -arch=native -O1 scripts/occupancy_device.cu -lcuda -o occ && ./occ > tests/data/occupancy/h200.csv
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

// Holds `Live` values at once; __maxnreg__ caps what the compiler takes for them.
template <int Live, int Shared>
__global__ void keep(const float *in, float *out, int stride) {
    __shared__ float tile[Shared > 0 ? Shared : 1];
    float value[Live];
#pragma unroll
    for (int i = 0; i < Live; i++) value[i] = in[threadIdx.x + i * stride];
    if (Shared > 0) {
        tile[threadIdx.x % Shared] = value[0];
        __syncthreads();
        value[0] = tile[(threadIdx.x + 1) % Shared];
    }
#pragma unroll
    for (int i = 0; i < Live; i++) out[threadIdx.x + i * stride] = value[i] * value[(i * 7 + 3) % Live];
}

static uint64_t state = 7;
static unsigned next(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

#define ROW(live) (const void *)keep<live, 0>, (const void *)keep<live, 1000>, (const void *)keep<live, 9000>
static const void *kernels[] = {ROW(1),  ROW(4),  ROW(8),  ROW(12), ROW(16),  ROW(20),  ROW(24),  ROW(28),  ROW(32),  ROW(40),
                                ROW(48), ROW(56), ROW(64), ROW(80), ROW(96), ROW(112), ROW(128), ROW(160), ROW(192), ROW(224)};

int main() {
    int device = 0, major = 0, minor = 0;
    if (cudaGetDevice(&device) || cudaFree(nullptr)) return 1;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    printf("arch,threads,registers,static_shared,dynamic_shared,max_dynamic_shared,blocks\n");
    for (int i = 0; i < 900; i++) {
        const void *kernel = kernels[next(sizeof kernels / sizeof *kernels)];
        cudaFuncAttributes attributes;
        if (cudaFuncGetAttributes(&attributes, kernel)) return 1;
        int most = 227 * 1024 - (int)attributes.sharedSizeBytes;
        int limit = next(3) ? (int)next(most + 1) : 48 * 1024 - (int)attributes.sharedSizeBytes;
        if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit)) continue;
        int dynamic = next(4) ? (int)next(limit + 1) : (int)next(most + 1);
        int threads = next(3) ? 32 * (1 + (int)next(32)) : 1 + (int)next(1024);
        CUfunction function;
        int blocks = -1;
        if (cudaGetFuncBySymbol(&function, kernel)) return 1;
        CUresult answer = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, dynamic);
        if (answer != CUDA_SUCCESS) continue;
        printf("sm_%d%d,%d,%d,%zu,%d,%d,%d\n", major, minor, threads, attributes.numRegs, attributes.sharedSizeBytes, dynamic,
               limit, blocks);
    }
    return 0;
}
