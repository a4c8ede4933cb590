#include "shard_loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "clock.h"
#include "load_pace.h"
#include "load_queue.h"

/* Replaced shards that may wait for readers at one time, whatever their bytes. */
enum { MOST_RETIRED = 64 };

struct vti_shard_loader {
    vti_shard_loader_params p;
    pthread_mutex_t lock; /* of all below; not held while loading, freeing or reporting */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stop;
    bool serving;         /* some thread serves: the only one that touches `retired` and slots */
    vti_load_queue queue;
    uint64_t next_ticket;
    uint32_t *first;      /* of each unit, in: */
    uint64_t *newest;     /* per slot the ticket of its newest request */
    bool loading;         /* `current` is: */
    bool abandon;         /* it was cancelled meanwhile */
    vti_load_item current;
    vti_shard *retired[MOST_RETIRED]; /* out of their slots, perhaps still read */
    uint32_t retired_count;
    uint64_t retired_bytes;
    uint64_t pause_end_ns; /* the loader's thread does nothing before */
    vti_shard_loader_stats stats;
};

/* --- replaced shards --------------------------------------------------------------------------- */

/* Frees what was replaced; nobody reads it any more. With the lock held, which is taken off. */
static void free_retired(vti_shard_loader *l)
{
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->retired_count; i++)
        l->p.supply.drop(l->p.supply.self, l->retired[i]);
    pthread_mutex_lock(&l->lock);
    l->stats.dropped += l->retired_count;
    l->retired_count = 0;
    l->retired_bytes = 0;
}

/* Waits until that can be done, and does it. With the lock held, which is taken off meanwhile. */
static void settle(vti_shard_loader *l)
{
    uint64_t start = vti_now_ns();
    l->stats.now = VTI_LOAD_WAITING;
    pthread_mutex_unlock(&l->lock);
    vti_shard_table_wait(l->p.table);
    pthread_mutex_lock(&l->lock);
    l->stats.now = VTI_LOAD_SERVING;
    l->stats.waited_ns += vti_now_ns() - start;
    free_retired(l);
}

/* So that `bytes` more are within the bound. False: the request was cancelled meanwhile. */
static bool make_room(vti_shard_loader *l, uint64_t bytes)
{
    pthread_mutex_lock(&l->lock);
    bool full = l->retired_count == MOST_RETIRED || l->retired_bytes + bytes > l->p.extra_bytes;
    if (l->retired_count && full)
        settle(l);
    else if (l->retired_count && vti_shard_table_passed(l->p.table))
        free_retired(l);
    bool wanted = !l->abandon;
    pthread_mutex_unlock(&l->lock);
    return wanted;
}

/* --- one request ------------------------------------------------------------------------------- */

static vt_status cancelled(vt_error *err)
{
    return vti_fail(err, VT_ERR_CANCELLED, "the loading of a shard was cancelled");
}

static bool is_there_already(const vti_shard_loader *l, const vti_load_item *item)
{
    vti_shard_id id = item->request.id;
    const vti_shard *now = vti_shard_table_get(l->p.table, id.unit, id.shard);
    if (item->request.remove) return now == NULL;
    if (!now) return false;
    bool shared = id.shard + 1 == vti_shard_table_slots(l->p.table, id.unit);
    return shared || now->id.precision == id.precision;
}

static vt_status load(vti_shard_loader *l, vti_shard_id id, vti_shard **out, vt_error *err)
{
    const vti_shard_supply *supply = &l->p.supply;
    uint64_t bytes;
    VTI_TRY(supply->bytes(supply->self, id, &bytes, err));
    if (!make_room(l, bytes)) return cancelled(err);
    uint64_t start = vti_now_ns();
    VTI_TRY(supply->make(supply->self, id, out, err));
    uint64_t busy = vti_now_ns() - start;
    pthread_mutex_lock(&l->lock);
    l->stats.busy_ns += busy;
    l->stats.bytes += bytes;
    l->stats.loaded++;
    if (l->retired_bytes + bytes > l->stats.peak_extra_bytes)
        l->stats.peak_extra_bytes = l->retired_bytes + bytes;
    pthread_mutex_unlock(&l->lock);
    return VT_OK;
}

/* Puts the shard into its slot, unless the request was cancelled while it was loaded. */
static bool install(vti_shard_loader *l, vti_shard_id id, vti_shard *shard)
{
    pthread_mutex_lock(&l->lock);
    bool wanted = !l->abandon;
    l->loading = false;
    if (wanted) {
        vti_shard *old = vti_shard_table_exchange(l->p.table, id.unit, id.shard, shard);
        if (old) {
            vti_shard_table_mark(l->p.table);
            l->retired[l->retired_count++] = old;
            l->retired_bytes += old->bytes;
        }
    } else if (shard) {
        l->stats.dropped++;
    }
    pthread_mutex_unlock(&l->lock);
    return wanted;
}

static vt_status serve(vti_shard_loader *l, const vti_load_item *item, vt_error *err)
{
    vti_shard *shard = NULL;
    vti_shard_id id = item->request.id;
    if (is_there_already(l, item)) return VT_OK;
    if (item->request.remove)
        make_room(l, 0); /* for one more that waits to be freed */
    else
        VTI_TRY(load(l, id, &shard, err));
    if (install(l, id, shard)) return VT_OK;
    if (shard) l->p.supply.drop(l->p.supply.self, shard);
    return cancelled(err);
}

/* Takes the lock, which the caller holds, off while it works. */
static void serve_next(vti_shard_loader *l)
{
    vti_load_item item = vti_load_queue_pop(&l->queue);
    vt_error err = {0};
    vt_status status = VT_OK;
    vti_shard_id id = item.request.id;
    bool over = item.cancelled || item.ticket != l->newest[l->first[id.unit] + id.shard];
    l->loading = !over;
    l->abandon = false;
    l->current = item;
    pthread_mutex_unlock(&l->lock);
    status = over ? cancelled(&err) : serve(l, &item, &err);
    if (item.request.done) item.request.done(item.request.user, id, status, err.message);
    pthread_mutex_lock(&l->lock);
    l->loading = false;
    l->stats.pending--;
    if (status == VT_ERR_CANCELLED)
        l->stats.cancelled++;
    else if (status != VT_OK)
        l->stats.failed++;
}

/* With the lock held, and nobody serving: the next request or, if there is none, what was replaced. */
static void serve_or_settle(vti_shard_loader *l)
{
    l->serving = true;
    l->stats.now = VTI_LOAD_SERVING;
    if (l->queue.count)
        serve_next(l);
    else
        settle(l);
    l->serving = false;
    l->stats.now = VTI_LOAD_NONE;
}

static bool has_work(const vti_shard_loader *l) { return l->queue.count || l->retired_count; }

static void sleep_until(vti_shard_loader *l, uint64_t ns)
{
    struct timespec end = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&l->changed, &l->lock, &end);
}

static void work_for_a_while(vti_shard_loader *l)
{
    while (has_work(l) && !l->serving && !l->stop && vti_now_ns() >= l->pause_end_ns) {
        uint64_t before = vti_load_worked_ns();
        serve_or_settle(l);
        uint64_t pause = vti_load_pause_ns(l->p.pace, vti_load_worked_ns() - before);
        if (pause) l->pause_end_ns = vti_now_ns() + pause;
    }
    pthread_cond_broadcast(&l->changed);
}

static void *run(void *argument)
{
    vti_shard_loader *l = argument;
    vti_load_pace_apply(l->p.pace);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!has_work(l) || l->serving)
            pthread_cond_wait(&l->changed, &l->lock);
        else if (vti_now_ns() < l->pause_end_ns)
            sleep_until(l, l->pause_end_ns);
        else
            work_for_a_while(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void vti_shard_loader_finish(vti_shard_loader *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->stats.pending || l->retired_count || l->serving) {
        if (l->serving)
            pthread_cond_wait(&l->changed, &l->lock);
        else
            serve_or_settle(l);
    }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void vti_shard_loader_wait(vti_shard_loader *l)
{
    if (!l->has_thread) {
        vti_shard_loader_finish(l);
        return;
    }
    pthread_mutex_lock(&l->lock);
    while (l->stats.pending || l->retired_count || l->serving)
        pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* --- requests ---------------------------------------------------------------------------------- */

vt_status vti_shard_loader_request(vti_shard_loader *l, const vti_load_request *request,
                                   uint64_t *ticket, vt_error *err)
{
    vti_shard_id id = request->id;
    if (!vti_shard_table_has(l->p.table, id.unit) ||
        id.shard >= vti_shard_table_slots(l->p.table, id.unit))
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "shard %" PRIu32 " of unit %" PRIu32 " has no place on this device",
                        id.shard, id.unit);
    pthread_mutex_lock(&l->lock);
    vti_load_item item = {*request, l->next_ticket, false};
    bool queued = vti_load_queue_push(&l->queue, &item);
    if (queued) {
        uint64_t *newest = &l->newest[l->first[id.unit] + id.shard];
        if (l->loading && l->current.ticket == *newest) l->abandon = true;
        *newest = l->next_ticket++;
        l->stats.pending++;
        if (ticket) *ticket = item.ticket;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    if (queued) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a request to load a shard");
}

/* Cancels what `matches`; `key` 0 matches all. */
static void cancel(vti_shard_loader *l, bool (*matches)(const vti_load_item *, uint64_t),
                   uint64_t key)
{
    pthread_mutex_lock(&l->lock);
    vti_load_queue_cancel(&l->queue, matches, key);
    if (l->loading && matches(&l->current, key)) l->abandon = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

static bool has_ticket(const vti_load_item *item, uint64_t key) { return item->ticket == key; }

static bool is_of_group(const vti_load_item *item, uint64_t key)
{
    return item->request.group == key;
}

static bool is_any(const vti_load_item *item, uint64_t key)
{
    (void)item;
    (void)key;
    return true;
}

void vti_shard_loader_cancel(vti_shard_loader *l, uint64_t ticket) { cancel(l, has_ticket, ticket); }

void vti_shard_loader_cancel_group(vti_shard_loader *l, uint64_t group)
{
    cancel(l, is_of_group, group);
}

void vti_shard_loader_cancel_all(vti_shard_loader *l) { cancel(l, is_any, 0); }

vti_shard_loader_stats vti_shard_loader_get_stats(vti_shard_loader *l)
{
    pthread_mutex_lock(&l->lock);
    vti_shard_loader_stats stats = l->stats;
    pthread_mutex_unlock(&l->lock);
    return stats;
}

/* --- opening, closing -------------------------------------------------------------------------- */

static bool allocate(vti_shard_loader *l)
{
    uint32_t units = vti_shard_table_units(l->p.table);
    l->first = calloc((size_t)units + 1, sizeof *l->first);
    if (!l->first) return false;
    for (uint32_t u = 0; u < units; u++)
        l->first[u + 1] = l->first[u] + vti_shard_table_slots(l->p.table, u);
    l->newest = calloc((size_t)l->first[units] + 1, sizeof *l->newest);
    return l->newest != NULL;
}

vt_status vti_shard_loader_open(const vti_shard_loader_params *params, vti_shard_loader **out,
                                vt_error *err)
{
    *out = NULL;
    vti_shard_loader *l = calloc(1, sizeof *l);
    if (!l) return vti_fail(err, VT_ERR_MEMORY, "no memory for a loader of shards");
    l->p = *params;
    l->next_ticket = 1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    vt_status status = VT_OK;
    if (!allocate(l)) status = vti_fail(err, VT_ERR_MEMORY, "no memory for a loader of shards");
    if (status == VT_OK && params->pace != VTI_PACE_NONE) {
        l->has_thread = pthread_create(&l->thread, NULL, run, l) == 0;
        if (!l->has_thread)
            status = vti_fail(err, VT_ERR_MEMORY, "the loader's thread could not be started");
    }
    if (status != VT_OK) {
        vti_shard_loader_close(l);
        return status;
    }
    *out = l;
    return VT_OK;
}

void vti_shard_loader_close(vti_shard_loader *l)
{
    if (!l) return;
    vti_shard_loader_cancel_all(l);
    if (l->has_thread) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    vti_shard_loader_finish(l);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    vti_load_queue_free(&l->queue);
    free(l->newest);
    free(l->first);
    free(l);
}
