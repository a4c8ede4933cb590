#include "profile_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "align.h"
#include "clock.h"

enum {
    PIECE_BYTES = 1 << 18,
    PARTS = 4, /* of the buffer; one is read at a time, the others keep it out of the cache */
    HUGE_PAGE_BYTES = 2 << 20,
    CACHE_LEVELS = 8,
    USUAL_CACHE_BYTES = 8 << 20,
};

struct vti_reader {
    vti_pool *pool;
    unsigned char *memory;
    size_t pieces, part; /* pieces of a part; the one that is next */
    const unsigned char *at;
    _Atomic uint64_t sum; /* so that the reads are not optimised away */
};

vt_status vti_reader_open(vti_pool *pool, uint64_t bytes, vti_reader **out, vt_error *err)
{
    vti_reader *r = calloc(1, sizeof *r);
    size_t all = (size_t)vti_align_up(bytes + 1, PARTS * HUGE_PAGE_BYTES);
    *out = r;
    if (r) r->memory = aligned_alloc(HUGE_PAGE_BYTES, all);
    if (!r || !r->memory) {
        free(r);
        *out = NULL;
        return vti_fail(err, VT_ERR_MEMORY, "no memory for %zu bytes to read", all);
    }
    r->pool = pool;
    r->pieces = all / PARTS / PIECE_BYTES;
#ifdef MADV_HUGEPAGE
    madvise(r->memory, all, MADV_HUGEPAGE); /* where there are none, small ones do */
#endif
    memset(r->memory, 1, all);
    return VT_OK;
}

void vti_reader_close(vti_reader *reader)
{
    if (reader) free(reader->memory);
    free(reader);
}

/* 64 bytes at a time: compilers make of it what vectors they may use. */
static void read_pieces(void *context, size_t begin, size_t end)
{
    vti_reader *r = context;
    const unsigned char *at = r->at + begin * PIECE_BYTES, *last = r->at + end * PIECE_BYTES;
    uint64_t sum[8] = {0}, total = 0;
    for (; at < last; at += sizeof sum) {
        uint64_t line[8];
        memcpy(line, at, sizeof line);
        for (int i = 0; i < 8; i++) sum[i] += line[i];
    }
    for (int i = 0; i < 8; i++) total += sum[i];
    r->sum += total;
}

double vti_reader_rate(vti_reader *r)
{
    r->at = r->memory + r->part * r->pieces * PIECE_BYTES;
    r->part = (r->part + 1) % PARTS;
    uint64_t begin = vti_now_ns();
    vti_pool_run(r->pool, r->pieces, 1, read_pieces, r);
    uint64_t ns = vti_now_ns() - begin;
    return 1e9 * (double)(r->pieces * PIECE_BYTES) / (double)(ns ? ns : 1);
}

/* "32768K" of one level; 0: there is none, or it is for instructions only. */
static uint64_t level_bytes(int level)
{
    char path[96], kind[32] = "", unit = 0;
    unsigned long long size = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", level);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%31s", kind) != 1) kind[0] = 0;
    if (file) fclose(file);
    if (!kind[0] || strcmp(kind, "Instruction") == 0) return 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
    file = fopen(path, "r");
    int got = file ? fscanf(file, "%llu%c", &size, &unit) : 0;
    if (file) fclose(file);
    return got < 1 ? 0 : (uint64_t)size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
}

uint64_t vti_cache_bytes(void)
{
    uint64_t most = 0;
    for (int level = 0; level < CACHE_LEVELS; level++) {
        uint64_t bytes = level_bytes(level);
        if (bytes > most) most = bytes;
    }
    return most ? most : USUAL_CACHE_BYTES;
}
