#include "state.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIPTORS_NEEDED = 10 };

vti_net_params vti_net_params_default(void)
{
    return (vti_net_params){
        .heartbeat_ms = 250,
        .heartbeat_misses = 3,
        .handshake_timeout_ms = 2000,
        .handshakes_max = 16,
        .peers_max = 64,
        .send_limit_bytes = 16u << 20,
        .receive_limit_bytes = 32u << 20,
        .spin_us = 30,
    };
}

static vti_net_status check_params(const vti_net_params *params, vti_net_error *err)
{
    const char *zero = NULL;
    if (params->heartbeat_ms == 0) zero = "heartbeat_ms";
    if (params->heartbeat_misses == 0) zero = "heartbeat_misses";
    if (params->handshake_timeout_ms == 0) zero = "handshake_timeout_ms";
    if (params->handshakes_max == 0) zero = "handshakes_max";
    if (params->peers_max == 0) zero = "peers_max";
    if (params->send_limit_bytes == 0) zero = "send_limit_bytes";
    if (params->receive_limit_bytes == 0) zero = "receive_limit_bytes";
    if (zero) return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "%s is 0", zero);
    if (params->spin_us > 1000)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "spin_us is %u, at most 1000 is sensible",
                            params->spin_us);
    if (params->name && strlen(params->name) >= VTI_NET_NAME_MAX)
        return vti_net_fail(err, VTI_NET_ERR_ARGUMENT, "name is longer than %u bytes",
                            VTI_NET_NAME_MAX - 1);
    return VTI_NET_OK;
}

static vti_net_status start(vti_net *net, vti_net_error *err)
{
    net->scratch = malloc(VTI_READ_BYTES);
    if (!net->scratch) return vti_net_fail(err, VTI_NET_ERR_MEMORY, "no memory for the network");
    int error = uv_mutex_init(&net->lock);
    if (error) goto no_lock;
    error = uv_cond_init(&net->changed);
    if (error) goto no_changed;
    error = uv_cond_init(&net->background);
    if (error) goto no_background;
    vti_net_status status = vti_loop_start(net, err);
    if (status == VTI_NET_OK) return status;
    uv_cond_destroy(&net->background);
    uv_cond_destroy(&net->changed);
    uv_mutex_destroy(&net->lock);
    free(net->scratch);
    return status;
no_background:
    uv_cond_destroy(&net->changed);
no_changed:
    uv_mutex_destroy(&net->lock);
no_lock:
    free(net->scratch);
    return vti_net_fail(err, VTI_NET_ERR_SYSTEM, "no lock: %s", uv_strerror(error));
}

/* libuv aborts if it runs out of descriptors in the middle of starting a loop: look first. */
static bool descriptors_suffice(void)
{
    int probe[DESCRIPTORS_NEEDED], count = 0;
    while (count < DESCRIPTORS_NEEDED &&
           (probe[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    bool suffice = count == DESCRIPTORS_NEEDED;
    while (count > 0) close(probe[--count]);
    return suffice;
}

vti_net_status vti_net_open(const vti_net_params *params, vti_net **out, vti_net_error *err)
{
    *out = NULL;
    vti_net_status status = check_params(params, err);
    if (status != VTI_NET_OK) return status;
    if (sodium_init() < 0)
        return vti_net_fail(err, VTI_NET_ERR_SYSTEM, "the system has no source of randomness");
    if (!descriptors_suffice())
        return vti_net_fail(err, VTI_NET_ERR_SYSTEM,
                            "this process may open too few files (ulimit -n); at least %d more are "
                            "needed", DESCRIPTORS_NEEDED);
    vti_net *net = calloc(1, sizeof *net);
    if (!net) return vti_net_fail(err, VTI_NET_ERR_MEMORY, "no memory for the network");
    net->params = *params;
    const char *name = params->name ? params->name : "";
    vti_text_clean(net->name, sizeof net->name, name, strlen(name));
    net->params.name = net->name;
    if (params->key) {
        net->key = *params->key;
        net->params.key = &net->key;
    }
    status = start(net, err);
    if (status == VTI_NET_OK)
        *out = net;
    else
        free(net);
    return status;
}

void vti_net_close(vti_net *net)
{
    if (!net) return;
    uv_mutex_lock(&net->lock);
    vti_event_purge(net, 0);
    net->closing = true;
    for (vti_peer *peer = net->peers; peer; peer = peer->next)
        peer->leaving = peer->attention = true;
    vti_loop_kick(net);
    uint64_t deadline = vti_net_after_ms(VTI_LINGER_MS);
    while (net->peers && vti_net_now_ns() < deadline) vti_loop_turn(net, deadline, true, false);
    uv_mutex_unlock(&net->lock);
    if (vti_loop_finish(net)) vti_net_free(net);
}

void vti_net_free(vti_net *net)
{
    uv_loop_close(&net->loop);
    vti_event_purge(net, 0);
    uv_cond_destroy(&net->background);
    uv_cond_destroy(&net->changed);
    uv_mutex_destroy(&net->lock);
    free(net->scratch);
    sodium_memzero(net, sizeof *net);
    free(net);
}
