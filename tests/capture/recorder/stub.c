/* A stand-in for libcuda.so.1: the entry points that the recorder knows, with the driver's ABI (cuda.h).
 * It launches nothing; it counts, refuses what a GPU would refuse, and hands out addresses. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef void *H;
typedef unsigned long long P;

struct function { const char *name; int is_kernel; };
static struct function functions[64];
static int function_count;
static int context;
static __thread int capturing;
static _Atomic P next_address;
_Atomic long stub_launches, stub_per_thread, stub_synchronized, stub_host_functions, stub_wrong;

CUresult cuInit(unsigned flags) { return flags ? 1 : 0; }
CUresult cuCtxGetCurrent(H *out) { *out = &context; return 0; }
CUresult cuCtxGetDevice(int *out) { *out = 0; return 0; }
CUresult cuCtxSynchronize(void) { if (capturing) stub_wrong++; stub_synchronized++; return 0; }
CUresult cuCtxDestroy_v2(H c) { return c == &context ? 0 : 201; }
CUresult cuDeviceGetAttribute(int *out, int attribute, int device) {
    switch (attribute) {
    case 1: case 2: case 3: *out = 1024; return 0;
    case 4: *out = 64; return 0;
    case 5: *out = 2147483647; return 0;
    case 6: case 7: *out = 65535; return 0;
    case 8: *out = 49152; return 0;
    case 12: *out = 65536; return 0;
    case 16: *out = 132; return 0;
    case 75: *out = 9; return 0;
    case 76: *out = 0; return 0;
    case 95: *out = 1; return 0;
    case 97: *out = 232448; return 0;
    case 81: *out = 233472; return 0;
    }
    return 1;
}
CUresult cuFuncGetAttribute(int *out, int attribute, H function) {
    if (((struct function *)function)->is_kernel) { stub_wrong++; return 400; }
    static const int values[10] = {768, 4096, 0, 16, 84, 90, 90, 0, 45056, 0};
    *out = values[attribute];
    return 0;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, H f, int threads, size_t shared) { *out = 2; return 0; }
CUresult cuModuleLoadData(H *module, const void *image) {
    *module = &functions;
    return strncmp(image, "old", 3) ? 0 : 209;
}
CUresult cuLibraryLoadData(H *l, const void *image, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
    *l = &functions;
    return strncmp(image, "old", 3) ? 0 : 209;
}
static CUresult get(H *out, const char *name, int is_kernel) {
    if (!strncmp(name, "missing", 7)) return 500;
    struct function *f = &functions[function_count++ & 63];
    f->name = strdup(name);
    f->is_kernel = is_kernel;
    *out = f;
    return 0;
}
CUresult cuModuleGetFunction(H *out, H module, const char *name) { return get(out, name, 0); }
CUresult cuLibraryGetKernel(H *out, H library, const char *name) { return get(out, name, 1); }
CUresult cuKernelGetFunction(H *out, H kernel) { return get(out, ((struct function *)kernel)->name, 0); }
CUresult cuFuncGetName(const char **out, H f) {
    if (((struct function *)f)->is_kernel) return 400;
    *out = ((struct function *)f)->name;
    return 0;
}
CUresult cuKernelGetName(const char **out, H f) { *out = ((struct function *)f)->name; return 0; }
/* A function that no lookup gave: known to the driver alone. */
H stub_hidden(int is_kernel) {
    static struct function hidden[2] = {{"_Z6hiddenv", 0}, {"_Z12hiddenkernelv", 1}};
    return &hidden[is_kernel];
}

static long abort_at = -1;
static CUresult launch(unsigned gx, unsigned bx, unsigned by, unsigned bz, unsigned shared, int per_thread) {
    if (abort_at < 0) abort_at = getenv("STUB_ABORT_AT") ? atol(getenv("STUB_ABORT_AT")) : 0;
    if (abort_at && stub_launches + 1 == abort_at) abort();
    if (bx * by * bz > 1024 || !gx) return 1;
    if (shared > 232448) return 1;
    stub_launches++;
    stub_per_thread += per_thread;
    return 0;
}
#define BOTH(SUFFIX, PER)                                                                                             \
    CUresult cuLaunchKernel##SUFFIX(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,             \
                                    unsigned bz, unsigned shared, H stream, void **arguments, void **extra) {         \
        if (arguments && *(long *)arguments[0] != 42) stub_wrong++;                                                   \
        if (extra && extra != (void **)77) stub_wrong++;                                                              \
        return launch(gx, bx, by, bz, shared, PER);                                                                   \
    }                                                                                                                 \
    CUresult cuLaunchCooperativeKernel##SUFFIX(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,  \
                                               unsigned bz, unsigned shared, H stream, void **arguments) {            \
        if (gx > 264) return 720;                                                                                     \
        return launch(gx, bx, by, bz, shared, PER);                                                                   \
    }                                                                                                                 \
    CUresult cuLaunchKernelEx##SUFFIX(const unsigned *config, H f, void **arguments, void **extra) {                  \
        return launch(config[0], config[3], config[4], config[5], config[6], PER);                                    \
    }                                                                                                                 \
    CUresult cuGraphLaunch##SUFFIX(H graph, H stream) { return 0; }                                                   \
    CUresult cuMemAllocAsync##SUFFIX(P *out, size_t size, H stream) {                                                 \
        if (!next_address) next_address = strtoull(getenv("STUB_BASE") ? getenv("STUB_BASE") : "0x7f0000000000", NULL, 0); \
        *out = next_address;                                                                                          \
        next_address += (size + 511) & ~511ull;                                                                       \
        return 0;                                                                                                     \
    }                                                                                                                 \
    CUresult cuMemFreeAsync##SUFFIX(P address, H stream) { return 0; }                                                \
    CUresult cuStreamBeginCapture_v2##SUFFIX(H stream, int mode) { capturing = 1; return 0; }                         \
    CUresult cuStreamEndCapture##SUFFIX(H stream, H *graph) { capturing = 0; *graph = &context; return 0; }           \
    CUresult cuStreamIsCapturing##SUFFIX(H stream, int *out) { *out = capturing; return 0; }                          \
    CUresult cuLaunchHostFunc##SUFFIX(H stream, void (*f)(void *), void *data) {                                      \
        if (capturing) stub_wrong++;                                                                                  \
        stub_host_functions++;                                                                                        \
        f(data);                                                                                                      \
        return 0;                                                                                                     \
    }
BOTH(, 0)
BOTH(_ptsz, 1)
CUresult cuMemAlloc_v2(P *out, size_t size) { return cuMemAllocAsync(out, size, 0); }
CUresult cuMemAlloc(unsigned *out, unsigned size) { *out = 1; return 0; }
CUresult cuMemFree_v2(P address) { return 0; }
CUresult cuMemMap(P a, size_t s, size_t o, P h, P f) { return 0; }
CUresult cuMemUnmap(P a, size_t s) { return 0; }

CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status);
CUresult cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
CUresult cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    char full[128];
    static void *self;
    if (!self) self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const char *v2 = "", *ptsz = "";
    if ((!strcmp(name, "cuMemAlloc") || !strcmp(name, "cuMemFree")) && version >= 3020) v2 = "_v2";
    if (!strcmp(name, "cuStreamBeginCapture") && version >= 10010) v2 = "_v2";
    if (!strcmp(name, "cuGetProcAddress") && version >= 12000) v2 = "_v2";
    snprintf(full, sizeof full, "%s%s_ptsz", name, v2);
    if (flags & 2 && dlsym(self, full)) ptsz = "_ptsz";
    snprintf(full, sizeof full, "%s%s%s", name, v2, ptsz);
    /* Of itself, as the driver does: not through the interposed global scope. */
    *out = dlsym(self, full);
    if (status) *status = *out ? 0 : 1;
    return *out ? 0 : 500;
}
