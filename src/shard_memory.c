/* shard_memory.c: regions of pages, best fit.
 *
 * A block is a piece of a region that can be one huge page. It is in one of three states:
 *   empty   nothing allocated there, nothing resident
 *   huge    resident as a whole: a first touch brings all of it
 *   small   resident page by page: only what is allocated
 * A block becomes huge when one allocation covers it, when its last hole is filled, or at the end
 * of what is allocated so far, where the next allocation will share it. Freeing a part of a huge
 * block makes it small. So what is held beyond what was asked for is less than a page per
 * allocation and a block per region, whatever the order of calls. */
#include "shard_memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "align.h"
#include "bits.h"

#if defined(__SANITIZE_ADDRESS__)
#define VTI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VTI_ASAN 1
#endif
#endif
#ifdef VTI_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25 /* since Linux 6.1; an older one refuses */
#endif

enum { BLOCK_BYTES = VTI_SHARD_MEMORY_BLOCK, REGION_BYTES = VTI_SHARD_MEMORY_REGION };

typedef struct region {
    struct region *next;
    unsigned char *mapped, *begin; /* begin: the first block of it */
    size_t mapped_bytes, pages, live_pages;
    uint64_t *live;  /* one bit per page: allocated … */
    uint64_t *first; /* … and the first one of its allocation */
    bool *huge;      /* one per block; of an empty block: becomes huge when touched */
    uint64_t bits[]; /* memory of the three */
} region;

struct vti_shard_memory {
    pthread_mutex_t lock;
    vti_budget *budget;
    vti_budget_category category;
    size_t page_bytes, block_pages;
    bool huge; /* blocks can be huge pages */
    region *regions;
    vti_shard_memory_usage usage;
};

/* --- what the system does -------------------------------------------------------------------- */

/* Whether memory that asks for them gets pages of BLOCK_BYTES. */
static bool system_has_huge_pages(size_t page_bytes)
{
#ifdef MADV_HUGEPAGE
    static const char enabled_name[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    static const char size_name[] = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    char line[64] = "[never]";
    unsigned long bytes = 0;
    FILE *enabled = fopen(enabled_name, "r"), *size = fopen(size_name, "r");
    if (enabled && !fgets(line, sizeof line, enabled)) strcpy(line, "[never]");
    if (size && fscanf(size, "%lu", &bytes) != 1) bytes = 0;
    if (enabled) fclose(enabled);
    if (size) fclose(size);
    return !strstr(line, "[never]") && bytes == BLOCK_BYTES && page_bytes < BLOCK_BYTES;
#else
    (void)page_bytes;
    return false;
#endif
}

static void advise_huge(void *at, size_t bytes, bool huge)
{
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
    (void)at, (void)bytes, (void)huge;
#endif
}

/* One huge page of a block's small ones, at once; otherwise the system does it some time. */
static void collapse(void *at)
{
#ifdef MADV_COLLAPSE
    madvise(at, BLOCK_BYTES, MADV_COLLAPSE);
#else
    (void)at;
#endif
}

static void release(void *at, size_t bytes) { madvise(at, bytes, MADV_DONTNEED); }

/* Of a part of a huge page, MADV_DONTNEED only ends the mapping: the memory itself stays until the
 * system is short of it. MADV_FREE divides the huge page. */
static void release_part(void *at, size_t bytes)
{
#ifdef MADV_FREE
    madvise(at, bytes, MADV_FREE);
#endif
    release(at, bytes);
}

/* --- regions --------------------------------------------------------------------------------- */

static unsigned char *page_at(const vti_shard_memory *m, const region *r, size_t page)
{
    return r->begin + page * m->page_bytes;
}

static region *map_region(const vti_shard_memory *m, size_t bytes)
{
    size_t pages = bytes / m->page_bytes, words = (pages + 63) / 64;
    size_t blocks = bytes / BLOCK_BYTES, mapped_bytes = bytes + BLOCK_BYTES;
    void *mapped = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    region *r = calloc(1, sizeof *r + 2 * words * sizeof(uint64_t) + blocks);
    if (!r) {
        munmap(mapped, mapped_bytes);
        return NULL;
    }
    r->mapped = mapped;
    r->begin = r->mapped + (BLOCK_BYTES - (uintptr_t)mapped % BLOCK_BYTES);
    r->mapped_bytes = mapped_bytes;
    r->pages = pages;
    r->live = r->bits;
    r->first = r->bits + words;
    r->huge = (bool *)(r->bits + 2 * words);
    if (m->huge) advise_huge(r->begin, bytes, true);
    memset(r->huge, m->huge, blocks);
    ASAN_POISON_MEMORY_REGION(r->begin, bytes);
    return r;
}

/* NULL: no address space. At the end of the list, so that the oldest fill up first. */
static region *add_region(vti_shard_memory *m, size_t bytes)
{
    size_t least = (size_t)vti_align_up(bytes, BLOCK_BYTES);
    region *r = least < REGION_BYTES ? map_region(m, REGION_BYTES) : NULL;
    if (!r) r = map_region(m, least);
    if (!r) return NULL;
    region **end = &m->regions;
    while (*end) end = &(*end)->next;
    *end = r;
    m->usage.regions++;
    m->usage.mapped_bytes += r->mapped_bytes;
    return r;
}

static void drop_region(vti_shard_memory *m, region *r)
{
    region **at = &m->regions;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    m->usage.regions--;
    m->usage.mapped_bytes -= r->mapped_bytes;
    ASAN_UNPOISON_MEMORY_REGION(r->begin, r->pages * m->page_bytes);
    munmap(r->mapped, r->mapped_bytes);
    free(r);
}

/* --- finding a place ------------------------------------------------------------------------- */

/* Where an allocation lies, or could. */
typedef struct place {
    region *region;
    size_t page, pages;
    size_t room; /* pages that are free from there on */
} place;

/* The smallest free range of a region that suffices, if it is smaller than the best so far. */
static void look_in(region *r, place *best)
{
    if (r->pages - r->live_pages < best->pages) return;
    for (size_t page = 0; page < r->pages && best->room != best->pages;) {
        size_t begin = vti_find_bit(r->live, page, r->pages, false);
        page = vti_find_bit(r->live, begin, r->pages, true);
        if (page - begin < best->pages || (best->region && page - begin >= best->room)) continue;
        best->region = r;
        best->page = begin;
        best->room = page - begin;
    }
}

static bool find_place(vti_shard_memory *m, size_t pages, place *out)
{
    *out = (place){.pages = pages};
    for (region *r = m->regions; r; r = r->next) look_in(r, out);
    if (out->region) return true;
    out->region = add_region(m, pages * m->page_bytes);
    if (!out->region) return false;
    out->room = out->region->pages;
    return true;
}

/* --- blocks ---------------------------------------------------------------------------------- */

typedef struct block_span {
    size_t first, end; /* blocks that a place touches */
} block_span;

static block_span blocks_of(const vti_shard_memory *m, const place *p)
{
    return (block_span){p->page / m->block_pages,
                        (p->page + p->pages + m->block_pages - 1) / m->block_pages};
}

static size_t live_in(const vti_shard_memory *m, const region *r, size_t block)
{
    return vti_count_bits(r->live, block * m->block_pages, (block + 1) * m->block_pages);
}

/* Pages of a place that lie in a block. */
static size_t share_of(const vti_shard_memory *m, const place *p, size_t block)
{
    size_t begin = block * m->block_pages, end = begin + m->block_pages;
    if (begin < p->page) begin = p->page;
    if (end > p->page + p->pages) end = p->page + p->pages;
    return end - begin;
}

static uint64_t held_by(const vti_shard_memory *m, const place *p)
{
    block_span blocks = blocks_of(m, p);
    uint64_t pages = 0;
    for (size_t b = blocks.first; b < blocks.end; b++) {
        size_t live = live_in(m, p->region, b);
        pages += live && p->region->huge[b] ? m->block_pages : live;
    }
    return pages * m->page_bytes;
}

/* What is held more once the place is taken. `huge`: an empty block becomes huge though the place
 * covers only a part of it. */
static uint64_t growth_of(const vti_shard_memory *m, const place *p, bool huge)
{
    block_span blocks = blocks_of(m, p);
    uint64_t pages = 0;
    for (size_t b = blocks.first; b < blocks.end; b++) {
        bool is_empty = live_in(m, p->region, b) == 0;
        if (is_empty && huge)
            pages += m->block_pages;
        else if (is_empty || !p->region->huge[b])
            pages += share_of(m, p, b);
    }
    return pages * m->page_bytes;
}

static void take_in_block(vti_shard_memory *m, const place *p, size_t block, bool huge)
{
    region *r = p->region;
    unsigned char *at = page_at(m, r, block * m->block_pages);
    size_t share = share_of(m, p, block), live = live_in(m, r, block);
    if (live == 0 && share < m->block_pages && !huge) {
        advise_huge(at, BLOCK_BYTES, false);
        r->huge[block] = false;
    } else if (!r->huge[block] && live + share == m->block_pages) {
        advise_huge(at, BLOCK_BYTES, true);
        collapse(at);
        r->huge[block] = true;
    }
}

/* Divides a huge block in which something is still allocated. */
static void make_small(vti_shard_memory *m, region *r, size_t block)
{
    size_t end = (block + 1) * m->block_pages;
    advise_huge(page_at(m, r, block * m->block_pages), BLOCK_BYTES, false);
    r->huge[block] = false;
    for (size_t page = block * m->block_pages; page < end;) {
        size_t begin = vti_find_bit(r->live, page, end, false);
        page = vti_find_bit(r->live, begin, end, true);
        if (begin < page) release_part(page_at(m, r, begin), (page - begin) * m->page_bytes);
    }
}

/* After pages of the block were freed. */
static void leave_block(vti_shard_memory *m, region *r, size_t block)
{
    unsigned char *at = page_at(m, r, block * m->block_pages);
    if (live_in(m, r, block)) {
        if (r->huge[block]) make_small(m, r, block);
        return;
    }
    release(at, BLOCK_BYTES);
    if (!r->huge[block]) advise_huge(at, BLOCK_BYTES, true);
    r->huge[block] = true;
}

uint32_t vti_shard_memory_page_bytes(void)
{
    long page = sysconf(_SC_PAGESIZE);
    return page > 0 && page <= BLOCK_BYTES ? (uint32_t)page : BLOCK_BYTES;
}

/* --- the interface --------------------------------------------------------------------------- */

vti_shard_memory *vti_shard_memory_open(vti_budget *budget, vti_budget_category category)
{
    vti_shard_memory *m = calloc(1, sizeof *m);
    long page = sysconf(_SC_PAGESIZE);
    if (!m || page <= 0 || page > BLOCK_BYTES || pthread_mutex_init(&m->lock, NULL) != 0) {
        free(m);
        return NULL;
    }
    m->budget = budget;
    m->category = category;
    m->page_bytes = (size_t)page;
    m->block_pages = BLOCK_BYTES / m->page_bytes;
    m->huge = system_has_huge_pages(m->page_bytes);
    return m;
}

void vti_shard_memory_close(vti_shard_memory *memory)
{
    if (!memory) return;
    while (memory->regions) drop_region(memory, memory->regions);
    vti_budget_give(memory->budget, memory->category, memory->usage.held_bytes);
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

/* The end of a region will go on being filled: what is allocated next shares its huge page. In a
 * hole, and where the budget is short, no more is held than was asked for. */
static vt_status pay(vti_shard_memory *m, const place *p, const char *what, bool *huge,
                     vt_error *err)
{
    uint64_t growth = growth_of(m, p, true);
    *huge = m->huge && p->page + p->room == p->region->pages &&
            vti_budget_try(m->budget, m->category, growth);
    if (!*huge) {
        growth = growth_of(m, p, false);
        VTI_TRY(vti_budget_take(m->budget, m->category, growth, what, err));
    }
    m->usage.held_bytes += growth;
    return VT_OK;
}

static void *take(vti_shard_memory *m, const place *p, bool huge, size_t bytes)
{
    region *r = p->region;
    block_span blocks = blocks_of(m, p);
    unsigned char *at = page_at(m, r, p->page);
    for (size_t b = blocks.first; m->huge && b < blocks.end; b++) take_in_block(m, p, b, huge);
    vti_fill_bits(r->live, p->page, p->page + p->pages, true);
    vti_set_bit(r->first, p->page);
    r->live_pages += p->pages;
    m->usage.allocations++;
    m->usage.allocated_bytes += p->pages * m->page_bytes;
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    return at;
}

static vt_status allocate(vti_shard_memory *m, size_t bytes, const char *what, void **out,
                          vt_error *err)
{
    place p;
    bool huge;
    if (bytes > SIZE_MAX / 4 || !find_place(m, (bytes + m->page_bytes - 1) / m->page_bytes, &p))
        return vti_fail(err, VT_ERR_MEMORY, "%.120s needs %zu bytes, but the system gives no "
                        "address space for them", what, bytes);
    vt_status status = pay(m, &p, what, &huge, err);
    if (status == VT_OK) *out = take(m, &p, huge, bytes);
    if (p.region->live_pages == 0) drop_region(m, p.region);
    return status;
}

vt_status vti_shard_memory_allocate(vti_shard_memory *memory, uint64_t bytes, const char *what,
                                    void **out, vt_error *err)
{
    *out = NULL;
    pthread_mutex_lock(&memory->lock);
    vt_status status = allocate(memory, bytes < SIZE_MAX ? (size_t)bytes + !bytes : SIZE_MAX, what,
                                out, err);
    pthread_mutex_unlock(&memory->lock);
    return status;
}

/* False: no allocation begins there. */
static bool find_allocation(const vti_shard_memory *m, const void *at, place *out)
{
    region *r = m->regions;
    uintptr_t address = (uintptr_t)at;
    while (r && (address < (uintptr_t)r->begin ||
                 address - (uintptr_t)r->begin >= r->pages * m->page_bytes))
        r = r->next;
    if (!r) return false;
    size_t offset = address - (uintptr_t)r->begin, page = offset / m->page_bytes;
    if (offset % m->page_bytes || !vti_get_bit(r->first, page)) return false;
    size_t end = vti_find_bit(r->first, page + 1, r->pages, true);
    *out = (place){r, page, vti_find_bit(r->live, page, end, false) - page, 0};
    return true;
}

static void leave(vti_shard_memory *m, const place *p)
{
    region *r = p->region;
    block_span blocks = blocks_of(m, p);
    uint64_t held = held_by(m, p);
    unsigned char *at = page_at(m, r, p->page);
    ASAN_POISON_MEMORY_REGION(at, p->pages * m->page_bytes);
    vti_fill_bits(r->live, p->page, p->page + p->pages, false);
    vti_fill_bits(r->first, p->page, p->page + 1, false);
    r->live_pages -= p->pages;
    if (m->huge) {
        leave_block(m, r, blocks.first);
        leave_block(m, r, blocks.end - 1); /* those between were this allocation's alone */
    }
    release(at, p->pages * m->page_bytes);
    held -= held_by(m, p);
    m->usage.held_bytes -= held;
    m->usage.allocated_bytes -= p->pages * m->page_bytes;
    m->usage.allocations--;
    if (r->live_pages == 0) drop_region(m, r);
    vti_budget_give(m->budget, m->category, held);
}

void vti_shard_memory_free(vti_shard_memory *memory, void *block)
{
    if (!block) return;
    place p;
    pthread_mutex_lock(&memory->lock);
    bool found = find_allocation(memory, block, &p);
    assert(found);
    if (found) leave(memory, &p);
    pthread_mutex_unlock(&memory->lock);
}

vti_shard_memory_usage vti_shard_memory_get(vti_shard_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    vti_shard_memory_usage usage = memory->usage;
    pthread_mutex_unlock(&memory->lock);
    return usage;
}
