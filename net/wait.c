/* The calls that wait. */
#include "state.h"

static bool take_interrupt(vti_net *net) { return atomic_exchange(&net->interrupted, false); }

vti_net_status vti_net_wait(vti_net *net, uint64_t deadline_ns, vti_net_event *out)
{
    vti_net_status status = VTI_NET_OK;
    bool looked = false;
    uv_mutex_lock(&net->lock);
    while (!vti_event_pop(net, out)) {
        if (take_interrupt(net)) {
            status = VTI_NET_ERR_INTERRUPTED;
            break;
        }
        if (looked && vti_net_now_ns() >= deadline_ns) {
            status = VTI_NET_ERR_TIMEOUT;
            break;
        }
        vti_loop_turn(net, deadline_ns, true, !looked);
        looked = true;
    }
    uv_mutex_unlock(&net->lock);
    return status;
}

vti_net_status vti_net_drain(vti_net *net, vti_net_peer id, size_t limit_bytes,
                             uint64_t deadline_ns)
{
    vti_net_status status = VTI_NET_OK;
    uv_mutex_lock(&net->lock);
    for (;;) {
        const vti_peer *peer = vti_peer_find(net, id);
        if (!peer || peer->state != VTI_PEER_UP) status = VTI_NET_ERR_GONE;
        else if (peer->sender.queued_bytes <= limit_bytes) break;
        else if (take_interrupt(net)) status = VTI_NET_ERR_INTERRUPTED;
        else if (vti_net_now_ns() >= deadline_ns) status = VTI_NET_ERR_TIMEOUT;
        if (status != VTI_NET_OK) break;
        vti_loop_turn(net, deadline_ns, false, false);
    }
    uv_mutex_unlock(&net->lock);
    return status;
}
