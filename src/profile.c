#include "profile.h"

#include <math.h>
#include <string.h>

#include "little_endian.h"

void vti_profile_terms(const vti_profile_cost *c, float terms[VTI_PROFILE_TERMS + 1])
{
    const float all[VTI_PROFILE_TERMS + 1] = {
        c->fixed, c->per_mac, c->per_weight_byte, c->per_cached_byte, c->per_kv_byte,
        c->per_cached_kv_byte, c->per_kv_mac, c->per_shard, c->per_value, c->accuracy};
    memcpy(terms, all, sizeof all);
}

vti_profile_cost vti_profile_cost_of(const float t[VTI_PROFILE_TERMS + 1])
{
    return (vti_profile_cost){
        .fixed = t[0], .per_mac = t[1], .per_weight_byte = t[2], .per_cached_byte = t[3],
        .per_kv_byte = t[4], .per_cached_kv_byte = t[5], .per_kv_mac = t[6], .per_shard = t[7],
        .per_value = t[8], .accuracy = t[9]};
}

static bool is_amount(float x) { return isfinite(x) && x >= 0; }

const char *vti_profile_check(const vti_profile *profile)
{
    const vti_profile_cost *costs = &profile->cost[0][0][0];
    if (!memchr(profile->name, 0, sizeof profile->name) ||
        !memchr(profile->version, 0, sizeof profile->version))
        return "a text is too long";
    if (profile->threads == 0) return "threads must be 1 or more";
    if (profile->cache_bytes >> 48) return "the cache must be smaller than 256 TiB";
    if (!is_amount(profile->bytes_per_s)) return "the memory bandwidth must be finite, at least 0";
    for (unsigned i = 0; i < VTI_PLAN_KINDS * VTI_PLAN_PRECISIONS * VTI_PHASES; i++) {
        float terms[VTI_PROFILE_TERMS + 1];
        vti_profile_terms(&costs[i], terms);
        for (unsigned t = 0; t <= VTI_PROFILE_TERMS; t++)
            if (!is_amount(terms[t])) return "coefficients must be finite and not negative";
        if (costs[i].accuracy > 1) return "an accuracy must be at most 1";
    }
    return NULL;
}

double vti_profile_accuracy(const vti_profile *profile)
{
    const vti_profile_cost *costs = &profile->cost[0][0][0];
    double sum = 0;
    unsigned known = 0;
    for (unsigned i = 0; i < VTI_PLAN_KINDS * VTI_PLAN_PRECISIONS * VTI_PHASES; i++) {
        sum += costs[i].accuracy;
        known += costs[i].accuracy > 0;
    }
    return known ? sum / known : 0;
}

/* --- for the planner -------------------------------------------------------------------------- */

/* The part of weights of so many bytes that is read from memory for every token. Weights are read
 * in the same order each time: a cache that they all but fill keeps next to nothing of them. */
static double streamed_part(double bytes, double cache_bytes)
{
    double begin = 0.5 * cache_bytes, end = 1.25 * cache_bytes;
    if (bytes <= begin) return 0;
    return bytes >= end ? 1 : (bytes - begin) / (end - begin);
}

static double model_bytes(const vti_plan_model *model, unsigned precision)
{
    double bytes = 0;
    for (unsigned u = 0; u < model->units; u++) {
        const vti_plan_class *c = &model->class_[model->unit_class[u]];
        bytes += c->shards * (c->weight_bytes[precision] + c->always_bytes[precision]);
    }
    return bytes;
}

static vti_plan_coefficients coefficients(const vti_profile_cost *c, double streamed)
{
    return (vti_plan_coefficients){
        .fixed = c->fixed,
        .per_mac = c->per_mac,
        .per_weight_byte = streamed * c->per_weight_byte + (1 - streamed) * c->per_cached_byte,
        .per_kv_byte = streamed * c->per_kv_byte + (1 - streamed) * c->per_cached_kv_byte,
        .per_kv_mac = c->per_kv_mac,
        .per_shard = c->per_shard,
        .per_value = c->per_value,
    };
}

void vti_profile_fill(const vti_profile *profile, const vti_plan_model *model,
                      vti_plan_device *out)
{
    for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++) {
        double streamed = streamed_part(model_bytes(model, p), (double)profile->cache_bytes);
        for (unsigned k = 0; k < VTI_PLAN_KINDS; k++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++)
                out->cost[k][p][phase] = coefficients(&profile->cost[k][p][phase], streamed);
    }
}

/* --- the wire --------------------------------------------------------------------------------- */

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void vti_profile_encode(const vti_profile *profile, uint8_t out[VTI_PROFILE_WIRE_BYTES])
{
    const vti_profile_cost *costs = &profile->cost[VTI_PLAN_EMBED + 1][0][0];
    uint8_t *at = out;
    memcpy(at, profile->name, VTI_PROFILE_NAME_MAX);
    memcpy(at += VTI_PROFILE_NAME_MAX, profile->version, VTI_PROFILE_VERSION_MAX);
    vti_put_u32(at += VTI_PROFILE_VERSION_MAX, profile->features);
    vti_put_u32(at += 4, profile->threads);
    vti_put_u64(at += 4, profile->cache_bytes);
    vti_put_u32(at += 8, bits_of(profile->bytes_per_s));
    at += 4;
    for (unsigned i = 0; i < VTI_PROFILE_COSTS; i++) {
        float terms[VTI_PROFILE_TERMS + 1];
        vti_profile_terms(&costs[i], terms);
        for (unsigned t = 0; t <= VTI_PROFILE_TERMS; t++, at += 4)
            vti_put_u32(at, bits_of(terms[t]));
    }
}

bool vti_profile_decode(const uint8_t data[VTI_PROFILE_WIRE_BYTES], vti_profile *out)
{
    const uint8_t *at = data;
    memset(out, 0, sizeof *out);
    memcpy(out->name, at, VTI_PROFILE_NAME_MAX);
    memcpy(out->version, at += VTI_PROFILE_NAME_MAX, VTI_PROFILE_VERSION_MAX);
    out->features = vti_load_u32(at += VTI_PROFILE_VERSION_MAX);
    out->threads = vti_load_u32(at += 4);
    out->cache_bytes = vti_load_u64(at += 4);
    out->bytes_per_s = vti_load_f32(at += 8);
    at += 4;
    vti_profile_cost *costs = &out->cost[VTI_PLAN_EMBED + 1][0][0];
    for (unsigned i = 0; i < VTI_PROFILE_COSTS; i++) {
        float terms[VTI_PROFILE_TERMS + 1];
        for (unsigned t = 0; t <= VTI_PROFILE_TERMS; t++, at += 4) terms[t] = vti_load_f32(at);
        costs[i] = vti_profile_cost_of(terms);
    }
    if (vti_profile_check(out)) return false;
    vti_make_printable(out->name);
    vti_make_printable(out->version);
    return true;
}
