/* Clock, core frequency and name of the processor. */
#include "bench.h"

#include <stdio.h>
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

void bench_cpu_name(char *out, size_t capacity)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(out, capacity, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, capacity, "%s", colon + 2);
        break;
    }
    if (file) fclose(file);
}
