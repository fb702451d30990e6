/* Answers of NVIDIA's cuda_occupancy.h for random configurations, as CSV; needs no GPU.
 *
 *   cc -I"$CUDA/include" scripts/occupancy_header.c -o /tmp/occ && /tmp/occ > tests/data/occupancy/header.csv
 *
 * The device properties are those that the CUDA C++ Programming Guide lists. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cuda_occupancy.h>

static uint64_t state = 20261201;
static unsigned next(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

int main(void) {
    static const struct {
        int major, minor, threads, shared;
    } chips[] = {{7, 5, 1024, 64}, {8, 0, 2048, 164}, {8, 6, 1536, 100},  {8, 7, 1536, 164}, {8, 9, 1536, 100}, {9, 0, 2048, 228},
                 {10, 0, 2048, 228}, {10, 3, 2048, 228}, {11, 0, 1536, 228}, {12, 0, 1536, 100}, {12, 1, 1536, 100}};
    printf("arch,threads,registers,static_shared,dynamic_shared,max_dynamic_shared,blocks\n");
    for (size_t chip = 0; chip < sizeof chips / sizeof *chips; chip++) {
        struct cudaOccDeviceProp device = {0};
        device.computeMajor = chips[chip].major;
        device.computeMinor = chips[chip].minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = chips[chip].threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 48 << 10;
        device.reservedSharedMemPerBlock = chips[chip].major == 7 ? 0 : 1024;
        device.sharedMemPerMultiprocessor = (size_t)chips[chip].shared << 10;
        device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - device.reservedSharedMemPerBlock;
        device.numSms = 100;
        for (int i = 0; i < 300; i++) {
            struct cudaOccFuncAttributes kernel = {0};
            struct cudaOccDeviceState split = {CACHE_PREFER_NONE, SHAREDMEM_CARVEOUT_DEFAULT};
            struct cudaOccResult result = {0};
            int threads = next(3) ? 32 * (1 + (int)next(32)) : 1 + (int)next(1024);
            size_t dynamic = next(3) ? next(4 + next(240) * 1024) : 0;
            kernel.maxThreadsPerBlock = 1024;
            kernel.numRegs = 1 + (int)next(255);
            kernel.sharedSizeBytes = next(2) ? next(49153) : 0;
            kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
            kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
            kernel.maxDynamicSharedSizeBytes = next(4) ? dynamic : next(4 + next(240) * 1024);
            kernel.numBlockBarriers = 1;
            if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &split, threads, dynamic)) continue;
            printf("sm_%d%d,%d,%d,%zu,%zu,%zu,%d\n", device.computeMajor, device.computeMinor, threads, kernel.numRegs,
                   kernel.sharedSizeBytes, dynamic, kernel.maxDynamicSharedSizeBytes, result.activeBlocksPerMultiprocessor);
        }
    }
    return 0;
}
