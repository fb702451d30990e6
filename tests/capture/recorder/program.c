/* A program that uses the driver in every way the recorder has to see.
 *   program LOOKUP ACTION [N]    LOOKUP: linked, global, dlsym, proc, proc-v1, proc-ptsz */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int R;
typedef void *H;
typedef unsigned long long P;
typedef unsigned U;
typedef R (*launch_t)(H, U, U, U, U, U, U, U, H, void **, void **);
typedef R (*cooperative_t)(H, U, U, U, U, U, U, U, H, void **);
typedef R (*get_t)(const char *, void **, int, uint64_t);
typedef R (*get2_t)(const char *, void **, int, uint64_t, int *);

struct attribute { int id; char pad[4]; U value[16]; };
struct config { U grid[3], block[3], shared; H stream; struct attribute *attributes; U n; };

static launch_t launch;
static cooperative_t cooperative;
static R (*launch_ex)(const struct config *, H, void **, void **);
static R (*graph_launch)(H, H);
static R (*begin_capture)(H, int);
static R (*end_capture)(H, H *);
static R (*allocate)(P *, size_t);
static R (*release)(P);
static R (*allocate_async)(P *, size_t, H);
static R (*get_function)(H *, H, const char *);
static R (*get_kernel)(H *, H, const char *);
static R (*load)(H *, const void *);
static H library;
static const char *lookup;

#ifdef LINKED
R cuLaunchKernel(H, U, U, U, U, U, U, U, H, void **, void **);
R cuLaunchCooperativeKernel(H, U, U, U, U, U, U, U, H, void **);
R cuLaunchKernelEx(const struct config *, H, void **, void **);
R cuGraphLaunch(H, H);
R cuStreamBeginCapture_v2(H, int);
R cuStreamEndCapture(H, H *);
R cuMemAlloc_v2(P *, size_t);
R cuMemFree_v2(P);
R cuMemAllocAsync(P *, size_t, H);
R cuModuleGetFunction(H *, H, const char *);
R cuLibraryGetKernel(H *, H, const char *);
R cuModuleLoadData(H *, const void *);
#define LINK(variable, name) variable = (void *)name
#else
#define LINK(variable, name) abort()
#endif

static void *find(const char *name, const char *base) {
    void *found = NULL;
    if (!strcmp(lookup, "global")) return dlsym(RTLD_DEFAULT, name);
    if (!strcmp(lookup, "dlsym")) return dlsym(library, name);
    if (!strcmp(lookup, "proc-v1")) {
        get_t get = (get_t)dlsym(library, "cuGetProcAddress");
        return get(base, &found, 11080, 0) ? NULL : found;
    }
    get2_t get = (get2_t)dlsym(library, "cuGetProcAddress_v2"), again = NULL;
    /* The runtime asks it for itself. */
    int status;
    if (get("cuGetProcAddress", (void **)&again, 12080, 0, &status)) return NULL;
    return again(base, &found, 12080, strcmp(lookup, "proc-ptsz") ? 0 : 2, &status) ? NULL : found;
}
#define FIND(variable, name, base)                                    \
    if (!strcmp(lookup, "linked")) { LINK(variable, name); }          \
    else if (!(variable = find(#name, base))) { fprintf(stderr, "no %s\n", #name); exit(3); }

static void setup(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(lookup, "global") ? 0 : RTLD_GLOBAL));
    if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(4); }
    FIND(launch, cuLaunchKernel, "cuLaunchKernel")
    FIND(cooperative, cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel")
    FIND(launch_ex, cuLaunchKernelEx, "cuLaunchKernelEx")
    FIND(graph_launch, cuGraphLaunch, "cuGraphLaunch")
    FIND(begin_capture, cuStreamBeginCapture_v2, "cuStreamBeginCapture")
    FIND(end_capture, cuStreamEndCapture, "cuStreamEndCapture")
    FIND(allocate, cuMemAlloc_v2, "cuMemAlloc")
    FIND(release, cuMemFree_v2, "cuMemFree")
    FIND(allocate_async, cuMemAllocAsync, "cuMemAllocAsync")
    FIND(get_function, cuModuleGetFunction, "cuModuleGetFunction")
    FIND(get_kernel, cuLibraryGetKernel, "cuLibraryGetKernel")
    FIND(load, cuModuleLoadData, "cuModuleLoadData")
}

static void *stub(const char *name) { return dlsym(library, name); }

static long answer = 42;
static void *arguments[] = {&answer};
static R one(H f) { return launch(f, 3, 2, 1, 64, 2, 1, 128, (H)16, arguments, (void **)77); }

static void __attribute__((noinline)) tour(void) {
    H module, f, k, graph;
    P a, b, c;
    load(&module, "new");
    get_function(&f, module, "_Z3addPfi");
    get_kernel(&k, module, "_Z3mulPfi");
    allocate(&a, 4096); /* ALLOCATES A */
    allocate(&b, 100);
    allocate_async(&c, 1 << 20, (H)32);
    release(b); /* FREES B */
    errno = 77;
    one(f); /* LAUNCH 1 */
    if (errno != 77) exit(5);
    one(k); /* LAUNCH 2 */
    cooperative(f, 132, 1, 1, 256, 1, 1, 0, 0, arguments); /* LAUNCH 3 */
    struct attribute attributes[2] = {{4, "", {2, 1, 1}}, {6, "", {1}}};
    struct config config = {{8, 1, 1}, {128, 1, 1}, 1024, (H)48, attributes, 2};
    launch_ex(&config, k, arguments, NULL); /* LAUNCH 4 */
    begin_capture((H)16, 0);
    one(f); /* CAPTURED */
    end_capture((H)16, &graph);
    graph_launch(graph, (H)16); /* GRAPH */
    one(((H(*)(int))stub("stub_hidden"))(0)); /* LAUNCH 5 */
    one(((H(*)(int))stub("stub_hidden"))(1)); /* LAUNCH 6 */
    /* REFUSED 1 */ if (launch(k, 1, 1, 1, 2048, 1, 1, 0, 0, arguments, NULL) != 1) exit(6);
    /* REFUSED 2 */ if (cooperative(f, 9999, 1, 1, 64, 1, 1, 0, 0, arguments) != 720) exit(7);
    /* REFUSED 3 */ if (load(&module, "old") != 209) exit(8);
    H none = NULL;
    /* PROBE */ if (get_function(&none, module, "missing") != 500 || none) exit(11);
    one(f); /* LAUNCH 7 */
}

static H the_function;
static volatile int handled;
static void handler(int number) { one(the_function); handled++; }
static void *many(void *count) {
    for (long i = 0; i < (long)count; i++) one(the_function);
    return NULL;
}
static void at_exit(void) { many((void *)1000); }

int main(int argc, char **argv) {
    lookup = argv[1];
    const char *action = argv[2];
    long n = argc > 3 ? atol(argv[3]) : 0;
    setup();
    if (!strcmp(action, "tour")) {
        tour();
    } else {
        get_function(&the_function, 0, "_Z3addPfi");
        if (!strcmp(action, "many")) {
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            many((void *)n);
            clock_gettime(CLOCK_MONOTONIC, &b);
            printf("%.1f ns\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
        } else if (!strcmp(action, "threads")) {
            pthread_t threads[8];
            for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, many, (void *)n);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
        } else if (!strcmp(action, "fork")) {
            one(the_function);
            pid_t child = fork();
            many((void *)(child ? 2L : 5L));
            if (!child) _exit(0);
            printf("%d %d\n", getpid(), child);
            waitpid(child, NULL, 0);
        } else if (!strcmp(action, "signal")) {
            signal(SIGALRM, handler);
            struct timespec stop, now;
            clock_gettime(CLOCK_MONOTONIC, &stop);
            do {
                ualarm(1 + rand() % 60, 0);
                many((void *)200);
                clock_gettime(CLOCK_MONOTONIC, &now);
            } while (now.tv_sec - stop.tv_sec < 2);
            if (handled < 100) exit(9);
        } else if (!strcmp(action, "exit")) {
            pthread_t thread;
            atexit(at_exit);
            pthread_create(&thread, NULL, many, (void *)(1L << 40));
            usleep(20000);
        } else if (!strcmp(action, "kill")) {
            pthread_t thread;
            pthread_create(&thread, NULL, many, (void *)(1L << 40));
            printf("%d\n", getpid());
            fflush(stdout);
            pause();
        } else if (!strcmp(action, "unload")) {
            for (long i = 0; i < n; i++) {
                one(the_function);
                dlclose(dlopen("libm.so.6", RTLD_NOW));
            }
        }
        if (!strcmp(action, "exit")) exit(0);
    }
    if (*(_Atomic long *)stub("stub_wrong")) return 10;
    printf("launches %ld per-thread %ld synchronized %ld host-functions %ld\n", *(long *)stub("stub_launches"),
           *(long *)stub("stub_per_thread"), *(long *)stub("stub_synchronized"), *(long *)stub("stub_host_functions"));
    return 0;
}
