/* cluster_speed.c: how fast devices and the links to them are. */
#include "cluster_internal.h"

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

/* Times can only be compared if all are measured: a device without a profile is taken to be like the
 * main device, or if that has none, all are like one another. */
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
