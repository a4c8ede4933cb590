/* How fast this machine reads memory: the limit of decoding, which reads every weight per token. */
#include "bench.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Adds up memory, `bytes` a multiple of 512. The same loop for each width of vectors: vector
 * extensions of the compiler need only to be told what the processor has. */
#define READER(name, vector_bytes, attributes)                                                     \
    attributes static uint64_t name(const void *memory, size_t bytes)                              \
    {                                                                                              \
        typedef uint64_t vector __attribute__((vector_size(vector_bytes)));                        \
        const vector *at = memory, *end = at + bytes / sizeof(vector);                             \
        vector sums[4] = {{0}, {0}, {0}, {0}};                                                     \
        for (; at < end; at += 4)                                                                  \
            for (int i = 0; i < 4; i++) sums[i] += at[i];                                          \
        vector sum = sums[0] + sums[1] + sums[2] + sums[3];                                        \
        uint64_t total = 0;                                                                        \
        for (size_t i = 0; i < sizeof(vector) / 8; i++) total += sum[i];                           \
        return total;                                                                              \
    }

typedef uint64_t read_fn(const void *memory, size_t bytes);

READER(read_16, 16, )
#if defined(__x86_64__)
READER(read_32, 32, __attribute__((target("avx2"))))
READER(read_64, 64, __attribute__((target("avx512f"))))
#endif

enum { MOST_LOOPS = 3 };

static size_t find_loops(read_fn *loops[MOST_LOOPS])
{
    size_t n = 0;
    loops[n++] = read_16;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) loops[n++] = read_32;
    if (__builtin_cpu_supports("avx512f")) loops[n++] = read_64;
#endif
    return n;
}

/* --- measuring -------------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 20, HUGE_PAGE_BYTES = 2 << 20 };

struct bench_reader {
    vti_pool *pool;
    unsigned char *memory;
    size_t bytes;
    read_fn *fastest;
};

typedef struct read_job {
    const unsigned char *memory;
    read_fn *read;
    _Atomic uint64_t sum; /* so that the reads are not optimised away */
} read_job;

static void read_pieces(void *context, size_t begin, size_t end)
{
    read_job *job = context;
    job->sum += job->read(job->memory + begin * PIECE_BYTES, (end - begin) * PIECE_BYTES);
}

/* Several times the last cache, so that next to nothing of a pass is left for the next one. */
static size_t buffer_bytes(void)
{
    size_t bytes = (size_t)256 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (cache > 0 && (size_t)cache * 6 > bytes) bytes = (size_t)cache * 6;
#endif
    if (bytes > (size_t)1 << 30) bytes = (size_t)1 << 30;
    return bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

static void *new_buffer(size_t bytes)
{
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (!memory) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE); /* where there are none, small ones do */
#endif
    memset(memory, 1, bytes);
    return memory;
}

static double best_rate(const bench_reader *r, read_fn *read)
{
    read_job job = {.memory = r->memory, .read = read};
    double best = 0, begin = bench_now();
    for (int i = 0; i < 64 && (i < 4 || bench_now() - begin < 0.1); i++) {
        double start = bench_now();
        vti_pool_run(r->pool, r->bytes / PIECE_BYTES, 1, read_pieces, &job);
        double rate = (double)r->bytes / (bench_now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

bench_reader *bench_reader_open(vti_pool *pool)
{
    bench_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->pool = pool;
    r->bytes = buffer_bytes();
    r->memory = new_buffer(r->bytes);
    if (!r->memory) {
        free(r);
        return NULL;
    }
    read_fn *loops[MOST_LOOPS];
    double best = 0;
    size_t count = find_loops(loops);
    for (size_t i = 0; i < count; i++) {
        double rate = best_rate(r, loops[i]);
        if (rate > best) {
            best = rate;
            r->fastest = loops[i];
        }
    }
    return r;
}

double bench_reader_rate(bench_reader *r) { return best_rate(r, r->fastest); }

void bench_reader_close(bench_reader *r)
{
    if (!r) return;
    free(r->memory);
    free(r);
}

double bench_read_bandwidth(vti_pool *pool)
{
    bench_reader *r = bench_reader_open(pool);
    double rate = r ? bench_reader_rate(r) : 0;
    bench_reader_close(r);
    return rate;
}
