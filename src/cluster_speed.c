/* cluster_speed.c: how fast devices and the links to them are. */
#include "cluster_internal.h"

/* For one link; most are done in a tenth of it. */
enum { PROBE_TIMEOUT_MS = 1000 };

/* Of a device that nobody has measured: multiply-accumulates and bytes of memory per second. */
static const double usual_macs = 2e10, usual_bytes = 1e10, usual_fixed_s = 1e-6;

static void set_usual_speed(vti_plan_device *out)
{
    for (int kind = 0; kind < VTI_PLAN_KINDS; kind++)
        for (int precision = 0; precision < VTI_PLAN_PRECISIONS; precision++)
            for (int phase = 0; phase < VTI_PHASES; phase++)
                out->cost[kind][precision][phase] = (vti_plan_coefficients){
                    .fixed = usual_fixed_s,
                    .per_mac = 1 / usual_macs,
                    .per_weight_byte = 1 / usual_bytes,
                    .per_kv_byte = 1 / usual_bytes,
                    .per_kv_mac = 1 / usual_macs};
}

static const vti_profile *profile_of(const vt_cluster *c, unsigned d)
{
    if (d == 0) return c->profile;
    return c->devices[d - 1].offer.has_profile ? &c->devices[d - 1].offer.profile : NULL;
}

/* Times can only be compared if all are measured: a device without a profile is taken to be like
 * the main device, or if that has none, all are like one another. */
void vti_cluster_set_speed(const vt_cluster *c, unsigned d, const vti_plan_model *model,
                           vti_plan_device *out)
{
    const vti_profile *profile = c->profile ? profile_of(c, d) : NULL;
    if (!profile) profile = c->profile;
    if (profile)
        vti_profile_fill(profile, model, out);
    else
        set_usual_speed(out);
}

/* One after the other: at once they would measure the main device's own link. */
vt_status vti_cluster_probe_links(vt_cluster *c, vt_error *err)
{
    for (size_t i = 0; i < c->device_count; i++) {
        vti_device *device = &c->devices[i];
        vti_link_estimate found = {0};
        vti_net_status status = vti_net_probe(c->net, device->peer, 0,
                                              vti_net_after_ms(PROBE_TIMEOUT_MS), &found);
        if (status == VTI_NET_ERR_GONE) return vti_cluster_explain_loss(c, device, err);
        if (found.bytes_per_s > 0) {
            device->link = found;
            vti_log(&c->log, VT_LOG_INFO, "link to %s: %.2f ms, %.1f MB/s", device->address,
                    found.latency_s * 1e3, found.bytes_per_s / 1e6);
        } else {
            vti_log(&c->log, VT_LOG_WARNING,
                    "the link to %s could not be measured (%s): taken to be a wired one",
                    device->address, vti_net_status_text(status));
        }
    }
    return VT_OK;
}
