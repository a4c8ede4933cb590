/* profile_measure.c: this device's profile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile_fit.h"
#include "profile_reader.h"

vt_profile_params vt_profile_params_default(void) { return (vt_profile_params){.threads = 0}; }

/* --- this machine ----------------------------------------------------------------------------- */

/* The line of /proc/cpuinfo, or, where there is none, the name of the board. */
static void processor_name(char out[VTI_PROFILE_NAME_MAX])
{
    char line[256] = "";
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, VTI_PROFILE_NAME_MAX, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, VTI_PROFILE_NAME_MAX, "%s", colon + 1 + strspn(colon + 1, " "));
        fclose(file);
        vti_make_printable(out);
        return;
    }
    if (file) fclose(file);
    file = fopen("/sys/firmware/devicetree/base/model", "re");
    if (file && fgets(line, sizeof line, file) && line[0])
        snprintf(out, VTI_PROFILE_NAME_MAX, "%.*s", VTI_PROFILE_NAME_MAX - 1, line);
    if (file) fclose(file);
    vti_make_printable(out);
}

static void describe_this(vti_profile *profile, uint32_t threads)
{
    memset(profile, 0, sizeof *profile);
    processor_name(profile->name);
    snprintf(profile->version, sizeof profile->version, "%s", vt_version());
    profile->features = vti_cpu_features() & VTI_CPU_EXACT;
    profile->threads = threads ? threads : vti_pool_default_threads();
    profile->cache_bytes = vti_cache_bytes();
}

vt_status vt_profile_compare(const vt_profile *profile, uint32_t threads, vt_error *err)
{
    vti_profile here;
    const vti_profile *p = &profile->facts;
    describe_this(&here, threads);
    if (!p->version[0])
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the profile is worked out for %s, not measured here", p->name);
    if (strcmp(p->version, here.version) != 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "the profile is of Voltron %s, this is %s",
                        p->version, here.version);
    if (strcmp(p->name, here.name) != 0)
        return vti_fail(err, VT_ERR_ARGUMENT, "the profile is of another processor, %s; this is %s",
                        p->name, here.name);
    if (p->threads != here.threads)
        return vti_fail(err, VT_ERR_ARGUMENT, "the profile is of %u threads, wanted is one of %u",
                        p->threads, here.threads);
    if (p->features != here.features)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the profile is of kernels for other instructions of this processor");
    return VT_OK;
}

bool vt_profile_is_current(const vt_profile *profile, uint32_t threads)
{
    return vt_profile_compare(profile, threads, NULL) == VT_OK;
}

size_t vt_profile_cache_name(uint32_t threads, char *buffer, size_t capacity)
{
    vti_profile here;
    describe_this(&here, threads);
    for (char *c = here.name; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9');
        if (!plain) *c = '-';
    }
    int bytes = snprintf(buffer, capacity, "profile-%s-%x-%ut-%s.json", here.name, here.features,
                         here.threads, here.version);
    return (size_t)bytes;
}

/* --- measuring -------------------------------------------------------------------------------- */

enum { THOUSANDTHS = 1000 };

static void report(void *user, double part)
{
    const vt_profile_params *params = user;
    if (params->progress.report)
        params->progress.report(params->progress.user, "measuring this device",
                                (uint64_t)(part * THOUSANDTHS), THOUSANDTHS);
}

static bool is_cancelled(void *user)
{
    const vt_profile_params *params = user;
    return params->cancelled && params->cancelled(params->user);
}

static vt_status sweep(const vti_profile *here, const vt_profile_params *params, bool held_out,
                       const bool *only, vti_profile_samples *samples, vt_error *err)
{
    vti_kernels kernels;
    vt_profile_params own = *params;
    vti_sweep_params p = {
        .kernels = &kernels, .cache_bytes = here->cache_bytes, .held_out = held_out,
        .only = only, .tiny = params->trial, .cancelled = is_cancelled, .progress = report,
        .user = &own,
    };
    vti_kernels_init(&kernels, VTI_CPU_EXACT);
    VTI_TRY(vti_pool_open(here->threads, &p.pool, err));
    vt_status status = vti_profile_sweep(&p, samples, err);
    vti_pool_close(p.pool);
    return status;
}

/* Once more, what other programs disturbed. */
static vt_status measure_again(vti_profile *here, const vt_profile_params *params,
                               vti_profile_samples *samples, vt_error *err)
{
    vti_profile_samples again = {.count = 0};
    bool *only = malloc((vti_profile_points(samples) + 1) * sizeof *only);
    if (!only) return vti_fail(err, VT_ERR_MEMORY, "no memory for measurements");
    vt_status status = VT_OK;
    if (vti_profile_mark(here, samples, only) > 0)
        status = sweep(here, params, false, only, &again, err);
    free(only);
    vti_profile_improve(samples, &again);
    free(again.sample);
    return status == VT_OK ? vti_profile_fit(samples, here, err) : status;
}

vt_status vt_profile_measure(const vt_profile_params *params, vt_profile **out, vt_error *err)
{
    const vt_profile_params defaults = vt_profile_params_default();
    vti_profile here;
    vti_profile_samples samples = {.count = 0};
    *out = NULL;
    if (!params) params = &defaults;
    describe_this(&here, params->threads);
    vt_status status = sweep(&here, params, false, NULL, &samples, err);
    if (status == VT_OK) status = vti_profile_fit(&samples, &here, err);
    bool judged = status == VT_OK && !params->trial;
    if (judged && vti_profile_disturbance(&here, &samples) > 0)
        status = measure_again(&here, params, &samples, err);
    if (status == VT_OK) status = vti_profile_new(&here, out, err);
    if (status == VT_OK && judged)
        (*out)->disturbance = vti_profile_disturbance(&here, &samples);
    free(samples.sample);
    return status;
}

vt_status vt_profile_check(vt_profile *profile, const vt_profile_params *params, vt_error *err)
{
    const vt_profile_params defaults = vt_profile_params_default();
    vti_profile_samples samples = {.count = 0};
    if (!params) params = &defaults;
    if (!vt_profile_is_current(profile, profile->facts.threads))
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "the profile is of %s by Voltron %s: it can only be checked there",
                        profile->facts.name, profile->facts.version);
    vt_status status = sweep(&profile->facts, params, true, NULL, &samples, err);
    if (status == VT_OK) vti_profile_judge(&profile->facts, &samples);
    free(samples.sample);
    return status;
}

/* --- what is in one --------------------------------------------------------------------------- */

void vt_profile_get_info(const vt_profile *profile, vt_profile_info *out)
{
    const vti_profile *p = &profile->facts;
    *out = (vt_profile_info){.name = p->name, .version = p->version, .threads = p->threads,
                             .cache_bytes = p->cache_bytes,
                             .bytes_per_s = (double)p->bytes_per_s,
                             .accuracy = vti_profile_accuracy(p),
                             .disturbance = profile->disturbance};
}

vt_status vt_profile_get_cost(const vt_profile *profile, vt_unit_kind kind, vt_precision precision,
                              bool decode, vt_profile_cost *out)
{
    if (kind >= VT_UNIT_KIND_COUNT || (unsigned)precision >= VT_PRECISION_COUNT)
        return VT_ERR_ARGUMENT;
    static const vti_plan_kind kinds[VT_UNIT_KIND_COUNT] = {VTI_PLAN_ATTN, VTI_PLAN_FFN,
                                                            VTI_PLAN_MOE, VTI_PLAN_HEAD};
    const vti_profile_cost *c =
        &profile->facts.cost[kinds[kind]][precision][decode ? VTI_DECODE : VTI_PREFILL];
    *out = (vt_profile_cost){
        .fixed_s = (double)c->fixed, .mac_s = (double)c->per_mac,
        .weight_byte_s = (double)c->per_weight_byte, .cached_byte_s = (double)c->per_cached_byte,
        .kv_byte_s = (double)c->per_kv_byte, .cached_kv_byte_s = (double)c->per_cached_kv_byte,
        .kv_mac_s = (double)c->per_kv_mac,
        .shard_s = (double)c->per_shard, .value_s = (double)c->per_value,
        .accuracy = (double)c->accuracy};
    return VT_OK;
}
