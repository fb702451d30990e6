/* The native call stack of a launch, as module and offset.
 *
 * The unwinder of libgcc needs about 100 ns a frame, too much for every launch.  On x86-64 the size
 * of the frame at each return address is learnt from it once; later walks only read return
 * addresses, and each must be one that was learnt.  A walk counts only when it gives a stack that
 * the unwinder has given before; anything else is unwound anew, and sizes that vary (alloca,
 * realigned stacks) are marked when two unwindings differ. */
#ifndef CUWHY_STACK_NATIVE_H
#define CUWHY_STACK_NATIVE_H

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"

/* The two parts of the unwinding ABI that are needed (System V ABI; libgcc_s.so.1). */
typedef int (*unwind_step)(void *context, void *closure);
struct native_api {
    int (*backtrace)(unwind_step step, void *closure);
    uintptr_t (*ip)(void *context);
    uintptr_t (*cfa)(void *context);
    int (*find_object)(void *address, void *result);
    char program[1024];
};
static struct native_api native;

/* Where a hook was called from: its return address, and the stack pointer after the return. */
struct here {
    uintptr_t ip, sp;
};

/* One word per return address: address << 17 | frame size in words << 1 | last.  All ones in the size: varies. */
#define SIZES 8192u
#define SIZE_VARIES 0xFFFFu
static _Atomic uint64_t frame_sizes[SIZES];

#define TLS static __thread __attribute__((tls_model("initial-exec")))
TLS uintptr_t stack_bottom, stack_top;

static inline _Atomic uint64_t *size_slot(uintptr_t ip) {
    return &frame_sizes[mix(0, ip) & (SIZES - 1)];
}

static void learn_size(uintptr_t ip, uintptr_t bytes, int last) {
    _Atomic uint64_t *slot = size_slot(ip);
    uint64_t words = bytes % 8 || bytes / 8 >= SIZE_VARIES ? SIZE_VARIES : bytes / 8;
    uint64_t value = (uint64_t)ip << 17 | words << 1 | (uint64_t)last, old = atomic_load_explicit(slot, relaxed);
    if (ip >> 47) return;
    if (old >> 17 == ip && old != value) value = (uint64_t)ip << 17 | SIZE_VARIES << 1;
    atomic_store_explicit(slot, value, relaxed);
}

struct unwinding {
    uintptr_t from; /* stack pointer of the caller of the hook; frames below are ours */
    uintptr_t *ips;
    uint32_t count;
    uintptr_t last_ip, last_sp;
};

static int unwind_frame(void *context, void *closure) {
    struct unwinding *walk = closure;
    uintptr_t ip = native.ip(context), sp = native.cfa(context);
    if (sp < walk->from) return 0;
    /* A null address ends some chains: the frame before it is the last. */
    if (!ip) return 5;
    if (walk->last_ip) learn_size(walk->last_ip, sp - walk->last_sp, 0);
    if (walk->count == CUWHY_MAX_FRAMES) {
        walk->last_ip = 0;
        return 5; /* _URC_END_OF_STACK; any value but 0 stops */
    }
    walk->ips[walk->count++] = ip;
    walk->last_ip = ip;
    walk->last_sp = sp;
    return 0;
}

static uint32_t unwind(struct here here, uintptr_t *ips) {
    struct unwinding walk = {here.sp, ips, 0, 0, 0};
    if (!native.backtrace) return 0;
    native.backtrace(unwind_frame, &walk);
    if (walk.last_ip) learn_size(walk.last_ip, 0, 1);
    return walk.count;
}

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
static void find_stack_top(void) {
    static void *main_top;
    stack_top = 1;
    if (syscall(SYS_gettid) == getpid()) {
        /* Set by the dynamic linker; pthread_getattr_np would read /proc for the first thread. */
        void **end = main_top ? NULL : (void **)dlsym(RTLD_DEFAULT, "__libc_stack_end");
        if (end) main_top = *end;
        if (main_top) {
            stack_top = (uintptr_t)main_top;
            stack_bottom = stack_top - (64u << 20);
        }
        return;
    }
    pthread_attr_t attributes;
    void *base;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes)) return;
    if (!pthread_attr_getstack(&attributes, &base, &size)) {
        stack_bottom = (uintptr_t)base;
        stack_top = stack_bottom + size;
    }
    pthread_attr_destroy(&attributes);
}

/* Walk by learnt frame sizes; 0 when an address is unknown, or this is not the thread's own stack. */
static uint32_t walk_known(struct here here, uintptr_t *ips) {
    uintptr_t ip = here.ip, sp = here.sp;
    uint32_t count = 0;
    if (!stack_top) find_stack_top();
    /* Coroutines and signal handlers may run on other stacks. */
    if (sp >= stack_top || sp < stack_bottom) return 0;
    for (;;) {
        uint64_t known = atomic_load_explicit(size_slot(ip), relaxed);
        uint64_t words = known >> 1 & 0xFFFF;
        if (known >> 17 != ip || words == SIZE_VARIES) return 0;
        ips[count++] = ip;
        if (count == CUWHY_MAX_FRAMES || known & 1) return count;
        if (!words || words * 8 > stack_top - sp) return 0;
        sp += words * 8;
        ip = ((uintptr_t *)sp)[-1];
    }
}
#else
static uint32_t walk_known(struct here here, uintptr_t *ips) {
    (void)here;
    (void)ips;
    return 0;
}
#endif

/* Name a code address; lock-free where glibc has _dl_find_object (2.35). */
static struct frame_record name_native(struct log *log, uintptr_t ip) {
    struct frame_record frame = {0, 0, ip};
    /* The call, not where it returns to. */
    uintptr_t call = ip - 1;
    const char *name = NULL;
    struct link_map *map = NULL;
    if (native.find_object) {
        /* struct dl_find_object: flags, start, end, link map, ... */
        uintptr_t found[32] = {0};
        if (native.find_object((void *)call, found)) return frame;
        map = (struct link_map *)found[3];
    } else {
        Dl_info info;
        if (!dladdr1((void *)call, &info, (void **)&map, RTLD_DL_LINKMAP)) return frame;
    }
    if (!map) return frame;
    name = map->l_name && *map->l_name ? map->l_name : native.program;
    frame.value = call - map->l_addr;
    frame.file = intern_text(log, name, (uint32_t)strnlen(name, 1023));
    return frame;
}

/* Goes up when a library is unloaded: an address may then mean other code. */
static _Atomic uint64_t generation;

static void native_forget(void) {
    count_one(generation);
    for (uint32_t i = 0; i < SIZES; i++) atomic_store_explicit(&frame_sizes[i], 0, relaxed);
}

static uint64_t hash_native(const uintptr_t *ips, uint32_t count) {
    uint64_t hash = mix(STACK_NATIVE, atomic_load_explicit(&generation, relaxed));
    for (uint32_t i = 0; i < count; i++) hash = mix(hash, ips[i]);
    return hash;
}

static uint32_t native_stack(struct log *log, struct here here) {
    uintptr_t ips[CUWHY_MAX_FRAMES];
    uint32_t count = walk_known(here, ips);
    uint32_t id = count ? known_stack(hash_native(ips, count)) : 0;
    if (id || stacks_are_full(log)) return id;
    count = unwind(here, ips);
    if (!count) return 0;
    uint64_t hash = hash_native(ips, count);
    id = known_stack(hash);
    if (id) return id;
    struct frame_record frames[CUWHY_MAX_FRAMES];
    for (uint32_t i = 0; i < count; i++) frames[i] = name_native(log, ips[i]);
    return intern_stack(log, hash, STACK_NATIVE, frames, count);
}

static void native_start(void *(*find)(void *, const char *)) {
    void *library = native.backtrace ? NULL : dlopen("libgcc_s.so.1", RTLD_LAZY);
    if (library) {
        native.ip = (uintptr_t(*)(void *))find(library, "_Unwind_GetIP");
        native.cfa = (uintptr_t(*)(void *))find(library, "_Unwind_GetCFA");
        if (native.ip && native.cfa)
            native.backtrace = (int (*)(unwind_step, void *))find(library, "_Unwind_Backtrace");
    }
    native.find_object = (int (*)(void *, void *))find(RTLD_DEFAULT, "_dl_find_object");
    ssize_t length = readlink("/proc/self/exe", native.program, sizeof native.program - 1);
    native.program[length > 0 ? length : 0] = 0;
}

#endif
