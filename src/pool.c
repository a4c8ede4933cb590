#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "align.h"
#include "clock.h"
#include "cores.h"

enum {
    SPIN_NS = 40000,      /* how long to look for work before sleeping */
    LOOKS_PER_CLOCK = 64, /* looks between two readings of the clock */
    CHUNKS_PER_THREAD = 4 /* so that a core that is held up gives work away */
};

/* A job's chunks are handed out through one 64-bit word: its number (high half) and the chunks not
 * yet taken (low half). Who takes a chunk from the word owns a part of that very job, and the job
 * cannot end, nor the fields below change, before that part is done. */
struct vti_pool {
    uint32_t threads;
    pthread_t *handles; /* threads - 1 */
    pthread_mutex_t in_use;

    vti_work_fn *work;
    void *context;
    size_t units;
    uint32_t chunks;
    uint32_t number;

    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t done;
    _Alignas(64) _Atomic uint32_t sleepers; /* workers asleep */
    _Atomic bool owner_sleeps;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t more, finished;
};

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static uint32_t chunks_left(vti_pool *p)
{
    return (uint32_t)atomic_load_explicit(&p->ticket, memory_order_acquire);
}

/* Where chunk `index` begins. Half of the work goes in one big chunk per thread, which memory is read
 * best in, a quarter in chunks of half that size, and the rest in such of a quarter, so that the
 * threads end together. */
static size_t chunk_begin(const vti_pool *p, uint32_t index)
{
    uint32_t t = p->threads, eighths;
    if (p->chunks < CHUNKS_PER_THREAD * t) return p->units * index / p->chunks;
    if (index <= t)
        eighths = 4 * index;
    else if (index <= 2 * t)
        eighths = 4 * t + 2 * (index - t);
    else
        eighths = 6 * t + (index - 2 * t);
    return p->units * eighths / (8 * t);
}

/* Takes one chunk and does it; false if none is left. */
static bool do_chunk(vti_pool *p)
{
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    do {
        if ((uint32_t)ticket == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket - 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    uint32_t index = p->chunks - (uint32_t)ticket;
    size_t begin = chunk_begin(p, index), end = chunk_begin(p, index + 1);
    p->work(p->context, begin, end);
    uint32_t all = p->chunks;
    if (atomic_fetch_add(&p->done, 1) + 1 == all && atomic_load(&p->owner_sleeps)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->finished);
        pthread_mutex_unlock(&p->lock);
    }
    return true;
}

/* Looks for `condition` for a while; true as soon as it holds. */
static bool spin_until(bool (*condition)(vti_pool *), vti_pool *p)
{
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (condition(p)) return true;
            relax();
        }
        uint64_t now = vti_now_ns();
        if (!start) start = now;
        if (now - start > SPIN_NS) return false;
    }
}

static bool has_work_or_stops(vti_pool *p) { return chunks_left(p) || atomic_load(&p->stop); }

static bool is_finished(vti_pool *p) { return atomic_load(&p->done) == p->chunks; }

static void sleep_until_work(vti_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_work_or_stops(p)) pthread_cond_wait(&p->more, &p->lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *serve(void *argument)
{
    vti_pool *p = argument;
    while (!atomic_load(&p->stop)) {
        if (do_chunk(p)) continue;
        if (!spin_until(has_work_or_stops, p)) sleep_until_work(p);
    }
    return NULL;
}

uint32_t vti_pool_default_threads(void) { return vti_cores_count(); }

static vt_status start_threads(vti_pool *p, uint32_t threads, vt_error *err)
{
    p->handles = calloc(threads, sizeof *p->handles);
    if (!p->handles) return vti_fail(err, VT_ERR_MEMORY, "no memory for %u threads", threads);
    for (p->threads = 1; p->threads < threads; p->threads++) {
        pthread_t *handle = &p->handles[p->threads - 1];
        if (pthread_create(handle, NULL, serve, p) != 0)
            return vti_fail(err, VT_ERR_MEMORY, "thread %u of %u could not be started",
                            p->threads + 1, threads);
        vti_cores_pin(*handle);
    }
    return VT_OK;
}

vt_status vti_pool_open(uint32_t threads, vti_pool **out, vt_error *err)
{
    *out = NULL;
    if (threads == 0) threads = vti_pool_default_threads();
    vti_pool *p = aligned_alloc(VTI_ALIGNMENT, (size_t)vti_align_up(sizeof *p, VTI_ALIGNMENT));
    if (!p) return vti_fail(err, VT_ERR_MEMORY, "no memory for a thread pool");
    *p = (vti_pool){.threads = 1};
    pthread_mutex_init(&p->in_use, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_cond_init(&p->finished, NULL);
    vt_status status = start_threads(p, threads, err);
    if (status != VT_OK) {
        vti_pool_close(p);
        return status;
    }
    *out = p;
    return VT_OK;
}

void vti_pool_close(vti_pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i + 1 < p->threads; i++) pthread_join(p->handles[i], NULL);
    pthread_cond_destroy(&p->more);
    pthread_cond_destroy(&p->finished);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->in_use);
    free(p->handles);
    free(p);
}

uint32_t vti_pool_threads(const vti_pool *p) { return p ? p->threads : 1; }

static void publish(vti_pool *p, size_t units, uint32_t chunks, vti_work_fn *work, void *context)
{
    p->work = work;
    p->context = context;
    p->units = units;
    p->chunks = chunks;
    atomic_store(&p->done, 0);
    /* Sequentially consistent with sleep_until_work: either the sleeper sees the ticket, or we see
     * the sleeper. */
    atomic_store(&p->ticket, (uint64_t)++p->number << 32 | chunks);
    if (atomic_load(&p->sleepers)) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->more);
        pthread_mutex_unlock(&p->lock);
    }
}

static void wait_finished(vti_pool *p)
{
    if (spin_until(is_finished, p)) return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->owner_sleeps, true);
    while (!is_finished(p)) pthread_cond_wait(&p->finished, &p->lock);
    atomic_store(&p->owner_sleeps, false);
    pthread_mutex_unlock(&p->lock);
}

void vti_pool_run(vti_pool *p, size_t units, size_t grain, vti_work_fn *work, void *context)
{
    if (units == 0) return;
    size_t pieces = units / (grain ? grain : 1);
    uint32_t most = vti_pool_threads(p) * CHUNKS_PER_THREAD;
    /* The smallest uneven chunk is half as long as an even one. */
    uint32_t even = pieces < most ? (uint32_t)(pieces ? pieces : 1) : most - 1;
    uint32_t chunks = pieces < 2 * (size_t)most ? even : most;
    if (vti_pool_threads(p) == 1 || chunks == 1 || pthread_mutex_trylock(&p->in_use) != 0) {
        work(context, 0, units);
        return;
    }
    publish(p, units, chunks, work, context);
    while (do_chunk(p)) {}
    wait_finished(p);
    pthread_mutex_unlock(&p->in_use);
}
