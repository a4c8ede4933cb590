#include "checkkern.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BUFFERS = 64, PATTERN = 0xA5 };

typedef struct buffer {
    unsigned char *map;     /* guard page, pages, guard page; or plain memory */
    size_t map_bytes;       /* 0: plain memory */
    unsigned char *pages;
    size_t pages_bytes;
    unsigned char *data;
    size_t bytes;
} buffer;

static struct {
    sigjmp_buf escape;
    volatile sig_atomic_t running;
    char *message;
    size_t message_bytes;
    uint64_t random;
    buffer buffers[MAX_BUFFERS];
    size_t buffer_count;
} state;

void ck_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.message, state.message_bytes, format, arguments);
    va_end(arguments);
    siglongjmp(state.escape, 1);
}

static void crashed(int signal_number)
{
    if (!state.running) _exit(128 + signal_number);
    const char *name = signal_number == SIGILL    ? "illegal instruction"
                       : signal_number == SIGFPE  ? "arithmetic exception"
                       : signal_number == SIGBUS  ? "bus error"
                                                  : "access outside of the buffers";
    snprintf(state.message, state.message_bytes, "crash: %s", name);
    siglongjmp(state.escape, 1);
}

static const int trapped[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
enum { TRAPPED = sizeof trapped / sizeof *trapped };

bool ck_run(ck_check_fn *check, const vti_kernels *kernels, unsigned index, uint64_t seed,
            char *message, size_t message_bytes)
{
    struct sigaction before[TRAPPED], action = {.sa_handler = crashed, .sa_flags = SA_NODEFER};
    for (size_t i = 0; i < TRAPPED; i++) sigaction(trapped[i], &action, &before[i]);
    state.message = message;
    state.message_bytes = message_bytes;
    state.random = seed;
    volatile bool passed = false;
    if (sigsetjmp(state.escape, 1) == 0) {
        state.running = 1;
        check(kernels, index);
        ck_check_margins();
        passed = true;
    }
    state.running = 0;
    for (size_t i = 0; i < TRAPPED; i++) sigaction(trapped[i], &before[i], NULL);
    ck_free_all();
    return passed;
}

uint64_t ck_random(void)
{
    uint64_t x = state.random ? state.random : 0x9E3779B97F4A7C15u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state.random = x;
    return x * 0x2545F4914F6CDD1Du;
}

size_t ck_random_below(size_t limit) { return (size_t)(ck_random() >> 16) % limit; }

float ck_random_float(float low, float high)
{
    return low + (high - low) * ((float)(ck_random() >> 40) / 16777216.0f);
}

static buffer *new_buffer(void)
{
    if (state.buffer_count == MAX_BUFFERS) ck_fail("the check holds too many buffers");
    return &state.buffers[state.buffer_count];
}

void *ck_buffer(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages_bytes = (bytes + page) / page * page;
    buffer *b = new_buffer();
    b->map_bytes = pages_bytes + 2 * page;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) ck_fail("no memory for a buffer of %zu bytes", bytes);
    state.buffer_count++;
    b->pages = b->map + page;
    b->pages_bytes = pages_bytes;
    b->bytes = bytes;
    b->data = ck_random() >> 62 ? b->pages + pages_bytes - bytes : b->pages;
    mprotect(b->map, page, PROT_NONE);
    mprotect(b->pages + pages_bytes, page, PROT_NONE);
    memset(b->pages, PATTERN, pages_bytes);
    return b->data;
}

void ck_seal(const void *data)
{
    for (size_t i = 0; i < state.buffer_count; i++)
        if (state.buffers[i].data == data && state.buffers[i].map_bytes)
            mprotect(state.buffers[i].pages, state.buffers[i].pages_bytes, PROT_READ);
}

void ck_check_margins(void)
{
    for (size_t i = 0; i < state.buffer_count; i++) {
        const buffer *b = &state.buffers[i];
        if (!b->map_bytes) continue;
        for (const unsigned char *at = b->pages; at < b->pages + b->pages_bytes; at++) {
            if (at == b->data) at += b->bytes;
            if (at == b->pages + b->pages_bytes) break;
            if (*at != PATTERN)
                ck_fail("wrote outside of a buffer of %zu bytes, at byte %td", b->bytes,
                        at - b->data);
        }
    }
}

void *ck_scratch(size_t bytes)
{
    buffer *b = new_buffer();
    *b = (buffer){.map = calloc(1, bytes ? bytes : 1)};
    if (!b->map) ck_fail("no memory for %zu bytes", bytes);
    state.buffer_count++;
    return b->map;
}

void ck_free_all(void)
{
    for (size_t i = 0; i < state.buffer_count; i++) {
        buffer *b = &state.buffers[i];
        if (b->map_bytes)
            munmap(b->map, b->map_bytes);
        else
            free(b->map);
    }
    state.buffer_count = 0;
}

void ck_close(const char *what, size_t i, size_t j, double got, double want, double bound)
{
    if (isnan(got) && isnan(want)) return;
    if (got == want || fabs(got - want) <= bound) return;
    ck_fail("%s[%zu][%zu] is %.9g, should be %.9g ± %.3g", what, i, j, got, want, bound);
}
