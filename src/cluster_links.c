#include "cluster_links.h"

#include <math.h>

#define TYPICAL_BYTES 10240.0  /* of an activation: by this, paths are compared */
#define RADIO_LATENCY_S 0.4e-3 /* what takes longer is a radio, if nobody says what it is */

static const vti_plan_link no_link = {VTI_LINK_NONE_LATENCY_S, VTI_LINK_NONE_BYTES_PER_S, 0};

static bool exists(const vti_plan_link *link) { return link->latency_s < VTI_LINK_NONE_LATENCY_S; }

/* --- what a description must be like --------------------------------------------------------- */

static bool amount(double x) { return isfinite(x) && x >= 0; }

static bool has_attachment(const vti_device_media *device, unsigned network)
{
    for (unsigned i = 0; i < device->attachments; i++)
        if (device->attachment[i].network == network) return true;
    return false;
}

static const char *check_network(const vti_cluster_media *media, unsigned n)
{
    const vti_network *network = &media->network[n];
    if (!network->medium) return "a network needs a medium";
    if (network->hub == VTI_HUB_OUTSIDE || network->hub == VTI_HUB_NONE) return NULL;
    if (network->hub >= media->devices || !has_attachment(&media->device[network->hub], n))
        return "the hub of a network must be a device that is attached to it";
    return NULL;
}

static const char *check_device(const vti_cluster_media *media, const vti_device_media *device)
{
    if (device->attachments > VTI_ATTACHMENTS_MAX)
        return "a device may be attached to at most 3 networks";
    for (unsigned i = 0; i < device->attachments; i++) {
        const vti_attachment *a = &device->attachment[i];
        if (a->network >= media->networks)
            return "a device is attached to a network that is not there";
        if (!isfinite(a->rssi_dbm) || a->rssi_dbm > 0)
            return "a signal must be below 0 dBm, or 0 if it is not known";
        if (!amount(a->latency_s) || !amount(a->bytes_per_s))
            return "latency and bandwidth of an attachment must not be negative";
    }
    if (!amount(device->to_main.latency_s) || !amount(device->to_main.bytes_per_s))
        return "measured latency and bandwidth must not be negative";
    return NULL;
}

const char *vti_cluster_media_check(const vti_cluster_media *media, unsigned *where,
                                    bool *is_network)
{
    *where = 0;
    *is_network = true;
    if (media->networks > VTI_NETWORKS_MAX) return "there may be at most 8 networks";
    *is_network = false;
    if (media->devices == 0 || media->devices > VTI_PLAN_DEVICES_MAX)
        return "there must be 1 to 8 devices";
    for (unsigned d = 0; d < media->devices; d++) {
        const char *wrong = check_device(media, &media->device[d]);
        *where = d;
        if (wrong) return wrong;
    }
    *is_network = true;
    for (unsigned n = 0; n < media->networks; n++) {
        const char *wrong = check_network(media, n);
        *where = n;
        if (wrong) return wrong;
    }
    return NULL;
}

/* --- paths by media -------------------------------------------------------------------------- */

/* From a device to the hub of its network, or, if there is none, to the others. */
static vti_plan_link leg(const vti_cluster_media *media, unsigned device, const vti_attachment *a)
{
    const vti_network *network = &media->network[a->network];
    unsigned group = network->medium->radio ? a->network + 1 : 0;
    if (network->hub == device) return (vti_plan_link){0, HUGE_VAL, group};
    vti_plan_link link = {a->latency_s, a->bytes_per_s, group};
    if (link.latency_s == 0) link.latency_s = vti_medium_latency_s(network->medium, a->rssi_dbm);
    if (link.bytes_per_s == 0)
        link.bytes_per_s = vti_medium_bytes_per_s(network->medium, a->rssi_dbm);
    return link.bytes_per_s > 0 ? link : no_link;
}

static double seconds(const vti_plan_link *link)
{
    return link->latency_s + TYPICAL_BYTES / link->bytes_per_s;
}

/* Between the hubs of two networks of a site. */
static vti_plan_link cable(void)
{
    const vti_medium *medium = vti_medium_find("ethernet-1000");
    return (vti_plan_link){medium->latency_s, vti_medium_bytes_per_s(medium, VTI_RSSI_UNKNOWN), 0};
}

/* One after the other on different media: the slower one is what is shared. */
static vti_plan_link in_a_row(const vti_plan_link *a, const vti_plan_link *b)
{
    if (isinf(a->bytes_per_s) && isinf(b->bytes_per_s)) return cable();
    const vti_plan_link *slower = a->bytes_per_s < b->bytes_per_s ? a : b;
    unsigned group = slower->group;
    if (group == 0) group = a->group ? a->group : b->group;
    return (vti_plan_link){a->latency_s + b->latency_s, slower->bytes_per_s, group};
}

static vti_plan_link path(const vti_cluster_media *media, unsigned from, const vti_attachment *a,
                          unsigned to, const vti_attachment *b)
{
    const vti_network *n = &media->network[a->network], *m = &media->network[b->network];
    vti_plan_link out = leg(media, from, a), in = leg(media, to, b);
    if (!exists(&out) || !exists(&in)) return no_link;
    if (a->network != b->network)
        return n->site && n->site == m->site ? in_a_row(&out, &in) : no_link;
    bool direct = n->hub == VTI_HUB_NONE || (!n->medium->radio && n->hub == VTI_HUB_OUTSIDE);
    if (direct)
        return (vti_plan_link){fmax(out.latency_s, in.latency_s),
                               fmin(out.bytes_per_s, in.bytes_per_s), out.group};
    if (!n->medium->radio) return in_a_row(&out, &in);
    /* To the hub and from there on, in the same airtime. */
    return (vti_plan_link){out.latency_s + in.latency_s,
                           1 / (1 / out.bytes_per_s + 1 / in.bytes_per_s), out.group};
}

static vti_plan_link best_path(const vti_cluster_media *media, unsigned from, unsigned to)
{
    const vti_device_media *f = &media->device[from], *t = &media->device[to];
    vti_plan_link best = no_link;
    for (unsigned i = 0; i < f->attachments; i++)
        for (unsigned j = 0; j < t->attachments; j++) {
            vti_plan_link link = path(media, from, &f->attachment[i], to, &t->attachment[j]);
            if (seconds(&link) < seconds(&best)) best = link;
        }
    return best;
}

/* --- measurements ---------------------------------------------------------------------------- */

static bool is_measured(const vti_device_media *device) { return device->to_main.bytes_per_s > 0; }

/* What a link is that only was measured. */
static vti_plan_link measured(const vti_cluster_media *media, double latency_s, double bytes_per_s)
{
    unsigned spare = media->networks < VTI_NETWORKS_MAX ? media->networks + 1 : VTI_NETWORKS_MAX;
    return (vti_plan_link){latency_s, bytes_per_s, latency_s > RADIO_LATENCY_S ? spare : 0};
}

static vti_plan_link link_to_main(const vti_cluster_media *media, unsigned device)
{
    const vti_device_media *d = &media->device[device];
    vti_plan_link link = best_path(media, 0, device);
    if (!is_measured(d)) return link;
    vti_plan_link known = measured(media, d->to_main.latency_s, d->to_main.bytes_per_s);
    if (exists(&link)) known.group = link.group;
    return known;
}

/* What was measured between a device and main says how good the medium is for its other links. */
static void correct(const vti_cluster_media *media, unsigned device, vti_plan_link *link)
{
    const vti_link_estimate *known = &media->device[device].to_main;
    vti_plan_link guess = best_path(media, 0, device);
    if (!is_measured(&media->device[device]) || !exists(&guess) || guess.group != link->group)
        return;
    if (guess.latency_s > 0)
        link->latency_s *= known->latency_s / guess.latency_s;
    link->bytes_per_s *= known->bytes_per_s / guess.bytes_per_s;
}

static vti_plan_link link_between(const vti_cluster_media *media, unsigned a, unsigned b)
{
    const vti_device_media *first = &media->device[a], *second = &media->device[b];
    vti_plan_link link = best_path(media, a, b);
    if (exists(&link)) {
        vti_plan_link by_first = link, by_second = link;
        correct(media, a, &by_first);
        correct(media, b, &by_second);
        return (vti_plan_link){fmax(by_first.latency_s, by_second.latency_s),
                               fmin(by_first.bytes_per_s, by_second.bytes_per_s), link.group};
    }
    bool by_media = first->attachments > 0 && second->attachments > 0;
    if (by_media || !is_measured(first) || !is_measured(second)) return no_link;
    return measured(media, fmax(first->to_main.latency_s, second->to_main.latency_s),
                    fmin(first->to_main.bytes_per_s, second->to_main.bytes_per_s));
}

unsigned vti_cluster_links(const vti_cluster_media *media, vti_plan_cluster *cluster)
{
    unsigned reached = 1;
    for (unsigned a = 0; a < media->devices; a++) {
        cluster->link[a][a] = (vti_plan_link){0, 1e12, 0};
        for (unsigned b = 0; b < a; b++) {
            vti_plan_link link = b == 0 ? link_to_main(media, a) : link_between(media, b, a);
            cluster->link[a][b] = cluster->link[b][a] = link;
            if (b == 0 && exists(&link)) reached |= 1u << a;
        }
    }
    return reached;
}
