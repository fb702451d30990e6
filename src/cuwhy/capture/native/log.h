/* The launch log: a file that is mapped shared, so that what stands in it outlives abort and SIGKILL.
 *
 * README.md describes the format.  Everything here is lock-free: a thread that is stopped at any
 * instruction, by a signal handler for instance, holds up nobody and leaves nothing half said. */
#ifndef CUWHY_LOG_H
#define CUWHY_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#define CUWHY_MAGIC "CUWHYLL1"
#define CUWHY_HEADER_SIZE 4096u
#define CUWHY_CONTEXTS 64u
#define CUWHY_LIMITS 24u
#define CUWHY_UNKNOWN INT32_MIN
#define CUWHY_MAX_FRAMES 12u

enum { AREA_LAUNCHES, AREA_MEMORY, AREA_REFUSED, AREA_FUNCTIONS, AREA_STACKS, AREA_TEXT, AREAS };

enum { KIND_KERNEL = 1, KIND_COOPERATIVE, KIND_GRAPH, KIND_LOAD };
enum { EVENT_ALLOC = 1, EVENT_FREE, EVENT_MAP, EVENT_UNMAP };
enum {
    FLAG_EARLY_START = 1, /* programmatic dependent launch */
    FLAG_CAPTURED = 2,    /* into a graph; it runs when the graph does */
    FLAG_PER_THREAD = 4,  /* stream 0 is the thread's own (the _ptsz entry points) */
    FLAG_SYNCED = 8,
    FLAG_DELAYED = 16,
};
enum { STACK_PYTHON = 1, STACK_NATIVE };

struct area {
    uint64_t offset;
    uint32_t record_size, count;
};

struct context {
    _Atomic uint64_t handle, launches, graphs, reserved;
};

/* A counter alone on its cache line: all threads write to it. */
struct counter {
    _Atomic uint64_t value;
    uint64_t pad[7];
};

struct header {
    char magic[8];
    uint32_t version, header_size, pid, reserved;
    uint64_t realtime_ns, monotonic_ns;
    struct area areas[AREAS];
    uint8_t pad[192 - 40 - AREAS * sizeof(struct area)];
    struct counter launches, memory, refused, text;
    struct {
        _Atomic uint64_t records, functions, stacks, handles;
        uint64_t pad[4];
    } lost;
    uint8_t pad2[1024 - 192 - 5 * 64];
    struct context contexts[CUWHY_CONTEXTS];
    uint8_t pad3[CUWHY_HEADER_SIZE - 1024 - CUWHY_CONTEXTS * sizeof(struct context)];
};

/* seq: 0 empty, 1 being written, else 2 * (index + 1), plus 1 once the driver has returned. */
struct launch_record {
    _Atomic uint64_t seq;
    uint64_t number, handle, stream, context, time_ns;
    uint32_t function, stack;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t dynamic_shared, thread;
    int32_t code;
    uint8_t kind, flags, pad[2];
    uint32_t reserved[5];
};

struct memory_record {
    _Atomic uint64_t seq;
    uint64_t address, size, stream, context, time_ns;
    uint32_t thread, stack;
    int32_t code;
    uint8_t kind, pad[3];
};

/* The first launches that the driver refused, with what it could have taken; CUWHY_UNKNOWN where it did not say. */
struct refused_record {
    struct launch_record launch;
    int32_t values[CUWHY_LIMITS];
    uint32_t reserved[8];
};

/* state: 0 empty, 1 being written, 2 valid. */
struct function_record {
    _Atomic uint32_t state;
    uint32_t name;
    uint64_t hash;
};

struct stack_record {
    _Atomic uint32_t state;
    uint32_t kind, count, frames;
    uint64_t hash, reserved;
};

/* value: line of a Python frame, offset in its module of a native one. */
struct frame_record {
    uint32_t file, function;
    uint64_t value;
};

_Static_assert(sizeof(struct header) == CUWHY_HEADER_SIZE, "header");
_Static_assert(sizeof(struct launch_record) == 128, "launch record");
_Static_assert(sizeof(struct memory_record) == 64, "memory record");
_Static_assert(sizeof(struct refused_record) == 256, "refused record");
_Static_assert(sizeof(struct function_record) == 16, "function record");
_Static_assert(sizeof(struct stack_record) == 32, "stack record");
_Static_assert(sizeof(struct frame_record) == 16, "frame record");

struct log {
    struct header *header;
    struct launch_record *launches;
    struct memory_record *memory;
    struct refused_record *refused;
    struct function_record *functions;
    struct stack_record *stacks;
    char *text;
    uint32_t counts[AREAS];
    uint64_t size;
};

#define relaxed memory_order_relaxed
#define count_one(counter) atomic_fetch_add_explicit(&(counter), 1, relaxed)

static inline uint64_t mix(uint64_t hash, uint64_t value) {
    hash ^= value * 0x9E3779B97F4A7C15u;
    hash = (hash << 27 | hash >> 37) * 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 32;
}

static inline uint64_t hash_text(const char *text, uint32_t length) {
    uint64_t hash = length, word = 0;
    for (; length >= 8; text += 8, length -= 8) {
        __builtin_memcpy(&word, text, 8);
        hash = mix(hash, word);
    }
    word = 0;
    __builtin_memcpy(&word, text, length);
    return mix(hash, word);
}

/* A cache from a key to a value, private to the process; it may forget, it never lies: a reader that
 * meets a writer sees the key change. */
struct cache_entry {
    _Atomic uint64_t key, value;
};

static inline struct cache_entry *cache_slot(struct cache_entry *cache, uint32_t count, uint64_t key) {
    return &cache[mix(0, key) & (count - 1)];
}

static inline int cache_get(struct cache_entry *entry, uint64_t key, uint64_t *value) {
    if (atomic_load_explicit(&entry->key, memory_order_acquire) != key) return 0;
    *value = atomic_load_explicit(&entry->value, memory_order_acquire);
    return atomic_load_explicit(&entry->key, relaxed) == key;
}

static inline void cache_put(struct cache_entry *entry, uint64_t key, uint64_t value) {
    atomic_store(&entry->key, 0);
    atomic_store(&entry->value, value);
    atomic_store_explicit(&entry->key, key, memory_order_release);
}

/* Claim the slot of a ring for the record with this index; 0 when somebody else has it. */
static inline int claim(_Atomic uint64_t *seq, uint64_t index) {
    uint64_t old = atomic_load_explicit(seq, relaxed);
    if (old == 1 || old >> 1 > index + 1) return 0;
    return atomic_compare_exchange_strong_explicit(seq, &old, 1, memory_order_acquire, relaxed);
}

static inline void publish(_Atomic uint64_t *seq, uint64_t index, int finished) {
    atomic_store_explicit(seq, (index + 1) << 1 | (uint64_t)finished, memory_order_release);
}

/* Claim a published record once more, to add what the driver answered. */
static inline int reclaim(_Atomic uint64_t *seq, uint64_t index) {
    uint64_t own = (index + 1) << 1;
    return atomic_compare_exchange_strong_explicit(seq, &own, 1, memory_order_acquire, relaxed);
}

#define STRING_CACHE 4096u
static struct cache_entry string_cache[STRING_CACHE];

/* Take bytes of the text area; their offset, or 0 when it is full. */
static inline uint32_t take_text(struct log *log, uint32_t bytes) {
    _Atomic uint64_t *used = &log->header->text.value;
    uint64_t limit = log->counts[AREA_TEXT], begin = atomic_load_explicit(used, relaxed);
    bytes = (bytes + 7) & ~7u;
    do {
        if (begin + bytes > limit) return 0;
    } while (!atomic_compare_exchange_weak_explicit(used, &begin, begin + bytes, relaxed, relaxed));
    return (uint32_t)begin;
}

/* Store a text once; its offset, or 0. */
static inline uint32_t intern_text(struct log *log, const char *text, uint32_t length) {
    uint64_t hash = hash_text(text, length) | 1, value;
    struct cache_entry *entry = cache_slot(string_cache, STRING_CACHE, hash);
    if (cache_get(entry, hash, &value)) return (uint32_t)value;
    uint32_t offset = take_text(log, length + 4);
    if (!offset) return 0;
    __builtin_memcpy(log->text + offset, &length, 4);
    __builtin_memcpy(log->text + offset + 4, text, length);
    cache_put(entry, hash, offset);
    return offset;
}

#define PROBES 64u

/* Id of a function by its name, 0 when the table is full. */
static inline uint32_t intern_function(struct log *log, const char *name, uint32_t length) {
    uint64_t hash = hash_text(name, length);
    uint32_t count = log->counts[AREA_FUNCTIONS];
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint32_t i = (uint32_t)(hash + probe) & (count - 1);
        struct function_record *slot = &log->functions[i];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == 2 && slot->hash == hash) return i + 1;
        if (state == 0 && atomic_compare_exchange_strong(&slot->state, &state, 1)) {
            slot->hash = hash;
            slot->name = intern_text(log, name, length);
            atomic_store_explicit(&slot->state, 2, memory_order_release);
            return i + 1;
        }
        /* Being written, perhaps by a thread that this one interrupted: a duplicate is harmless, waiting is not. */
    }
    count_one(log->header->lost.functions);
    return 0;
}

/* Stacks stand in the file once, by content.  Which it is, is found by a hash of the addresses it was read from. */
#define STACK_CACHE 16384u
static struct cache_entry stack_cache[STACK_CACHE];

static inline uint32_t known_stack(uint64_t addresses) {
    uint64_t id;
    addresses |= 1;
    return cache_get(cache_slot(stack_cache, STACK_CACHE, addresses), addresses, &id) ? (uint32_t)id : 0;
}

/* Naming the frames of a stack that finds no room would cost microseconds at each launch. */
static inline int stacks_are_full(struct log *log) {
    return atomic_load_explicit(&log->header->lost.stacks, relaxed) > 1024;
}

/* Store a stack once; its id, or 0 when there is no room. */
static inline uint32_t intern_stack(struct log *log, uint64_t addresses, uint32_t kind,
                                    const struct frame_record *frames, uint32_t n) {
    uint32_t count = log->counts[AREA_STACKS], offset = 0;
    uint64_t hash = mix(kind, n);
    for (uint32_t i = 0; i < n; i++)
        hash = mix(mix(hash, (uint64_t)frames[i].file << 32 | frames[i].function), frames[i].value);
    addresses |= 1;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        uint32_t i = (uint32_t)(hash + probe) & (count - 1);
        struct stack_record *slot = &log->stacks[i];
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if (state == 0) {
            if (!offset && !(offset = take_text(log, n * (uint32_t)sizeof *frames))) break;
            if (!atomic_compare_exchange_strong(&slot->state, &state, 1)) continue;
            __builtin_memcpy(log->text + offset, frames, n * sizeof *frames);
            slot->kind = kind;
            slot->count = n;
            slot->frames = offset;
            slot->hash = hash;
            atomic_store_explicit(&slot->state, 2, memory_order_release);
        } else if (state != 2 || slot->hash != hash) {
            continue;
        }
        cache_put(cache_slot(stack_cache, STACK_CACHE, addresses), addresses, i + 1);
        return i + 1;
    }
    count_one(log->header->lost.stacks);
    return 0;
}

#endif
