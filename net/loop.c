/* Who runs the event loop. A call that waits (vti_net_wait, vti_net_drain) runs it itself, so that
 * what arrives needs no hand-over to another thread. When no call has run it for a while, or one
 * left work behind, the background thread takes it, until a call wants it back. */
#include "state.h"

#include <signal.h>

#define NS_PER_MS 1000000u
#define SPIN_CREDIT 16u    /* spins in a row that may fail before they stop */
#define SPINS_SKIPPED 128u /* waits without one until it is tried again, */
#define SPIN_PROBES 4u     /* that many times */

uint64_t vti_net_now_ns(void) { return uv_hrtime(); }

uint64_t vti_net_after_ms(uint32_t ms) { return uv_hrtime() + (uint64_t)ms * NS_PER_MS; }

/* Heartbeats shall not be late by more than a quarter of their interval. */
static uint64_t takeover_ns(const vti_net *net)
{
    return (uint64_t)net->params.heartbeat_ms * NS_PER_MS / 4;
}

void vti_loop_changed(vti_net *net)
{
    if (net->followers > 0) uv_cond_broadcast(&net->changed);
}

void vti_loop_kick(vti_net *net)
{
    uv_async_send(&net->wake);
    if (net->owner != VTI_OWNER_NONE) return;
    net->urgent = true;
    uv_cond_signal(&net->background);
}

/* Calls only add in front of the lists and only loop code removes, in close callbacks: walking is
 * safe although the lock is released in between. */
static void on_wake(uv_async_t *handle)
{
    vti_net *net = handle->data;
    uv_mutex_lock(&net->lock);
    vti_loop_changed(net);
    for (vti_listener *listener = net->listeners; listener; listener = listener->next) {
        if (listener->open) continue;
        uv_mutex_unlock(&net->lock);
        vti_listener_attend(listener);
        uv_mutex_lock(&net->lock);
    }
    for (vti_peer *peer = net->peers; peer; peer = peer->next) {
        if (!peer->attention) continue;
        peer->attention = false;
        uv_mutex_unlock(&net->lock);
        vti_peer_attend(peer);
        uv_mutex_lock(&net->lock);
    }
    uv_mutex_unlock(&net->lock);
}

static void on_deadline(uv_timer_t *timer) { (void)timer; }

/* Something is under way that should not wait for the takeover time. */
static bool work_left(const vti_net *net)
{
    for (const vti_peer *peer = net->peers; peer; peer = peer->next)
        if (peer->sender.blocked || (peer->state != VTI_PEER_UP && peer->state != VTI_PEER_CLOSING))
            return true;
    return false;
}

static void release(vti_net *net)
{
    net->owner = VTI_OWNER_NONE;
    net->used_ns = uv_hrtime();
    net->urgent = work_left(net);
    vti_loop_changed(net);
    if (net->parked || net->urgent) uv_cond_signal(&net->background);
}

/* Sleeps on `condition` until it is signalled or the time comes. */
static void sleep_until(vti_net *net, uv_cond_t *condition, uint64_t deadline_ns)
{
    if (deadline_ns == VTI_NET_NEVER) {
        uv_cond_wait(condition, &net->lock);
        return;
    }
    uint64_t now = uv_hrtime();
    if (now < deadline_ns) uv_cond_timedwait(condition, &net->lock, deadline_ns - now);
}

static void background(void *argument)
{
    vti_net *net = argument;
    uv_mutex_lock(&net->lock);
    while (!net->stop) {
        uint64_t due = net->used_ns + takeover_ns(net);
        if (net->owner != VTI_OWNER_NONE || net->callers > 0) {
            net->parked = true;
            sleep_until(net, &net->background, VTI_NET_NEVER);
            net->parked = false;
        } else if (!net->urgent && uv_hrtime() < due) {
            sleep_until(net, &net->background, due);
        } else {
            net->urgent = false;
            net->owner = VTI_OWNER_BACKGROUND;
            while (!net->stop && net->callers == 0) {
                uv_mutex_unlock(&net->lock);
                uv_run(&net->loop, UV_RUN_ONCE);
                uv_mutex_lock(&net->lock);
            }
            release(net);
        }
    }
    bool orphan = net->orphan;
    uv_mutex_unlock(&net->lock);
    if (!orphan) return;
    uv_run(&net->loop, UV_RUN_DEFAULT);
    vti_net_free(net);
}

static bool something_came(vti_net *net)
{
    uv_mutex_lock(&net->lock);
    bool came = net->first_event != NULL;
    uv_mutex_unlock(&net->lock);
    return came || atomic_load(&net->interrupted);
}

/* Polls for a short while, as long as that has paid lately: where answers take longer, or where
 * the other side needs this very core to answer, it only burns time. True: something came. */
static bool spin_round(vti_net *net, uint64_t deadline_ns)
{
    if (net->spin_credit == 0 && ++net->spins_skipped < SPINS_SKIPPED) return false;
    if (net->spin_credit == 0) net->spin_credit = SPIN_PROBES;
    net->spins_skipped = 0;
    uint64_t end = uv_hrtime() + (uint64_t)net->params.spin_us * 1000u;
    if (end > deadline_ns) end = deadline_ns;
    bool came, late;
    do {
        uv_run(&net->loop, UV_RUN_NOWAIT);
        came = something_came(net);
        late = uv_hrtime() >= end; /* also if this thread had to stand aside for the answer */
    } while (!came && !late);
    if (late)
        net->spin_credit--;
    else if (net->spin_credit < SPIN_CREDIT)
        net->spin_credit++;
    return came;
}

/* One round, as the owner and without the lock. */
static void run_round(vti_net *net, uint64_t deadline_ns, bool spin)
{
    uint64_t now = uv_hrtime();
    if (spin && net->params.spin_us > 0 && now < deadline_ns) {
        if (spin_round(net, deadline_ns)) return;
        now = uv_hrtime();
    }
    if (now >= deadline_ns) {
        uv_run(&net->loop, UV_RUN_NOWAIT);
        return;
    }
    if (deadline_ns != VTI_NET_NEVER) {
        uint64_t ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
        uv_update_time(&net->loop);
        uv_timer_start(&net->deadline, on_deadline, ms, 0);
    }
    uv_run(&net->loop, UV_RUN_ONCE);
    uv_timer_stop(&net->deadline);
}

void vti_loop_turn(vti_net *net, uint64_t deadline_ns, bool eager, bool spin)
{
    if (net->owner == VTI_OWNER_NONE) {
        net->owner = VTI_OWNER_CALLER;
        uv_mutex_unlock(&net->lock);
        run_round(net, deadline_ns, spin);
        uv_mutex_lock(&net->lock);
        release(net);
        return;
    }
    if (eager) {
        net->callers++;
        if (net->owner == VTI_OWNER_BACKGROUND) uv_async_send(&net->wake);
    }
    net->followers++;
    sleep_until(net, &net->changed, deadline_ns);
    net->followers--;
    if (!eager) return;
    net->callers--;
    if (net->owner == VTI_OWNER_NONE && net->parked) uv_cond_signal(&net->background);
}

void vti_net_interrupt(vti_net *net)
{
    atomic_store(&net->interrupted, true);
    uv_async_send(&net->wake);
}

/* The background thread leaves signals to the threads of the application. */
static int start_thread(vti_net *net)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = uv_thread_create(&net->thread, background, net);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

vti_net_status vti_loop_start(vti_net *net, vti_net_error *err)
{
    int error = uv_loop_init(&net->loop);
    if (error) goto no_loop;
    error = uv_async_init(&net->loop, &net->wake, on_wake);
    if (error) goto no_wake;
    net->wake.data = net->tick.data = net;
    uv_timer_init(&net->loop, &net->deadline);
    uv_timer_init(&net->loop, &net->tick);
    uv_timer_start(&net->tick, vti_peer_tick, net->params.heartbeat_ms, net->params.heartbeat_ms);
    net->used_ns = uv_hrtime();
    net->spin_credit = SPIN_CREDIT;
    error = start_thread(net);
    if (!error) return VTI_NET_OK;
    uv_close((uv_handle_t *)&net->wake, NULL);
    uv_close((uv_handle_t *)&net->tick, NULL);
    uv_close((uv_handle_t *)&net->deadline, NULL);
    uv_run(&net->loop, UV_RUN_DEFAULT);
no_wake:
    uv_loop_close(&net->loop);
no_loop:
    return vti_net_fail(err, VTI_NET_ERR_SYSTEM, "no event loop: %s", uv_strerror(error));
}

static void close_handles(vti_net *net)
{
    for (vti_peer *peer = net->peers; peer; peer = peer->next) vti_peer_close(peer);
    for (vti_listener *listener = net->listeners; listener; listener = listener->next)
        vti_listener_close(listener);
    uv_close((uv_handle_t *)&net->wake, NULL);
    uv_close((uv_handle_t *)&net->tick, NULL);
    uv_close((uv_handle_t *)&net->deadline, NULL);
    for (int round = 0; round < 3 && uv_loop_alive(&net->loop); round++)
        uv_run(&net->loop, UV_RUN_NOWAIT);
}

bool vti_loop_finish(vti_net *net)
{
    uv_mutex_lock(&net->lock);
    while (net->owner != VTI_OWNER_NONE) vti_loop_turn(net, VTI_NET_NEVER, true, false);
    net->owner = VTI_OWNER_CALLER;
    uv_mutex_unlock(&net->lock);
    close_handles(net);

    uv_mutex_lock(&net->lock);
    net->stop = true;
    net->orphan = uv_loop_alive(&net->loop); /* a name is being looked up */
    bool orphan = net->orphan;
    uv_thread_t thread = net->thread;
    uv_cond_signal(&net->background);
    if (orphan) pthread_detach(thread);
    uv_mutex_unlock(&net->lock);
    if (!orphan) uv_thread_join(&thread);
    return !orphan;
}
