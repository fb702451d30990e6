/* The Python stack of a launch, read without the GIL.
 *
 * A thread that has released the GIL and is inside C code is the only one that changes its own
 * frames, so it may read them: the code objects are kept alive by the frames, and reading takes no
 * reference and no lock.  Taking the GIL instead can deadlock (its holder may wait for this very
 * launch) and would cost a thread switch where other threads compute.
 *
 * The offsets are those of CPython's own headers, one set per minor version, which never change them
 * within it.  Before the first use every pointer of the chain is read through the kernel, which
 * answers with an error where a wrong offset would crash, and the type of each object is checked.
 * With an unknown version, frames are read through the C API, and only by a thread that has the GIL. */
#ifndef CUWHY_STACK_PYTHON_H
#define CUWHY_STACK_PYTHON_H

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "log.h"

#define WALK_FRAMES 64u
#define INNER_FRAMES 8u
#define OWNED_BY_C 3

struct python_layout {
    int minor;
    int top;        /* PyThreadState: frame, cframe or current_frame */
    int current;    /* in cframe; -1: no such step */
    int code, previous, instruction;
    int owner;      /* -1: frame objects, whose instruction is an int */
    int scale;      /* of that int, to bytes */
    int file, function, line_table, first; /* PyCodeObject; first: the bytecode */
    int ascii, compact;                    /* sizes of the string headers */
};

static const struct python_layout layouts[] = {
    {9, 24, -1, 32, 24, 104, -1, 1, 104, 112, 120, 0, 48, 72},
    {10, 24, -1, 32, 24, 96, -1, 2, 104, 112, 120, 0, 48, 72},
    {11, 56, 8, 32, 48, 56, 69, 0, 112, 128, 136, 184, 48, 72},
    {12, 56, 0, 0, 8, 56, 70, 0, 112, 128, 136, 192, 40, 56},
    {13, 72, -1, 0, 8, 56, 70, 0, 112, 128, 136, 200, 40, 56},
};

enum { PYTHON_NONE, PYTHON_UNCHECKED, PYTHON_DIRECT, PYTHON_API };

struct python_api {
    _Atomic int mode;
    const struct python_layout *layout;
    void *code_type, *text_type;
    int (*is_initialized)(void);
    int (*is_finalizing)(void);
    void *(*own_state)(void);     /* PyGILState_GetThisThreadState */
    void *(*current_state)(void); /* of whoever has the GIL; from 3.12 on NULL unless it is this thread */
    int (*line)(void *code, int address);
    /* Only for versions without a layout. */
    void *(*frame)(void);
    void *(*frame_back)(void *);
    void *(*frame_code)(void *);
    int (*frame_line)(void *);
    void *(*attribute)(void *, const char *);
    const char *(*utf8)(void *);
    void (*incref)(void *);
    void (*decref)(void *);
    void (*fetch)(void **, void **, void **);
    void (*restore)(void *, void *, void *);
};
static struct python_api python;

struct python_frame {
    char *code;
    uintptr_t at; /* address of the instruction, or its number; with the C API the line */
};

#define WORD(base, offset) (*(char *const *)((const char *)(base) + (offset)))

static void python_start(void *(*find)(void *, const char *)) {
#define FIND(name) find(RTLD_DEFAULT, name)
    const char *(*version)(void) = (const char *(*)(void))FIND("Py_GetVersion");
    int minor = 0;
    atomic_store(&python.mode, PYTHON_NONE);
    if (!version || sscanf(version(), "3.%d.", &minor) != 1) return;
    python.is_initialized = (int (*)(void))FIND("Py_IsInitialized");
    python.is_finalizing = (int (*)(void))FIND("Py_IsFinalizing");
    if (!python.is_finalizing) python.is_finalizing = (int (*)(void))FIND("_Py_IsFinalizing");
    python.own_state = (void *(*)(void))FIND("PyGILState_GetThisThreadState");
    python.current_state = (void *(*)(void))FIND("PyThreadState_GetUnchecked");
    if (!python.current_state) python.current_state = (void *(*)(void))FIND("_PyThreadState_UncheckedGet");
    if (!python.is_initialized || !python.is_finalizing || !python.own_state || !python.current_state) return;
    python.code_type = FIND("PyCode_Type");
    python.text_type = FIND("PyUnicode_Type");
    python.line = (int (*)(void *, int))FIND("PyCode_Addr2Line");
    python.layout = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].minor == minor) python.layout = &layouts[i];
    /* Free-threaded builds have other object headers. */
    if (strstr(version(), "free-threading")) return;
    if (python.layout && python.code_type && python.text_type && python.line) {
        atomic_store(&python.mode, PYTHON_UNCHECKED);
        return;
    }
    python.layout = NULL;
    python.frame = (void *(*)(void))FIND("PyEval_GetFrame");
    python.frame_back = (void *(*)(void *))FIND("PyFrame_GetBack");
    python.frame_code = (void *(*)(void *))FIND("PyFrame_GetCode");
    python.frame_line = (int (*)(void *))FIND("PyFrame_GetLineNumber");
    python.attribute = (void *(*)(void *, const char *))FIND("PyObject_GetAttrString");
    python.utf8 = (const char *(*)(void *))FIND("PyUnicode_AsUTF8");
    python.incref = (void (*)(void *))FIND("Py_IncRef");
    python.decref = (void (*)(void *))FIND("Py_DecRef");
    python.fetch = (void (*)(void **, void **, void **))FIND("PyErr_Fetch");
    python.restore = (void (*)(void *, void *, void *))FIND("PyErr_Restore");
    if (minor >= 9 && python.frame && python.frame_back && python.frame_code && python.frame_line &&
        python.attribute && python.utf8 && python.incref && python.decref && python.fetch && python.restore)
        atomic_store(&python.mode, PYTHON_API);
#undef FIND
}

/* Read memory that may not be there; 0 when it is not. */
static int peek(const void *address, void *to, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)address, size};
    if ((uintptr_t)address < 4096) return 0;
    if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size) return 1;
    /* Forbidden in some containers; this is not, but needs a dumpable process. */
    int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = pread(file, to, size, (off_t)(uintptr_t)address);
    close(file);
    return got == (ssize_t)size;
}

static char *peek_word(const char *base, int offset) {
    char *word = NULL;
    return base && peek(base + offset, &word, sizeof word) ? word : NULL;
}

static int has_type(const char *object, const void *type) {
    return peek_word(object, 8) == type;
}

static char *python_state(void) {
    char *own = python.own_state();
    if (python.layout && python.layout->minor < 12) return own;
    char *current = python.current_state();
    return current ? current : own;
}

/* 1: the layout holds; 0: it does not; -1: no frame to tell by. */
static int python_check(void) {
    const struct python_layout *layout = python.layout;
    char *state = python_state();
    if (!state) return -1;
    char *frame = peek_word(state, layout->top);
    if (layout->current >= 0) {
        if (!frame) return 0;
        frame = peek_word(frame, layout->current);
    }
    int seen = 0;
    for (uint32_t i = 0; frame && i < WALK_FRAMES; i++, frame = peek_word(frame, layout->previous)) {
        if (layout->owner >= 0) {
            unsigned char owner = 0;
            if (!peek(frame + layout->owner, &owner, 1) || owner > OWNED_BY_C) return 0;
            if (owner == OWNED_BY_C) continue;
        }
        char *code = peek_word(frame, layout->code);
        if (!has_type(code, python.code_type) || !has_type(peek_word(code, layout->file), python.text_type) ||
            !has_type(peek_word(code, layout->function), python.text_type))
            return 0;
        if (layout->first) {
            /* ob_size counts instructions of two bytes. */
            char *at = peek_word(frame, layout->instruction);
            ptrdiff_t bytes = at - (code + layout->first), size = 0;
            if (!peek(code + 16, &size, sizeof size) || bytes < -2 || bytes >= 2 * size) return 0;
        }
        seen++;
    }
    return seen ? 1 : -1;
}

/* The frames of this thread, innermost first. */
static uint32_t python_walk(struct python_frame *frames, uint64_t *hash) {
    const struct python_layout *layout = python.layout;
    char *state = python_state();
    if (!state) return 0;
    char *frame = WORD(state, layout->top);
    if (layout->current >= 0 && frame) frame = WORD(frame, layout->current);
    uint32_t count = 0;
    uint64_t sum = STACK_PYTHON;
    for (uint32_t steps = 0; frame && count < WALK_FRAMES && steps < 2 * WALK_FRAMES;
         steps++, frame = WORD(frame, layout->previous)) {
        if (layout->owner >= 0 && frame[layout->owner] == OWNED_BY_C) continue;
        char *code = WORD(frame, layout->code);
        if (!code || WORD(code, 8) != python.code_type) continue;
        uintptr_t at = layout->owner >= 0 ? (uintptr_t)WORD(frame, layout->instruction)
                                          : (uintptr_t) * (int *)(frame + layout->instruction);
        frames[count].code = code;
        frames[count++].at = at;
        /* A code object may take the place of one that died: its name and line table tell them apart. */
        sum = mix(sum, (uintptr_t)code ^ at << 20);
        sum = mix(sum, (uintptr_t)WORD(code, layout->function) ^ (uintptr_t)WORD(code, layout->line_table) << 13);
    }
    *hash = sum;
    return count;
}

/* UTF-8 of a compact string. */
static uint32_t python_text(const char *text, char *out, uint32_t room) {
    if (!text || WORD(text, 8) != python.text_type) return 0;
    uint64_t length = (uint64_t)WORD(text, 16);
    uint32_t state = *(const uint32_t *)(text + 32), kind = state >> 2 & 7, n = 0;
    int is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
    if (!is_compact) return 0;
    const char *data = text + (is_ascii ? python.layout->ascii : python.layout->compact);
    for (uint64_t i = 0; i < length && n + 4 <= room; i++) {
        uint32_t c = kind == 1   ? ((const uint8_t *)data)[i]
                     : kind == 2 ? ((const uint16_t *)data)[i]
                                 : ((const uint32_t *)data)[i];
        if (c < 0x80) {
            out[n++] = (char)c;
        } else if (c < 0x800) {
            out[n++] = (char)(0xC0 | c >> 6);
            out[n++] = (char)(0x80 | (c & 0x3F));
        } else if (c < 0x10000) {
            out[n++] = (char)(0xE0 | c >> 12);
            out[n++] = (char)(0x80 | (c >> 6 & 0x3F));
            out[n++] = (char)(0x80 | (c & 0x3F));
        } else {
            out[n++] = (char)(0xF0 | c >> 18);
            out[n++] = (char)(0x80 | (c >> 12 & 0x3F));
            out[n++] = (char)(0x80 | (c >> 6 & 0x3F));
            out[n++] = (char)(0x80 | (c & 0x3F));
        }
    }
    return n;
}

static int python_line(const struct python_frame *frame) {
    const struct python_layout *layout = python.layout;
    ptrdiff_t address = layout->owner >= 0 ? (char *)frame->at - (frame->code + layout->first)
                                           : (ptrdiff_t)(int)frame->at * layout->scale;
    return python.line(frame->code, address < 0 ? 0 : (int)address);
}

static int is_library(const char *file, uint32_t length) {
    static const char *const marks[] = {"/site-packages/", "/dist-packages/", "/lib/python3"};
    if (length && file[0] == '<') return 1;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (memmem(file, length, marks[i], strlen(marks[i]))) return 1;
    return 0;
}

/* The innermost frames, and of those further out the ones that are the user's. */
static uint32_t name_python(struct log *log, const struct python_frame *walked, uint32_t count,
                            struct frame_record *frames) {
    char text[1024];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count && n < CUWHY_MAX_FRAMES; i++) {
        uint32_t length = python_text(WORD(walked[i].code, python.layout->file), text, sizeof text);
        if (i >= INNER_FRAMES && is_library(text, length)) continue;
        frames[n].file = intern_text(log, text, length);
        length = python_text(WORD(walked[i].code, python.layout->function), text, sizeof text);
        frames[n].function = intern_text(log, text, length);
        int line = python_line(&walked[i]);
        frames[n++].value = line > 0 ? (uint64_t)line : 0;
    }
    return n;
}

static uint32_t text_of(struct log *log, void *object, const char *name) {
    uint32_t offset = 0;
    void *text = python.attribute(object, name);
    const char *utf8 = text ? python.utf8(text) : NULL;
    if (utf8) offset = intern_text(log, utf8, (uint32_t)strnlen(utf8, 1023));
    if (text) python.decref(text);
    return offset;
}

/* The same through the C API.  The caller has the GIL. */
static uint32_t python_stack_by_api(struct log *log) {
    struct python_frame walked[INNER_FRAMES];
    struct frame_record frames[INNER_FRAMES];
    void *type, *value, *traceback;
    uint32_t count = 0, id = 0;
    uint64_t hash = STACK_PYTHON;
    python.fetch(&type, &value, &traceback);
    void *frame = python.frame();
    if (frame) python.incref(frame);
    while (frame && count < INNER_FRAMES) {
        walked[count].code = python.frame_code(frame);
        walked[count].at = (uintptr_t)python.frame_line(frame);
        hash = mix(mix(hash, (uintptr_t)walked[count].code), walked[count].at);
        count++;
        void *back = python.frame_back(frame);
        python.decref(frame);
        frame = back;
    }
    if (frame) python.decref(frame);
    if (count) id = known_stack(hash);
    int is_new = count && !id;
    for (uint32_t i = 0; i < count; i++) {
        if (is_new) {
            frames[i].file = text_of(log, walked[i].code, "co_filename");
            frames[i].function = text_of(log, walked[i].code, "co_qualname");
            if (!frames[i].function) frames[i].function = text_of(log, walked[i].code, "co_name");
            frames[i].value = walked[i].at;
            /* The reference stays: the address must go on meaning this code. */
        } else {
            python.decref(walked[i].code);
        }
    }
    if (is_new) id = intern_stack(log, hash, STACK_PYTHON, frames, count);
    python.restore(type, value, traceback);
    return id;
}

/* Id of this thread's Python stack; 0 when there is none. */
static uint32_t python_stack(struct log *log) {
    int mode = atomic_load_explicit(&python.mode, relaxed);
    if (mode == PYTHON_NONE || !python.is_initialized() || python.is_finalizing()) return 0;
    if (mode == PYTHON_API) {
        void *current = python.current_state();
        return current && current == python.own_state() ? python_stack_by_api(log) : 0;
    }
    if (mode == PYTHON_UNCHECKED) {
        int holds = python_check();
        if (holds < 0) return 0;
        atomic_store(&python.mode, holds ? PYTHON_DIRECT : PYTHON_NONE);
        if (!holds) return 0;
    }
    struct python_frame walked[WALK_FRAMES];
    uint64_t hash;
    uint32_t count = python_walk(walked, &hash);
    if (!count) return 0;
    uint32_t id = known_stack(hash);
    if (id || stacks_are_full(log)) return id;
    struct frame_record frames[CUWHY_MAX_FRAMES];
    uint32_t n = name_python(log, walked, count, frames);
    return intern_stack(log, hash, STACK_PYTHON, frames, n);
}

#endif
