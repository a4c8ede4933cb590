/* cluster_explain.c: why the plan of a cluster is as it is, in sentences. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_plan.h"
#include "memory.h"
#include "session_internal.h"

/* A message that is put together. */
typedef struct text {
    char *data;
    size_t capacity, bytes;
} text;

static void add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text *t, const char *format, ...)
{
    va_list arguments;
    if (t->bytes + 1 >= t->capacity) return;
    va_start(arguments, format);
    int bytes = vsnprintf(t->data + t->bytes, t->capacity - t->bytes, format, arguments);
    va_end(arguments);
    if (bytes > 0) t->bytes += (size_t)bytes;
    if (t->bytes >= t->capacity) t->bytes = t->capacity - 1;
}

static double mib(double bytes) { return bytes / 1048576; }

/* Behind the point, so that three or more tell. */
static int digits(double x) { return x < 10 ? 2 : x < 100 ? 1 : 0; }

static const char *name_of(const vt_cluster *c, unsigned d)
{
    return d ? c->devices[d - 1].address : "this device";
}

/* --- bytes ------------------------------------------------------------------------------------ */

static double unit_bytes(const vti_cluster_plan *p, unsigned u)
{
    const vti_plan_class *class_ = &p->model.class_[p->model.unit_class[u]];
    double rows = p->request.context_tokens;
    if (class_->window > 0 && class_->window < rows) rows = class_->window;
    unsigned precision = p->request.precision[u];
    return class_->shared_bytes + vti_plan_shards(&p->request, u) *
                                      (class_->weight_bytes[precision] +
                                       class_->always_bytes[precision] + class_->kv_bytes * rows);
}

static double layer_bytes(const vti_cluster_plan *p, unsigned layer)
{
    return unit_bytes(p, 1 + 2 * layer) + unit_bytes(p, 2 + 2 * layer);
}

static void layer_range(const vti_cluster_plan *p, double *least, double *most)
{
    *least = *most = layer_bytes(p, 0);
    for (unsigned layer = 1; layer < p->model.units / 2 - 1; layer++) {
        double bytes = layer_bytes(p, layer);
        if (bytes < *least) *least = bytes;
        if (bytes > *most) *most = bytes;
    }
}

/* --- what would help -------------------------------------------------------------------------- */

static bool would_fit(const vt_cluster *c, uint32_t context_tokens, vti_precision precision,
                      vti_cluster_plan *p, void *scratch)
{
    return vti_cluster_describe(c, context_tokens, precision, p, NULL) == VT_OK &&
           vti_plan_search(&p->request, VTI_SEARCH_LAYERS, NULL, scratch, &p->plan);
}

static bool offers(const vt_cluster *c, vti_precision precision)
{
    const vti_shard_source *source = c->model->shards;
    vti_shard_form form;
    for (uint32_t unit = 0; unit <= vti_head_unit(source->geometry); unit++)
        if (!source->form(source->self, (vti_shard_id){unit, 0, precision}, &form)) return false;
    return true;
}

/* The largest power of two that is less than the context and fits; 0: none. */
static uint32_t context_that_fits(const vt_cluster *c, vti_cluster_plan *p, void *scratch)
{
    enum { LEAST = 256 };
    uint32_t context = 1;
    while (context < c->context_tokens - context) context *= 2;
    for (; context >= LEAST; context /= 2)
        if (would_fit(c, context, VTI_PRECISION_COUNT, p, scratch)) return context;
    return 0;
}

static vti_precision precision_that_fits(const vt_cluster *c, vti_cluster_plan *p, void *scratch)
{
    for (unsigned i = 0; i < VTI_PRECISION_COUNT; i++) {
        bool lower = false;
        for (uint32_t unit = 0; unit <= vti_head_unit(&c->model->geometry); unit++)
            lower |= c->model->composition.precision[unit] < i;
        if (lower && offers(c, i) && would_fit(c, c->context_tokens, i, p, scratch)) return i;
    }
    return VTI_PRECISION_COUNT;
}

/* What even a main device without layers lacks, whatever others have. */
static double main_lacks(const vti_cluster_plan *p)
{
    const vti_plan_device *main = &p->cluster.device[0];
    return main->scratch_bytes + unit_bytes(p, p->model.units - 1) - main->memory_bytes;
}

/* Layers that a device has room for, taken to be as large as the largest. */
static unsigned room_layers(const vti_cluster_plan *p, unsigned d)
{
    double least, most;
    const vti_plan_device *device = &p->cluster.device[d];
    double room = device->memory_bytes - device->scratch_bytes;
    unsigned layers = p->model.units / 2 - 1;
    if (d == 0) room -= unit_bytes(p, p->model.units - 1);
    layer_range(p, &least, &most);
    if (room < most) return 0;
    return room / most < layers ? (unsigned)(room / most) : layers;
}

/* Memory of one more device that would hold what the others have no room for; 0: they have room. */
static double another_device(const vti_cluster_plan *p)
{
    double least, most;
    unsigned layers = p->model.units / 2 - 1, room = 0;
    layer_range(p, &least, &most);
    for (unsigned d = 0; d < p->cluster.devices; d++) room += room_layers(p, d);
    if (room >= layers) return 0;
    return (layers - room) * most + p->cluster.device[p->cluster.devices - 1].scratch_bytes;
}

/* What a device has, and what the main device's budget loses before anything is planned. */
static void add_memory(const vt_cluster *c, const vti_cluster_plan *p, unsigned d, text *t)
{
    double has = p->cluster.device[d].memory_bytes;
    double limit_bytes = (double)vti_budget_get(&vti_model_device(c->model)->budget).limit_bytes;
    if (d || limit_bytes - has < 1) {
        add(t, "%s has %.1f MiB", name_of(c, d), mib(has));
        return;
    }
    bool messages = limit_bytes - has < (double)c->queue_bytes + 1;
    add(t, "%s has %.1f MiB of %.1f MiB (the rest is %s)", name_of(c, d), mib(has),
        mib(limit_bytes), messages ? "for messages" : "in use");
}

static void add_device(const vt_cluster *c, const vti_cluster_plan *p, unsigned d, text *t)
{
    double needs = p->plan.memory_bytes[d], lacks = p->plan.shortfall_bytes[d];
    add_memory(c, p, d, t);
    if (d == 0 && main_lacks(p) > 0) {
        lacks = main_lacks(p);
        add(t, " and needs %.1f MiB for the output and the conversation (%.1f MiB short)",
            mib(p->cluster.device[0].memory_bytes + lacks), mib(lacks));
        return;
    }
    if (!c->given)
        add(t, ", room for %u of %u layers", room_layers(p, d), p->model.units / 2 - 1);
    if (lacks > 0)
        add(t, "%s would need %.1f MiB (%.1f MiB short)", c->given ? " and" : ",", mib(needs),
            mib(lacks));
}

/* How much more memory makes up for what the main device lacks: part of it goes to messages. */
static double more_here(const vt_cluster *c, double lacks)
{
    vti_budget_usage u = vti_budget_get(&vti_model_device(c->model)->budget);
    if (!u.limit_bytes || u.limit_bytes < c->queue_bytes) return lacks;
    uint64_t wanted = u.limit_bytes - c->queue_bytes + (uint64_t)lacks + 1;
    return (double)vti_device_memory_limit_for(wanted, c->device_count) - (double)u.limit_bytes;
}

/* Rounded up, so that what it says is enough. */
static double mib_up(double bytes) { return ceil(10 * mib(bytes)) / 10; }

static void add_help(const vt_cluster *c, const vti_cluster_plan *p, void *scratch,
                     vti_cluster_plan *other, text *t)
{
    double here = main_lacks(p), there = another_device(p);
    add(t, ". What would help: ");
    if (c->given) {
        add(t, "a plan with fewer layers there, or no plan, so that one is made");
        return;
    }
    uint32_t context = context_that_fits(c, other, scratch);
    vti_precision precision = precision_that_fits(c, other, scratch);
    if (context) add(t, "a context of %" PRIu32 " tokens, or ", context);
    if (precision < VTI_PRECISION_COUNT)
        add(t, "precision %s, or ", vti_precision_name(precision));
    if (here > 0) add(t, "%.1f MiB more for this device", mib_up(more_here(c, here)));
    if (here > 0 && there > 0) add(t, " and ");
    if (there > 0) add(t, "another device that lends %.1f MiB", mib_up(there));
    if (here > 0) add(t, "; other devices cannot hold what this one lacks room for");
}

/* An error has not the room for many devices: those come first that lack something, the others as
 * far as there is room. The log has all. */
static void add_devices(const vt_cluster *c, const vti_cluster_plan *p, text *t)
{
    unsigned named = 0, unnamed = 0;
    for (int rest = 0; rest < 2; rest++)
        for (unsigned d = 0; d < p->cluster.devices; d++) {
            char data[200];
            text one = {data, sizeof data, 0};
            bool lacks = p->plan.shortfall_bytes[d] > 0 || (d == 0 && main_lacks(p) > 0);
            if (lacks == rest || (rest && c->given)) continue;
            add_device(c, p, d, &one);
            vti_log(&c->log, VT_LOG_INFO, "%s", data);
            if (unnamed || t->bytes + one.bytes + 20 > t->capacity) {
                unnamed++;
                continue;
            }
            add(t, "%s%s", named++ ? "; " : "", data);
        }
    if (unnamed) add(t, "; and %u more", unnamed);
}

vt_status vti_cluster_explain_shortfall(const vt_cluster *c, const vti_cluster_plan *p,
                                        void *scratch, vt_error *err)
{
    char devices_data[sizeof err->message], help_data[240];
    text help = {help_data, sizeof help_data, 0};
    vti_cluster_plan *other = malloc(sizeof *other);
    if (!other) return vti_fail(err, VT_ERR_MEMORY, "no memory for a plan");
    add_help(c, p, scratch, other, &help);
    free(other);
    text devices = {devices_data, sizeof devices_data - sizeof "not enough memory: " - help.bytes, 0};
    add_devices(c, p, &devices);
    return vti_fail(err, VT_ERR_MEMORY, "not enough memory: %s%s", devices_data, help_data);
}

/* --- what runs where -------------------------------------------------------------------------- */

/* What of the time of a token is spent on a device. */
static double device_seconds(const vti_cluster_plan *p, unsigned d)
{
    double seconds = 0;
    const vti_plan_place *places = p->plan.place[VTI_DECODE];
    for (unsigned u = 0; u < p->plan.units; u++)
        if (places[u].shares[d]) /* as if it had the stream already */
            seconds += vti_plan_unit_seconds(&p->request, VTI_DECODE, u, &places[u], 1u << d);
    return seconds;
}

static void say_left_out(vt_cluster *c, const vti_cluster_plan *p, unsigned d, vti_plan *with,
                         void *scratch)
{
    vti_device *device = &c->devices[d - 1];
    text t = {device->left_out, sizeof device->left_out, 0};
    const vti_plan_device *has = &p->cluster.device[d];
    double least, most, room = has->memory_bytes - has->scratch_bytes;
    layer_range(p, &least, &most);
    bool fits = room >= least && vti_plan_search_layers_with(&p->request, 1u << d, scratch, with);
    if (c->given)
        add(&t, "the plan gives it no layers");
    else if (room < least)
        add(&t, "its memory (%.1f MiB) holds no layer (%.1f MiB)", mib(has->memory_bytes),
            mib(least + has->scratch_bytes));
    else if (!fits)
        add(&t, "its memory (%.1f MiB) holds no layer that could go there", mib(has->memory_bytes));
    else if (!c->profile)
        add(&t, "no faster with it if all devices are alike, as is assumed while this one has no "
                "profile");
    else
        add(&t, "no faster with it%s: about %.*f ms per token, %.*f ms without",
            device->offer.has_profile ? "" : " if it is like this one (it has no profile)",
            digits(with->tpot_s * 1e3), with->tpot_s * 1e3, digits(p->plan.tpot_s * 1e3),
            p->plan.tpot_s * 1e3);
    vti_log(&c->log, VT_LOG_INFO, "device %s is left out: %s", device->address,
            device->left_out);
}

void vti_cluster_explain(vt_cluster *c, const vti_cluster_plan *p, void *scratch)
{
    vti_plan *with = malloc(sizeof *with);
    for (unsigned d = 0; d < p->cluster.devices && with; d++) {
        const vti_device *device = d ? &c->devices[d - 1] : NULL;
        uint32_t first = d ? device->first : 0, count = d ? device->count : c->main_layers;
        char layers[48] = "no layers";
        if (d && !count) {
            say_left_out(c, p, d, with, scratch);
            continue;
        }
        if (count) snprintf(layers, sizeof layers, "layers %" PRIu32 " to %" PRIu32, first,
                            first + count - 1);
        vti_log(&c->log, VT_LOG_INFO, "plan: %s: %s%s, %.1f of %.1f MiB, %.2f ms per token",
                name_of(c, d), layers, d ? "" : ", the output", mib(p->plan.memory_bytes[d]),
                mib(p->cluster.device[d].memory_bytes), device_seconds(p, d) * 1e3);
    }
    free(with);
    vti_log(&c->log, VT_LOG_INFO,
            "plan: about %.2f s to the first token of a prompt of %.0f, then %.2f ms per token at "
            "a context of %.0f%s", p->plan.ttft_s, p->request.prompt_tokens, p->plan.tpot_s * 1e3,
            p->request.context_tokens,
            c->profile ? "" : " (with assumed speeds: this device has no profile)");
}
