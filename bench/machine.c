/* Clock, core frequency and read bandwidth of the machine. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Additions that wait for each other, one cycle each on every processor we know. */
static uint64_t chain(uint64_t rounds)
{
    uint64_t x = rounds;
    for (uint64_t i = 0; i < rounds; i++) {
#if defined(__x86_64__)
        __asm__ volatile("add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\t"
                         "add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0"
                         : "+r"(x));
#elif defined(__aarch64__)
        __asm__ volatile("add %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\t"
                         "add %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0\n\tadd %0, %0, %0"
                         : "+r"(x));
#else
        for (int j = 0; j < 8; j++) __asm__ volatile("" : "+r"(x) : "r"(x + x));
#endif
    }
    return x;
}

double bench_core_hz(void)
{
    enum { ROUNDS = 200000 };
    double best = 0;
    for (int i = 0; i < 9; i++) {
        double start = bench_now();
        chain(ROUNDS);
        double hz = 8.0 * ROUNDS / (bench_now() - start);
        if (hz > best) best = hz;
    }
    return best;
}

/* --- read bandwidth --------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 20, PIECES = 256 };

typedef struct read_job {
    const uint64_t *memory;
    _Atomic uint64_t sum; /* so that the reads are not optimised away */
} read_job;

static void read_pieces(void *context, size_t begin, size_t end)
{
    read_job *job = context;
    uint64_t sums[16] = {0};
    const uint64_t *at = job->memory + begin * (PIECE_BYTES / 8);
    const uint64_t *stop = job->memory + end * (PIECE_BYTES / 8);
    for (; at < stop; at += 16)
        for (int i = 0; i < 16; i++) sums[i] += at[i];
    for (int i = 0; i < 16; i++) job->sum += sums[i];
}

double bench_read_bandwidth(vti_pool *pool)
{
    size_t bytes = (size_t)PIECE_BYTES * PIECES;
    void *memory = aligned_alloc(4096, bytes);
    if (!memory) return 0;
    memset(memory, 1, bytes);
    read_job job = {memory, 0};
    double rates[64], begin = bench_now();
    size_t n = 0;
    while (n < 64 && (n < 5 || bench_now() - begin < 0.3)) {
        double start = bench_now();
        vti_pool_run(pool, PIECES, 1, read_pieces, &job);
        rates[n++] = (double)bytes / (bench_now() - start);
    }
    free(memory);
    return bench_median(rates, n);
}
