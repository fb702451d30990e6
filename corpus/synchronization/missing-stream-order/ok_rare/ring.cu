#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s\n", cudaGetErrorString(e)); exit(2); } } while (0)

__global__ void produce(unsigned *slot, unsigned value, int spin) {
    for (int i = 0; i < spin; i++) __nanosleep(100);
    *slot = value;
}

__global__ void consume(const unsigned *slot, unsigned *seen) { *seen = *slot; }

int main() {
    unsigned *slot, *seen, last = 0;
    CHECK(cudaMalloc(&slot, 4));
    CHECK(cudaMalloc(&seen, 4));
    CHECK(cudaMemset(slot, 0, 4));
    cudaStream_t writer, reader;
    CHECK(cudaStreamCreateWithFlags(&writer, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&reader, cudaStreamNonBlocking));
    produce<<<1, 1, 0, writer>>>(slot, 1, 0);
    consume<<<1, 1, 0, reader>>>(slot, seen);
    CHECK(cudaDeviceSynchronize());
    int wrong = 0;
    for (unsigned round = 2; round < 12; round++) {
        timespec pause = {0, 12000 + (long)(clock() % 7) * 1000};
        produce<<<1, 1, 0, writer>>>(slot, round, 10);
        nanosleep(&pause, nullptr);
        CHECK(cudaStreamSynchronize(writer));
        consume<<<1, 1, 0, reader>>>(slot, seen);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&last, seen, 4, cudaMemcpyDeviceToHost));
        wrong += last != round;
    }
    printf("%d of 10 rounds read an old value\n", wrong);
    return wrong ? 1 : 0;
}
