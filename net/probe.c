/* What is known of a peer's link, and measuring it. */
#include "state.h"

#define NS_PER_MS 1000000u
#define PINGS_MAX 8u
#define PINGS_MIN 3u
#define PINGS_MS 40u             /* no more than the least number once these have passed */
#define FIRST_BURST_BYTES 4096u
#define BURST_GROWS 4u
#define BURST_TELLS_MS 20u       /* a burst that took so long needs no larger one */

static vti_peer *find_up(vti_net *net, vti_net_peer id)
{
    vti_peer *peer = vti_peer_find(net, id);
    return peer && peer->state == VTI_PEER_UP ? peer : NULL;
}

vti_net_status vti_net_get_quality(vti_net *net, vti_net_peer id, vti_link_estimate *out)
{
    uv_mutex_lock(&net->lock);
    const vti_peer *peer = find_up(net, id);
    if (peer) vti_quality_estimate(&peer->sender.meter.quality, out);
    uv_mutex_unlock(&net->lock);
    return peer ? VTI_NET_OK : VTI_NET_ERR_GONE;
}

vti_net_status vti_net_set_medium(vti_net *net, vti_net_peer id, const vti_medium *medium,
                                  double rssi_dbm)
{
    uv_mutex_lock(&net->lock);
    vti_peer *peer = find_up(net, id);
    if (peer) {
        vti_quality *quality = &peer->sender.meter.quality;
        if (quality->medium == medium)
            vti_quality_set_rssi(quality, (double)vti_net_now_ns() * 1e-9, rssi_dbm);
        else
            vti_quality_init(quality, medium, rssi_dbm);
    }
    uv_mutex_unlock(&net->lock);
    return peer ? VTI_NET_OK : VTI_NET_ERR_GONE;
}

/* Lock held. Lets something happen; whether the peer is still there and there is time left. */
static vti_net_status wait_a_turn(vti_net *net, vti_net_peer id, uint64_t deadline_ns)
{
    if (!find_up(net, id)) return VTI_NET_ERR_GONE;
    if (atomic_exchange(&net->interrupted, false)) return VTI_NET_ERR_INTERRUPTED;
    if (vti_net_now_ns() >= deadline_ns) return VTI_NET_ERR_TIMEOUT;
    vti_loop_turn(net, deadline_ns, true, false);
    return find_up(net, id) ? VTI_NET_OK : VTI_NET_ERR_GONE;
}

/* Lock held; it is released while this waits. Padding and a PING, and the answer. */
static vti_net_status exchange(vti_net *net, vti_net_peer id, uint32_t bytes, uint64_t deadline_ns)
{
    vti_net_status status = VTI_NET_OK;
    vti_peer *peer = find_up(net, id);
    if (!peer) return VTI_NET_ERR_GONE;
    while (status == VTI_NET_OK && (peer->sender.ping_due || peer->sender.meter.waiting))
        status = wait_a_turn(net, id, deadline_ns);
    if (status != VTI_NET_OK) return status;
    uint64_t answers = peer->sender.meter.answers;
    vti_sender_probe(&peer->sender, bytes);
    peer->attention = true;
    vti_loop_kick(net);
    while (status == VTI_NET_OK && peer->sender.meter.answers == answers)
        status = wait_a_turn(net, id, deadline_ns);
    return status;
}

/* How long a burst will take, by what is known; 0 if nothing is. */
static double expected_s(vti_net *net, vti_net_peer id, uint32_t bytes)
{
    vti_link_estimate known;
    const vti_peer *peer = find_up(net, id);
    if (!peer || !vti_quality_estimate(&peer->sender.meter.quality, &known)) return 0;
    return known.bytes_per_s > 0 ? 2 * known.latency_s + bytes / known.bytes_per_s : 0;
}

static vti_net_status measure_latency(vti_net *net, vti_net_peer id, uint64_t deadline_ns)
{
    vti_net_status status = VTI_NET_OK;
    uint64_t enough_ns = vti_net_after_ms(PINGS_MS);
    for (unsigned i = 0; status == VTI_NET_OK && i < PINGS_MAX; i++) {
        if (i >= PINGS_MIN && vti_net_now_ns() >= enough_ns) break;
        status = exchange(net, id, 0, deadline_ns);
    }
    return status;
}

static vti_net_status measure_bandwidth(vti_net *net, vti_net_peer id, size_t limit_bytes,
                                        uint64_t begin_ns, uint64_t deadline_ns)
{
    vti_net_status status = VTI_NET_OK;
    size_t left = limit_bytes;
    uint32_t bytes = FIRST_BURST_BYTES;
    for (bool told = false; status == VTI_NET_OK && left > 0;) {
        if (bytes > left) bytes = (uint32_t)left;
        uint64_t now_ns = vti_net_now_ns(), passed_ns = now_ns - begin_ns;
        double expected_ms = expected_s(net, id, bytes) * 1e3;
        bool known = expected_ms > 0;
        if (known && (double)passed_ns / NS_PER_MS + expected_ms > VTI_NET_PROBE_MS) break;
        status = exchange(net, id, bytes, deadline_ns);
        left -= bytes;
        if (vti_net_now_ns() - now_ns < (uint64_t)BURST_TELLS_MS * NS_PER_MS)
            bytes *= BURST_GROWS;
        else if (told)
            break;
        else
            told = true; /* once more: the other side may have been busy */
    }
    return status;
}

vti_net_status vti_net_probe(vti_net *net, vti_net_peer id, size_t limit_bytes,
                             uint64_t deadline_ns, vti_link_estimate *out)
{
    if (limit_bytes == 0 || limit_bytes > VTI_NET_PROBE_BYTES) limit_bytes = VTI_NET_PROBE_BYTES;
    vti_net_status status = VTI_NET_OK;
    *out = (vti_link_estimate){ 0 };
    uv_mutex_lock(&net->lock);
    vti_peer *peer = find_up(net, id);
    uint64_t now_ns = vti_net_now_ns();
    uint64_t pause_ns = (uint64_t)VTI_NET_PROBE_EVERY_MS * NS_PER_MS;
    bool just_now = peer && peer->probed_ns && now_ns - peer->probed_ns < pause_ns;
    bool mine = peer && !peer->probing && !just_now;
    if (mine) {
        peer->probing = true;
        peer->probed_ns = now_ns;
        status = measure_latency(net, id, deadline_ns);
        if (status == VTI_NET_OK)
            status = measure_bandwidth(net, id, limit_bytes, now_ns, deadline_ns);
    }
    peer = find_up(net, id);
    if (peer && mine) {
        peer->probing = false;
        peer->sender.padding_bytes = 0;
    }
    if (peer) vti_quality_estimate(&peer->sender.meter.quality, out);
    uv_mutex_unlock(&net->lock);
    return peer ? status : VTI_NET_ERR_GONE;
}
