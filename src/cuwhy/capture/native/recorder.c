/* The launch recorder: preloaded into a program, it writes down each launch and allocation of the
 * CUDA driver API before the driver gets it.  README.md says what is written and why so.
 *
 * Rules: what the program asked for is passed on unchanged; no lock is held while a call is passed on;
 * no wait without a bound; errno is the program's; whatever goes wrong costs the record, never the call.
 *
 * No CUDA header is needed: the few types are declared here (cuda.h, stable ABI). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "stack_native.h"
#include "stack_python.h"

#define EXPORT __attribute__((visibility("default")))
/* The function of a call: where the program called us from. */
#define HERE ((struct here){(uintptr_t)__builtin_return_address(0), (uintptr_t)__builtin_dwarf_cfa()})

/* ---- cuda.h ---------------------------------------------------------------------------------- */

typedef int CUresult;
typedef void *handle_t; /* CUfunction, CUkernel, CUstream, CUcontext, CUmodule, CUlibrary, CUgraphExec */
typedef unsigned long long address_t;

enum { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_FOUND = 500 };
enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_EARLY_START = 6 };
#define PER_THREAD_DEFAULT_STREAM 2u

struct launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        unsigned cluster[3];
        int flag;
    } value;
};

struct launch_config {
    unsigned grid[3], block[3], shared;
    handle_t stream;
    const struct launch_attribute *attributes;
    unsigned attribute_count;
};

_Static_assert(sizeof(struct launch_attribute) == 72, "CUlaunchAttribute");
_Static_assert(sizeof(struct launch_config) == 56, "CUlaunchConfig");

/* ---- the entry points ------------------------------------------------------------------------ */

/* exported name, base name, takes the thread's own default stream, since which CUDA version */
#define POINTS(POINT)                                                              \
    POINT(cuLaunchKernel, "cuLaunchKernel", 0, 4000)                               \
    POINT(cuLaunchKernel_ptsz, "cuLaunchKernel", 1, 7000)                          \
    POINT(cuLaunchKernelEx, "cuLaunchKernelEx", 0, 11060)                          \
    POINT(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 1, 11060)                     \
    POINT(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 0, 9000)         \
    POINT(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 1, 9000)    \
    POINT(cuGraphLaunch, "cuGraphLaunch", 0, 10000)                                \
    POINT(cuGraphLaunch_ptsz, "cuGraphLaunch", 1, 10000)                           \
    POINT(cuMemAlloc_v2, "cuMemAlloc", 0, 3020)                                    \
    POINT(cuMemAllocPitch_v2, "cuMemAllocPitch", 0, 3020)                          \
    POINT(cuMemAllocManaged, "cuMemAllocManaged", 0, 6000)                         \
    POINT(cuMemFree_v2, "cuMemFree", 0, 3020)                                      \
    POINT(cuMemAllocAsync, "cuMemAllocAsync", 0, 11020)                            \
    POINT(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 1, 11020)                       \
    POINT(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 0, 11020)            \
    POINT(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 1, 11020)       \
    POINT(cuMemFreeAsync, "cuMemFreeAsync", 0, 11020)                              \
    POINT(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 1, 11020)                         \
    POINT(cuMemMap, "cuMemMap", 0, 10020)                                          \
    POINT(cuMemUnmap, "cuMemUnmap", 0, 10020)                                      \
    POINT(cuModuleGetFunction, "cuModuleGetFunction", 0, 2000)                     \
    POINT(cuModuleLoadData, "cuModuleLoadData", 0, 2000)                           \
    POINT(cuModuleLoadDataEx, "cuModuleLoadDataEx", 0, 2010)                       \
    POINT(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 0, 2000)                 \
    POINT(cuLibraryLoadData, "cuLibraryLoadData", 0, 12000)                        \
    POINT(cuLibraryGetKernel, "cuLibraryGetKernel", 0, 12000)                      \
    POINT(cuKernelGetFunction, "cuKernelGetFunction", 0, 12000)                    \
    POINT(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 0, 10010)               \
    POINT(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 1, 10010)          \
    POINT(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 0, 12030)    \
    POINT(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 1, 12030) \
    POINT(cuStreamEndCapture, "cuStreamEndCapture", 0, 10000)                      \
    POINT(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 1, 10000)                 \
    POINT(cuCtxDestroy_v2, "cuCtxDestroy", 0, 4000)                                \
    POINT(cuGetProcAddress, "cuGetProcAddress", 0, 11030)                          \
    POINT(cuGetProcAddress_v2, "cuGetProcAddress", 0, 12000)

enum point {
#define NUMBER(name, base, per_thread, since) P_##name,
    POINTS(NUMBER) POINT_COUNT
#undef NUMBER
};

struct point_info {
    const char *name, *base;
    int per_thread, since;
};
static const struct point_info points[POINT_COUNT] = {
#define INFO(name, base, per_thread, since) {#name, base, per_thread, since},
    POINTS(INFO)
#undef INFO
};
static void *hook_of(enum point point);

static _Atomic(void *) reals[POINT_COUNT];

typedef void *(*dlsym_t)(void *, const char *);
static _Atomic(dlsym_t) real_dlsym;

static dlsym_t find_dlsym(void) {
    dlsym_t found = atomic_load_explicit(&real_dlsym, relaxed);
    if (found) return found;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"};
    for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        found = (dlsym_t)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    atomic_store_explicit(&real_dlsym, found, relaxed);
    return found;
}

/* The driver, where it is loaded already: we never bring it in. */
static void *driver(void) {
    static _Atomic(void *) handle;
    void *found = atomic_load_explicit(&handle, relaxed);
    if (found) return found;
    found = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (found) atomic_store_explicit(&handle, found, relaxed);
    return found;
}

/* A symbol of the driver itself, NULL when it has none. */
static void *in_driver(const char *name) {
    dlsym_t find = find_dlsym();
    void *library = driver();
    if (!find) return NULL;
    void *found = find(library ? library : RTLD_NEXT, name);
    if (!found) dlerror(); /* take our own failure away */
    return found;
}

static void *real(enum point point) {
    void *found = atomic_load_explicit(&reals[point], memory_order_acquire);
    if (found) return found;
    found = in_driver(points[point].name);
    if (found) atomic_store_explicit(&reals[point], found, memory_order_release);
    return found;
}

#define CALL(point, types, ...)                                          \
    (__extension__({                                                     \
        CUresult(*to) types = (CUresult(*) types)real(P_##point);        \
        to ? to(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;                     \
    }))
#define CALL_EITHER(per_thread, point, types, ...) \
    ((per_thread) ? CALL(point##_ptsz, types, __VA_ARGS__) : CALL(point, types, __VA_ARGS__))

/* What else is asked of the driver; each may be missing. */
static struct {
    CUresult (*current_context)(handle_t *);
    CUresult (*context_synchronize)(void);
    CUresult (*is_capturing[2])(handle_t, int *);
    CUresult (*host_function[2])(handle_t, void (*)(void *), void *);
    CUresult (*function_name)(const char **, handle_t);
    CUresult (*kernel_name)(const char **, handle_t);
    CUresult (*kernel_function)(handle_t *, handle_t);
    CUresult (*function_attribute)(int *, int, handle_t);
    CUresult (*device_attribute)(int *, int, int);
    CUresult (*context_device)(int *);
    CUresult (*blocks_per_sm)(int *, handle_t, int, size_t);
} ask;

/* ---- the log --------------------------------------------------------------------------------- */

#define LOG_FOLDER "CUWHY_RECORDER"
enum { LOG_CLOSED, LOG_OPENING, LOG_OPEN, LOG_NONE };
static _Atomic int log_state;
static _Atomic int log_opener; /* thread */
static struct log the_log;
static _Atomic int captures;   /* streams that are being captured */

TLS int own_thread;
TLS struct {
    uintptr_t handle;
    struct context *slot;
} last_context;

static int thread_id(void) {
    if (!own_thread) own_thread = (int)syscall(SYS_gettid);
    return own_thread;
}

/* Parts of the driver's handles that are known by name: handle -> function << 1 | it is a CUkernel. */
#define HANDLES 65536u
static struct cache_entry handles[HANDLES];

struct range {
    uint64_t first, last;
};
#define RANGES 16u
static struct {
    uint32_t syncs, delays;
    struct range sync[RANGES], delay[RANGES];
    uint64_t microseconds;
} control;

static uint32_t parse_ranges(const char *text, struct range *ranges, const char **end) {
    uint32_t count = 0;
    while (text && *text >= '0' && *text <= '9' && count < RANGES) {
        char *rest;
        ranges[count].first = ranges[count].last = strtoull(text, &rest, 10);
        if (*rest == '-') ranges[count].last = strtoull(rest + 1, &rest, 10);
        count++;
        text = rest;
        if (*text != ',') break;
        text++;
    }
    if (end) *end = text;
    return count;
}

static int in_ranges(const struct range *ranges, uint32_t count, uint64_t number) {
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].first <= number && number <= ranges[i].last) return 1;
    return 0;
}

static void read_control(void) {
    const char *rest = NULL;
    control.syncs = parse_ranges(getenv("CUWHY_RECORDER_SYNC"), control.sync, NULL);
    control.delays = parse_ranges(getenv("CUWHY_RECORDER_DELAY"), control.delay, &rest);
    if (rest && *rest == ':') control.microseconds = strtoull(rest + 1, NULL, 10);
    if (!control.microseconds) control.delays = 0;
    if (control.microseconds > 10000000) control.microseconds = 10000000;
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Space that is really there: a page that the disk cannot hold would be a SIGBUS on its first write. */
static int reserve(int file, uint64_t size) {
    struct rlimit limit;
    /* Beyond the limit comes a signal, not an error. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < size) return 0;
    return posix_fallocate(file, 0, (off_t)size) == 0;
}

static int map_log(const char *path, uint32_t scale) {
    static const uint32_t sizes[AREAS] = {
        sizeof(struct launch_record),   sizeof(struct memory_record), sizeof(struct refused_record),
        sizeof(struct function_record), sizeof(struct stack_record),  1,
    };
    const uint32_t counts[AREAS] = {
        16384 / scale, 32768 / scale, 64, 8192 / scale, 16384 / scale, (4u << 20) / scale,
    };
    uint64_t size = CUWHY_HEADER_SIZE, offsets[AREAS];
    for (int i = 0; i < AREAS; i++) {
        offsets[i] = size;
        size = (size + (uint64_t)sizes[i] * counts[i] + 4095) & ~(uint64_t)4095;
    }
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return 0;
    char *base = MAP_FAILED;
    if (reserve(file, size)) base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED) {
        unlink(path);
        return 0;
    }
    struct header *header = (struct header *)base;
    header->version = 1;
    header->header_size = CUWHY_HEADER_SIZE;
    header->pid = (uint32_t)getpid();
    header->realtime_ns = now(CLOCK_REALTIME);
    header->monotonic_ns = now(CLOCK_MONOTONIC);
    for (int i = 0; i < AREAS; i++) {
        header->areas[i] = (struct area){offsets[i], sizes[i], counts[i]};
        the_log.counts[i] = counts[i];
    }
    atomic_store(&header->text.value, 8); /* 0 says: no text */
    memcpy(header->magic, CUWHY_MAGIC, 8);
    the_log.header = header;
    the_log.launches = (struct launch_record *)(base + offsets[AREA_LAUNCHES]);
    the_log.memory = (struct memory_record *)(base + offsets[AREA_MEMORY]);
    the_log.refused = (struct refused_record *)(base + offsets[AREA_REFUSED]);
    the_log.functions = (struct function_record *)(base + offsets[AREA_FUNCTIONS]);
    the_log.stacks = (struct stack_record *)(base + offsets[AREA_STACKS]);
    the_log.text = base + offsets[AREA_TEXT];
    the_log.size = size;
    return 1;
}

static void after_fork_in_child(void) {
    /* The file is the parent's. */
    if (atomic_load(&log_state) == LOG_OPEN) munmap(the_log.header, the_log.size);
    memset(&the_log, 0, sizeof the_log);
    memset(string_cache, 0, sizeof string_cache);
    memset(stack_cache, 0, sizeof stack_cache);
    memset(handles, 0, sizeof handles);
    memset(&last_context, 0, sizeof last_context);
    own_thread = 0;
    atomic_store(&captures, 0);
    atomic_store(&log_state, LOG_CLOSED);
}

static int open_log(void) {
    const char *folder = getenv(LOG_FOLDER);
    char path[PATH_MAX];
    dlsym_t find = find_dlsym();
    if (!folder || !find) return 0;
    static int watched;
    if (!watched && !pthread_atfork(NULL, NULL, after_fork_in_child)) watched = 1;
    if (!watched) return 0;
    if (snprintf(path, sizeof path, "%s/launches.%d.bin", folder, (int)getpid()) >= (int)sizeof path) return 0;
    /* A process that execs itself again has its pid already taken. */
    for (int again = 2; access(path, F_OK) == 0 && again < 100; again++)
        if (snprintf(path, sizeof path, "%s/launches.%d-%d.bin", folder, (int)getpid(), again) >= (int)sizeof path)
            return 0;
    if (!map_log(path, 1) && !map_log(path, 8)) return 0;
    read_control();
    native_start(find);
    python_start(find);
#define ASK(field, name) *(void **)(void *)&ask.field = in_driver(name)
    ASK(current_context, "cuCtxGetCurrent");
    ASK(context_synchronize, "cuCtxSynchronize");
    ASK(is_capturing[0], "cuStreamIsCapturing");
    ASK(is_capturing[1], "cuStreamIsCapturing_ptsz");
    ASK(host_function[0], "cuLaunchHostFunc");
    ASK(host_function[1], "cuLaunchHostFunc_ptsz");
    ASK(function_name, "cuFuncGetName");
    ASK(kernel_name, "cuKernelGetName");
    ASK(kernel_function, "cuKernelGetFunction");
    ASK(function_attribute, "cuFuncGetAttribute");
    ASK(device_attribute, "cuDeviceGetAttribute");
    ASK(context_device, "cuCtxGetDevice");
    ASK(blocks_per_sm, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
#undef ASK
    return 1;
}

/* The log, opened at the first use of the driver; NULL where there is none. */
static struct log *recorder(void) {
    int state = atomic_load_explicit(&log_state, memory_order_acquire);
    if (state == LOG_OPEN) return &the_log;
    if (state == LOG_NONE) return NULL;
    int saved = errno;
    if (state == LOG_CLOSED && atomic_compare_exchange_strong(&log_state, &state, LOG_OPENING)) {
        atomic_store(&log_opener, thread_id());
        state = open_log() ? LOG_OPEN : LOG_NONE;
        atomic_store_explicit(&log_state, state, memory_order_release);
    } else {
        /* A signal handler in the opener must not wait for it; others wait a second at most, as the opener may
         * need a lock of the dynamic linker that this thread holds. */
        for (int i = 0; i < 1000 && atomic_load(&log_opener) != thread_id(); i++) {
            state = atomic_load_explicit(&log_state, memory_order_acquire);
            if (state != LOG_OPENING) break;
            usleep(1000);
        }
    }
    errno = saved;
    return state == LOG_OPEN ? &the_log : NULL;
}

static uint32_t stack_id(struct log *log, struct here here) {
    uint32_t id = python_stack(log);
    return id ? id : native_stack(log, here);
}

static struct context *context_slot(struct log *log, uintptr_t handle) {
    if (last_context.slot && last_context.handle == handle) return last_context.slot;
    struct context *contexts = log->header->contexts;
    for (uint32_t i = 0; i < CUWHY_CONTEXTS; i++) {
        uint64_t old = atomic_load(&contexts[i].handle);
        if (!old && atomic_compare_exchange_strong(&contexts[i].handle, &old, handle)) old = handle;
        if (old == handle) {
            last_context.handle = handle;
            last_context.slot = &contexts[i];
            return &contexts[i];
        }
    }
    return NULL;
}

static uintptr_t current_context(void) {
    handle_t context = NULL;
    if (!ask.current_context || ask.current_context(&context)) return 0;
    return (uintptr_t)context;
}

/* ---- names of functions ---------------------------------------------------------------------- */

static void remember_name(handle_t handle, const char *name, int is_kernel) {
    struct log *log = recorder();
    if (!log || !handle || !name) return;
    uint32_t id = intern_function(log, name, (uint32_t)strnlen(name, 4095));
    uint64_t key = (uint64_t)(uintptr_t)handle, value = (uint64_t)id << 1 | (uint64_t)is_kernel;
    for (uint32_t probe = 0; id && probe < PROBES; probe++) {
        struct cache_entry *entry = &handles[(mix(0, key) + probe) & (HANDLES - 1)];
        uint64_t old = 0;
        if (atomic_compare_exchange_strong(&entry->key, &old, key) || old == key) {
            /* A module that was unloaded may have had the same address. */
            atomic_store_explicit(&entry->value, value, memory_order_release);
            return;
        }
    }
    count_one(log->header->lost.handles);
}

/* function << 1 | it is a CUkernel; 0 when the handle is unknown. */
static uint64_t known_handle(handle_t handle) {
    uint64_t key = (uint64_t)(uintptr_t)handle;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        struct cache_entry *entry = &handles[(mix(0, key) + probe) & (HANDLES - 1)];
        uint64_t found = atomic_load_explicit(&entry->key, relaxed);
        if (found == key) return atomic_load_explicit(&entry->value, memory_order_acquire);
        if (!found) return 0;
    }
    return 0;
}

static uint32_t function_id(handle_t handle) {
    uint64_t known = known_handle(handle);
    if (known || !handle) return (uint32_t)(known >> 1);
    /* Got in a way that we do not see.  The name is the driver's and stays. */
    const char *name = NULL;
    if (ask.function_name && !ask.function_name(&name, handle) && name) {
        remember_name(handle, name, 0);
    } else if (ask.kernel_name && !ask.kernel_name(&name, handle) && name) {
        remember_name(handle, name, 1);
    }
    return (uint32_t)(known_handle(handle) >> 1);
}

/* ---- launches -------------------------------------------------------------------------------- */

struct request {
    handle_t function, stream;
    uint32_t grid[3], block[3], cluster[3], shared;
    uint8_t kind, flags;
};

struct pending {
    struct log *log;
    struct context *context;
    uint64_t index, number;
    struct launch_record *record; /* NULL: it could not be had */
    struct launch_record copy;
};

static void sleep_in_stream(void *closure) {
    uint64_t end = now(CLOCK_MONOTONIC) + (uint64_t)(uintptr_t)closure * 1000u;
    struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* Force an order, or a lateness, where a controlled rerun asks for it. */
static uint8_t apply_control(const struct request *request, uint64_t number) {
    uint8_t done = 0;
    /* Either call would spoil a capture, be it of another stream. */
    if (atomic_load_explicit(&captures, relaxed) > 0) return 0;
    if (in_ranges(control.sync, control.syncs, number) && ask.context_synchronize &&
        !ask.context_synchronize())
        done |= FLAG_SYNCED;
    if (in_ranges(control.delay, control.delays, number)) {
        int per_thread = (request->flags & FLAG_PER_THREAD) != 0;
        CUresult (*put)(handle_t, void (*)(void *), void *) = ask.host_function[per_thread];
        if (put && !put(request->stream, sleep_in_stream, (void *)(uintptr_t)control.microseconds))
            done |= FLAG_DELAYED;
    }
    return done;
}

static void write_record(struct pending *pending, int finished) {
    struct launch_record *record = pending->record;
    memcpy((char *)record + 8, (const char *)&pending->copy + 8, sizeof *record - 8);
    publish(&record->seq, pending->index, finished);
}

static void begin_launch(struct pending *pending, struct request *request, struct here here) {
    struct log *log = pending->log = recorder();
    if (!log) return;
    int saved = errno;
    uintptr_t context = current_context();
    pending->context = context_slot(log, context);
    if (atomic_load_explicit(&captures, relaxed) > 0) {
        int status = 0, per_thread = (request->flags & FLAG_PER_THREAD) != 0;
        if (ask.is_capturing[per_thread] && !ask.is_capturing[per_thread](request->stream, &status) && status)
            request->flags |= FLAG_CAPTURED;
    }
    pending->number = 0;
    if (pending->context && !(request->flags & FLAG_CAPTURED) && request->kind != KIND_LOAD) {
        if (request->kind == KIND_GRAPH)
            count_one(pending->context->graphs);
        else
            pending->number = count_one(pending->context->launches) + 1;
    }
    if (pending->number && control.syncs + control.delays) request->flags |= apply_control(request, pending->number);

    struct launch_record *copy = &pending->copy;
    memset(copy, 0, sizeof *copy);
    copy->number = pending->number;
    copy->handle = (uint64_t)(uintptr_t)request->function;
    copy->stream = (uint64_t)(uintptr_t)request->stream;
    copy->context = context;
    copy->time_ns = now(CLOCK_MONOTONIC);
    if (request->kind == KIND_KERNEL || request->kind == KIND_COOPERATIVE)
        copy->function = function_id(request->function);
    copy->stack = stack_id(log, here);
    memcpy(copy->grid, request->grid, sizeof copy->grid);
    memcpy(copy->block, request->block, sizeof copy->block);
    memcpy(copy->cluster, request->cluster, sizeof copy->cluster);
    copy->dynamic_shared = request->shared;
    copy->thread = (uint32_t)thread_id();
    copy->code = CUWHY_UNKNOWN;
    copy->kind = request->kind;
    copy->flags = request->flags;

    pending->index = count_one(log->header->launches.value);
    pending->record = &log->launches[pending->index & (log->counts[AREA_LAUNCHES] - 1)];
    if (claim(&pending->record->seq, pending->index)) {
        write_record(pending, 0);
    } else {
        pending->record = NULL;
        count_one(log->header->lost.records);
    }
    errno = saved;
}

/* An error of an earlier kernel that every later call reports again says nothing about this launch. */
static int is_refusal(CUresult code) {
    switch (code) {
    case 4: case 700: case 702: case 710: case 714: case 715: case 716: case 717: case 718: case 719: case 999:
        return 0;
    default:
        return code != 0;
    }
}

static void read_limits(const struct request *request, int32_t *values) {
    /* CUfunction_attribute, then CUdevice_attribute; the order of the log. */
    static const int of_function[] = {0, 1, 3, 4, 5, 6, 8};
    static const int of_device[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 75, 76, 95, 97, 81};
    uint32_t n = 0;
    /* A graph is no function, and of a handle that has no name nobody knows what it is. */
    int is_function = request->kind == KIND_KERNEL || request->kind == KIND_COOPERATIVE;
    handle_t function = is_function && known_handle(request->function) ? request->function : NULL, of_kernel = NULL;
    for (uint32_t i = 0; i < CUWHY_LIMITS; i++) values[i] = CUWHY_UNKNOWN;
    if (function && (known_handle(function) & 1) && ask.kernel_function &&
        !ask.kernel_function(&of_kernel, function))
        function = of_kernel;
    for (uint32_t i = 0; i < sizeof of_function / sizeof *of_function; i++, n++)
        if (!function || !ask.function_attribute || ask.function_attribute(&values[n], of_function[i], function))
            values[n] = CUWHY_UNKNOWN;
    int device = 0, known = ask.context_device && !ask.context_device(&device);
    for (uint32_t i = 0; i < sizeof of_device / sizeof *of_device; i++, n++)
        if (!known || !ask.device_attribute || ask.device_attribute(&values[n], of_device[i], device))
            values[n] = CUWHY_UNKNOWN;
    uint64_t threads = (uint64_t)request->block[0] * request->block[1] * request->block[2];
    if (!function || !ask.blocks_per_sm || !threads || threads > 1024 ||
        ask.blocks_per_sm(&values[n], function, (int)threads, request->shared))
        values[n] = CUWHY_UNKNOWN;
}

static void keep_refusal(struct pending *pending, const struct request *request) {
    struct log *log = pending->log;
    struct counter *counter = &log->header->refused;
    if (atomic_load_explicit(&counter->value, relaxed) >= log->counts[AREA_REFUSED]) return;
    uint64_t index = count_one(counter->value);
    if (index >= log->counts[AREA_REFUSED]) return;
    struct refused_record *refused = &log->refused[index];
    memcpy((char *)&refused->launch + 8, (const char *)&pending->copy + 8, sizeof pending->copy - 8);
    read_limits(request, refused->values);
    publish(&refused->launch.seq, pending->index, 1);
}

static void end_launch(struct pending *pending, const struct request *request, CUresult code) {
    struct log *log = pending->log;
    if (!log) return;
    int saved = errno;
    pending->copy.code = code;
    if (code && pending->number) {
        /* The driver has not counted it; where another thread has launched meanwhile, the gap stays. */
        uint64_t expected = pending->number;
        if (atomic_compare_exchange_strong(&pending->context->launches, &expected, expected - 1))
            pending->copy.number = 0;
    }
    if (pending->record && reclaim(&pending->record->seq, pending->index)) write_record(pending, 1);
    /* Looking whether a function exists is no failure; the ring has it. */
    int is_probe = request->kind == KIND_LOAD && code == CUDA_ERROR_NOT_FOUND;
    if (is_refusal(code) && !is_probe) keep_refusal(pending, request);
    errno = saved;
}

#define LAUNCH(request, call)                       \
    struct pending pending;                         \
    begin_launch(&pending, &request, HERE);         \
    CUresult code = call;                           \
    end_launch(&pending, &request, code);           \
    return code

#define KERNEL_TYPES                                                                                     \
    (handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle_t, void **, void **)
#define KERNEL_HOOK(name, per_thread)                                                                    \
    EXPORT CUresult name(handle_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                         unsigned bz, unsigned shared, handle_t stream, void **arguments, void **extra) { \
        struct request request = {f, stream, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, KIND_KERNEL, \
                                  per_thread ? FLAG_PER_THREAD : 0};                                     \
        LAUNCH(request, CALL(name, KERNEL_TYPES, f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra)); \
    }
KERNEL_HOOK(cuLaunchKernel, 0)
KERNEL_HOOK(cuLaunchKernel_ptsz, 1)

#define COOPERATIVE_TYPES                                                                                \
    (handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle_t, void **)
#define COOPERATIVE_HOOK(name, per_thread)                                                               \
    EXPORT CUresult name(handle_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
                         unsigned bz, unsigned shared, handle_t stream, void **arguments) {              \
        struct request request = {f, stream, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared,              \
                                  KIND_COOPERATIVE, per_thread ? FLAG_PER_THREAD : 0};                   \
        LAUNCH(request, CALL(name, COOPERATIVE_TYPES, f, gx, gy, gz, bx, by, bz, shared, stream, arguments)); \
    }
COOPERATIVE_HOOK(cuLaunchCooperativeKernel, 0)
COOPERATIVE_HOOK(cuLaunchCooperativeKernel_ptsz, 1)

static void read_config(struct request *request, const struct launch_config *config) {
    if (!config) return;
    memcpy(request->grid, config->grid, sizeof request->grid);
    memcpy(request->block, config->block, sizeof request->block);
    request->shared = config->shared;
    request->stream = config->stream;
    for (unsigned i = 0; config->attributes && i < config->attribute_count && i < 64; i++) {
        const struct launch_attribute *attribute = &config->attributes[i];
        if (attribute->id == ATTRIBUTE_CLUSTER)
            memcpy(request->cluster, attribute->value.cluster, sizeof request->cluster);
        if (attribute->id == ATTRIBUTE_COOPERATIVE && attribute->value.flag) request->kind = KIND_COOPERATIVE;
        if (attribute->id == ATTRIBUTE_EARLY_START && attribute->value.flag) request->flags |= FLAG_EARLY_START;
    }
}

#define EX_TYPES (const struct launch_config *, handle_t, void **, void **)
#define EX_HOOK(name, per_thread)                                                                        \
    EXPORT CUresult name(const struct launch_config *config, handle_t f, void **arguments, void **extra) { \
        struct request request = {.function = f, .kind = KIND_KERNEL,                                    \
                                  .flags = per_thread ? FLAG_PER_THREAD : 0};                            \
        read_config(&request, config);                                                                   \
        LAUNCH(request, CALL(name, EX_TYPES, config, f, arguments, extra));                              \
    }
EX_HOOK(cuLaunchKernelEx, 0)
EX_HOOK(cuLaunchKernelEx_ptsz, 1)

#define GRAPH_HOOK(name, per_thread)                                                                     \
    EXPORT CUresult name(handle_t graph, handle_t stream) {                                              \
        struct request request = {.function = graph, .stream = stream, .kind = KIND_GRAPH,               \
                                  .flags = per_thread ? FLAG_PER_THREAD : 0};                            \
        LAUNCH(request, CALL(name, (handle_t, handle_t), graph, stream));                                \
    }
GRAPH_HOOK(cuGraphLaunch, 0)
GRAPH_HOOK(cuGraphLaunch_ptsz, 1)

/* ---- loading code: only what fails is written down ------------------------------------------- */

static CUresult loaded(const char *api, CUresult code, struct here here) {
    if (!is_refusal(code)) return code;
    struct request request = {.kind = KIND_LOAD};
    struct pending pending;
    begin_launch(&pending, &request, here);
    if (pending.log) {
        pending.copy.function = intern_function(pending.log, api, (uint32_t)strlen(api));
        end_launch(&pending, &request, code);
    }
    return code;
}

EXPORT CUresult cuModuleLoadData(handle_t *module, const void *image) {
    CUresult code = CALL(cuModuleLoadData, (handle_t *, const void *), module, image);
    return loaded("cuModuleLoadData", code, HERE);
}
EXPORT CUresult cuModuleLoadDataEx(handle_t *module, const void *image, unsigned n, int *options, void **values) {
    CUresult code = CALL(cuModuleLoadDataEx, (handle_t *, const void *, unsigned, int *, void **), module, image, n,
                         options, values);
    return loaded("cuModuleLoadDataEx", code, HERE);
}
EXPORT CUresult cuModuleLoadFatBinary(handle_t *module, const void *image) {
    CUresult code = CALL(cuModuleLoadFatBinary, (handle_t *, const void *), module, image);
    return loaded("cuModuleLoadFatBinary", code, HERE);
}
EXPORT CUresult cuLibraryLoadData(handle_t *library, const void *image, int *jit, void **jit_values, unsigned jit_n,
                                  int *options, void **values, unsigned n) {
    CUresult code = CALL(cuLibraryLoadData,
                         (handle_t *, const void *, int *, void **, unsigned, int *, void **, unsigned), library,
                         image, jit, jit_values, jit_n, options, values, n);
    return loaded("cuLibraryLoadData", code, HERE);
}
EXPORT CUresult cuModuleGetFunction(handle_t *function, handle_t module, const char *name) {
    CUresult code = CALL(cuModuleGetFunction, (handle_t *, handle_t, const char *), function, module, name);
    if (!code && function) remember_name(*function, name, 0);
    return loaded("cuModuleGetFunction", code, HERE);
}
EXPORT CUresult cuLibraryGetKernel(handle_t *kernel, handle_t library, const char *name) {
    CUresult code = CALL(cuLibraryGetKernel, (handle_t *, handle_t, const char *), kernel, library, name);
    if (!code && kernel) remember_name(*kernel, name, 1);
    return loaded("cuLibraryGetKernel", code, HERE);
}
EXPORT CUresult cuKernelGetFunction(handle_t *function, handle_t kernel) {
    CUresult code = CALL(cuKernelGetFunction, (handle_t *, handle_t), function, kernel);
    struct log *log = code || !function ? NULL : recorder();
    uint64_t known = log ? known_handle(kernel) : 0;
    if (known) {
        uint32_t at = log->functions[(known >> 1) - 1].name, length = 0;
        char name[4096];
        if (at) memcpy(&length, log->text + at, 4);
        if (length && length < sizeof name) {
            memcpy(name, log->text + at + 4, length);
            name[length] = 0;
            remember_name(*function, name, 0);
        }
    }
    return loaded("cuKernelGetFunction", code, HERE);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void remember_memory(uint8_t kind, uint64_t address, uint64_t size, handle_t stream, struct here here) {
    struct log *log = address ? recorder() : NULL;
    if (!log) return;
    int saved = errno;
    uint32_t stack = stack_id(log, here);
    uint64_t index = count_one(log->header->memory.value);
    struct memory_record *record = &log->memory[index & (log->counts[AREA_MEMORY] - 1)];
    if (claim(&record->seq, index)) {
        record->address = address;
        record->size = size;
        record->stream = (uint64_t)(uintptr_t)stream;
        record->context = current_context();
        record->time_ns = now(CLOCK_MONOTONIC);
        record->thread = (uint32_t)thread_id();
        record->stack = stack;
        record->code = 0;
        record->kind = kind;
        publish(&record->seq, index, 1);
    } else {
        count_one(log->header->lost.records);
    }
    errno = saved;
}

EXPORT CUresult cuMemAlloc_v2(address_t *address, size_t size) {
    CUresult code = CALL(cuMemAlloc_v2, (address_t *, size_t), address, size);
    if (!code) remember_memory(EVENT_ALLOC, *address, size, NULL, HERE);
    return code;
}
EXPORT CUresult cuMemAllocPitch_v2(address_t *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    CUresult code = CALL(cuMemAllocPitch_v2, (address_t *, size_t *, size_t, size_t, unsigned), address, pitch, width,
                         height, element);
    if (!code) remember_memory(EVENT_ALLOC, *address, *pitch * height, NULL, HERE);
    return code;
}
EXPORT CUresult cuMemAllocManaged(address_t *address, size_t size, unsigned flags) {
    CUresult code = CALL(cuMemAllocManaged, (address_t *, size_t, unsigned), address, size, flags);
    if (!code) remember_memory(EVENT_ALLOC, *address, size, NULL, HERE);
    return code;
}
/* Before the call: afterwards another thread may have got the address already. */
EXPORT CUresult cuMemFree_v2(address_t address) {
    remember_memory(EVENT_FREE, address, 0, NULL, HERE);
    return CALL(cuMemFree_v2, (address_t), address);
}

#define ASYNC_HOOKS(suffix)                                                                              \
    EXPORT CUresult cuMemAllocAsync##suffix(address_t *address, size_t size, handle_t stream) {          \
        CUresult code = CALL(cuMemAllocAsync##suffix, (address_t *, size_t, handle_t), address, size, stream); \
        if (!code) remember_memory(EVENT_ALLOC, *address, size, stream, HERE);                           \
        return code;                                                                                     \
    }                                                                                                    \
    EXPORT CUresult cuMemAllocFromPoolAsync##suffix(address_t *address, size_t size, handle_t pool,      \
                                                    handle_t stream) {                                   \
        CUresult code = CALL(cuMemAllocFromPoolAsync##suffix, (address_t *, size_t, handle_t, handle_t), \
                             address, size, pool, stream);                                               \
        if (!code) remember_memory(EVENT_ALLOC, *address, size, stream, HERE);                           \
        return code;                                                                                     \
    }                                                                                                    \
    EXPORT CUresult cuMemFreeAsync##suffix(address_t address, handle_t stream) {                         \
        remember_memory(EVENT_FREE, address, 0, stream, HERE);                                           \
        return CALL(cuMemFreeAsync##suffix, (address_t, handle_t), address, stream);                     \
    }
ASYNC_HOOKS()
ASYNC_HOOKS(_ptsz)

EXPORT CUresult cuMemMap(address_t address, size_t size, size_t offset, address_t handle, address_t flags) {
    CUresult code = CALL(cuMemMap, (address_t, size_t, size_t, address_t, address_t), address, size, offset, handle,
                         flags);
    if (!code) remember_memory(EVENT_MAP, address, size, NULL, HERE);
    return code;
}
EXPORT CUresult cuMemUnmap(address_t address, size_t size) {
    remember_memory(EVENT_UNMAP, address, size, NULL, HERE);
    return CALL(cuMemUnmap, (address_t, size_t), address, size);
}

/* ---- captures and contexts ------------------------------------------------------------------- */

#define CAPTURE_HOOKS(suffix)                                                                            \
    EXPORT CUresult cuStreamBeginCapture_v2##suffix(handle_t stream, int mode) {                         \
        /* Counted before it begins, so that no launch falls between. */                                 \
        atomic_fetch_add(&captures, 1);                                                                  \
        CUresult code = CALL(cuStreamBeginCapture_v2##suffix, (handle_t, int), stream, mode);            \
        if (code) atomic_fetch_sub(&captures, 1);                                                        \
        return code;                                                                                     \
    }                                                                                                    \
    EXPORT CUresult cuStreamBeginCaptureToGraph##suffix(handle_t stream, handle_t graph, const handle_t *nodes, \
                                                        const void *edges, size_t n, int mode) {         \
        atomic_fetch_add(&captures, 1);                                                                  \
        CUresult code = CALL(cuStreamBeginCaptureToGraph##suffix,                                        \
                             (handle_t, handle_t, const handle_t *, const void *, size_t, int), stream, graph, \
                             nodes, edges, n, mode);                                                     \
        if (code) atomic_fetch_sub(&captures, 1);                                                        \
        return code;                                                                                     \
    }                                                                                                    \
    EXPORT CUresult cuStreamEndCapture##suffix(handle_t stream, handle_t *graph) {                       \
        CUresult code = CALL(cuStreamEndCapture##suffix, (handle_t, handle_t *), stream, graph);         \
        int open = atomic_load(&captures);                                                               \
        /* 401: this stream was not being captured. */                                                   \
        while (code != 401 && open > 0 && !atomic_compare_exchange_weak(&captures, &open, open - 1)) {   \
        }                                                                                                \
        return code;                                                                                     \
    }
CAPTURE_HOOKS()
CAPTURE_HOOKS(_ptsz)

EXPORT CUresult cuCtxDestroy_v2(handle_t context) {
    CUresult code = CALL(cuCtxDestroy_v2, (handle_t), context);
    struct log *log = code || atomic_load(&log_state) != LOG_OPEN ? NULL : &the_log;
    for (uint32_t i = 0; log && i < CUWHY_CONTEXTS; i++)
        /* The next context at this address counts from one. */
        if (atomic_load(&log->header->contexts[i].handle) == (uintptr_t)context)
            atomic_store(&log->header->contexts[i].launches, 0);
    return code;
}

/* ---- lookups --------------------------------------------------------------------------------- */

static int is_ours(const char *name) {
    if (!name || name[0] != 'c' || name[1] != 'u') return -1;
    for (int i = 0; i < POINT_COUNT; i++)
        if (!strcmp(points[i].name, name)) return i;
    return -1;
}

/* The entry point that cuGetProcAddress gives for a name, a version and flags; -1: none of ours. */
static int chosen(const char *name, int version, uint64_t flags) {
    if (!name || name[0] != 'c' || name[1] != 'u') return -1;
    int best = -1, exact = -1, own_stream = 0;
    for (int i = 0; i < POINT_COUNT; i++) {
        if (!strcmp(points[i].name, name)) exact = i;
        if (strcmp(points[i].base, name)) continue;
        /* The thread's own default stream where asked for and there is one. */
        int wanted = points[i].per_thread && (flags & PER_THREAD_DEFAULT_STREAM);
        if (points[i].per_thread && !wanted) continue;
        if (points[i].since > version) continue;
        if (best < 0 || wanted > own_stream || points[i].since > points[best].since) {
            best = i;
            own_stream = wanted;
        }
    }
    return best >= 0 ? best : exact;
}

static void replace(const char *name, int version, uint64_t flags, void **address) {
    int point = address && *address ? chosen(name, version, flags) : -1;
    if (point < 0 || *address == hook_of((enum point)point)) return;
    void *none = NULL;
    atomic_compare_exchange_strong(&reals[point], &none, *address);
    *address = hook_of((enum point)point);
}

EXPORT CUresult cuGetProcAddress(const char *name, void **address, int version, uint64_t flags) {
    CUresult code = CALL(cuGetProcAddress, (const char *, void **, int, uint64_t), name, address, version, flags);
    if (!code) replace(name, version, flags, address);
    return code;
}
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
    CUresult code = CALL(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *), name, address, version,
                         flags, status);
    if (!code) replace(name, version, flags, address);
    return code;
}

static void *hook_of(enum point point) {
    static void *const hooks[POINT_COUNT] = {
#define ADDRESS(name, base, per_thread, since) (void *)name,
        POINTS(ADDRESS)
#undef ADDRESS
    };
    return hooks[point];
}

/* What a lookup of one of our names has to give; 0: what it would have given without us. */
static int redirect(void *library, const char *name, int point, void **result) {
    dlsym_t find = find_dlsym();
    void *hook = hook_of((enum point)point), *found = find(library == RTLD_NEXT ? RTLD_DEFAULT : library, name);
    Dl_info info;
    if (!found) return 0;
    if (found == hook) {
        /* Found in the global scope, where we stand first: is the driver there at all? */
        *result = real((enum point)point) ? hook : find(RTLD_NEXT, name);
        return 1;
    }
    const char *base = dladdr(found, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    base = base ? base + 1 : "";
    /* A shim that somebody else has put before the driver is left to its own; what it looks up is ours again. */
    if (strncmp(base, "libcuda.so", 10)) return 0;
    void *none = NULL;
    atomic_compare_exchange_strong(&reals[point], &none, found);
    *result = hook;
    return 1;
}

/* The last statement is a jump (checked by a test): RTLD_NEXT and RTLD_DEFAULT depend on who calls. */
EXPORT __attribute__((optimize("O2"))) void *dlsym(void *restrict library, const char *restrict name) {
    int point = is_ours(name);
    if (__builtin_expect(point >= 0, 0)) {
        void *result;
        if (redirect(library, name, point, &result)) return result;
    }
    dlsym_t find = find_dlsym();
    if (__builtin_expect(!find, 0)) return NULL;
    return find(library, name);
}

EXPORT int dlclose(void *library) {
    static _Atomic(int (*)(void *)) next;
    int (*close_it)(void *) = atomic_load_explicit(&next, relaxed);
    if (!close_it) {
        dlsym_t find = find_dlsym();
        close_it = find ? (int (*)(void *))find(RTLD_NEXT, "dlclose") : NULL;
        atomic_store_explicit(&next, close_it, relaxed);
    }
    int code = close_it ? close_it(library) : -1;
    if (!code && atomic_load(&log_state) == LOG_OPEN) native_forget();
    return code;
}
