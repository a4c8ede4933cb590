/* The best split of whole layers over a chain of devices: the main device first (it may have none),
 * then some of the others in some order, each with layers in a row; HEAD is on the main device.
 *
 * Exact, by dynamic programming over (devices used, the last of them, layers done). Along a run of
 * layers time and memory are differences of prefix sums, so that the best beginning of a run that
 * still fits is the minimum of a sliding window: linear in layers for every set and last device. */
#include "search.h"

#include <string.h>

/* What TTFT counts against TPOT: enough to choose between plans that are as fast per token. */
#define TIE 1e-12

/* Layer l is the units 1 + 2 l and 2 + 2 l. */
static unsigned first_unit(unsigned layer) { return 1 + 2 * layer; }

static unsigned end_unit(const plan_layers *l, unsigned layer)
{
    return layer < l->layers ? first_unit(layer) : l->request->model->units - 1;
}

/* --- what layers and hops take ---------------------------------------------------------------- */

static double unit_seconds(const vti_plan_request *r, unsigned u, unsigned device)
{
    plan_work decode, prefill;
    unsigned shards = vti_plan_shards(r, u);
    vti_plan_work(r, VTI_DECODE, u, device, &decode);
    vti_plan_work(r, VTI_PREFILL, u, device, &prefill);
    return vti_plan_work_seconds(&decode, shards) + TIE * vti_plan_work_seconds(&prefill, shards);
}

static double unit_bytes(const vti_plan_request *r, unsigned u)
{
    return vti_plan_shard_bytes(r, u) * vti_plan_shards(r, u) +
           vti_plan_class_of(r, u)->shared_bytes;
}

/* The stream goes to the device that runs the layer (layer L: HEAD). */
static double hop_seconds(const plan_layers *l, unsigned from, unsigned to, unsigned layer)
{
    const vti_plan_request *r = l->request;
    unsigned u = end_unit(l, layer), width = vti_plan_class_of(r, u)->input_width;
    vti_plan_wire wire = vti_plan_unit_wire(r, u);
    double decode = vti_plan_transfer_bytes(r, VTI_DECODE, u, wire, width);
    double prefill = vti_plan_transfer_bytes(r, VTI_PREFILL, u, wire, width);
    return vti_plan_round_seconds(r->cluster, from, 1u << to, true, decode) +
           TIE * vti_plan_round_seconds(r->cluster, from, 1u << to, true, prefill);
}

static void add_up(plan_layers *l, const vti_plan_request *r)
{
    l->request = r;
    l->devices = r->cluster->devices;
    l->layers = (r->model->units - 1) / 2;
    l->bytes[0] = 0;
    double unit[2] = {0};
    for (unsigned i = 0; i < l->layers; i++) {
        l->bytes[i + 1] = l->bytes[i];
        for (unsigned u = end_unit(l, i); u < end_unit(l, i + 1); u++) {
            if (!vti_plan_like_before(r, u)) unit[u % 2] = unit_bytes(r, u);
            l->bytes[i + 1] += unit[u % 2];
        }
    }
    for (unsigned d = 0; d < l->devices; d++) {
        l->seconds[d][0] = 0;
        for (unsigned i = 0; i < l->layers; i++) {
            l->seconds[d][i + 1] = l->seconds[d][i];
            for (unsigned u = end_unit(l, i); u < end_unit(l, i + 1); u++) {
                if (!vti_plan_like_before(r, u)) unit[u % 2] = unit_seconds(r, u, d);
                l->seconds[d][i + 1] += unit[u % 2];
            }
        }
        for (unsigned to = 0; to < l->devices; to++)
            for (unsigned i = 0; i <= l->layers && to != d; i++)
                l->hop[d][to][i] = i > 0 && vti_plan_like_before(r, end_unit(l, i))
                                       ? l->hop[d][to][i - 1]
                                       : hop_seconds(l, d, to, i);
    }
}

/* --- the search ------------------------------------------------------------------------------- */

/* Bytes that a device has for layers if all had so many times their memory. */
static double room(const plan_layers *l, unsigned d, double times)
{
    const vti_plan_request *r = l->request;
    const vti_plan_device *device = &r->cluster->device[d];
    double left = device->memory_bytes * times - device->scratch_bytes;
    if (d > 0) return left;
    return left - unit_bytes(r, 0) - unit_bytes(r, r->model->units - 1);
}

/* Seconds until device `to` has the stream, after each number of layers, when the devices of `used`
 * run those; via[i]: who sends it. Sets have a bit per worker: device d is bit d - 1. */
static void arrive(const plan_layers *l, unsigned used, unsigned to,
                   double at[PLAN_LAYERS_MAX + 1], uint8_t via[PLAN_LAYERS_MAX + 1])
{
    unsigned lasts = used ? used << 1 : 1;
    for (unsigned i = 0; i <= l->layers; i++) at[i] = NEVER;
    for (unsigned d = 0; lasts >> d; d++) {
        if (!(lasts >> d & 1)) continue;
        const double *done = l->best[used][d], *hop = l->hop[d][to];
        for (unsigned i = 0; i <= l->layers; i++)
            if (done[i] + hop[i] < at[i]) at[i] = done[i] + hop[i], via[i] = (uint8_t)d;
    }
}

/* The best run on device d that ends at each layer, after the devices of `used`. */
static void run_on(plan_layers *l, unsigned used, unsigned d, double space)
{
    unsigned set = used | 1u << (d - 1), head = 0, tail = 0, low = 0;
    double at[PLAN_LAYERS_MAX + 1], value[PLAN_LAYERS_MAX + 1];
    uint8_t via[PLAN_LAYERS_MAX + 1], begin[PLAN_LAYERS_MAX + 1]; /* [head, tail): the window */
    const double *seconds = l->seconds[d], *bytes = l->bytes;
    arrive(l, used, d, at, via);
    l->best[set][d][0] = NEVER;
    for (unsigned end = 1; end <= l->layers; end++) {
        double added = at[end - 1] - seconds[end - 1];
        if (at[end - 1] < NEVER) {
            while (tail > head && value[tail - 1] >= added) tail--;
            value[tail] = added, begin[tail++] = (uint8_t)(end - 1);
        }
        while (low < end && bytes[end] - bytes[low] > space) low++;
        while (head < tail && begin[head] < low) head++;
        l->best[set][d][end] = head < tail ? value[head] + seconds[end] : NEVER;
        l->begin[set][d][end] = head < tail ? begin[head] : 0;
    }
}

static unsigned count(unsigned set) { return (unsigned)__builtin_popcount(set); }

/* The set of workers and the last device of the best chain; false if none fits. */
static bool search(plan_layers *l, double times, unsigned with, unsigned *set, unsigned *last)
{
    double space[VTI_PLAN_DEVICES_MAX], best = NEVER;
    for (unsigned d = 0; d < l->devices; d++) space[d] = room(l, d, times);
    if (space[0] < 0) return false;
    for (unsigned i = 0; i <= l->layers; i++)
        l->best[0][0][i] = l->bytes[i] <= space[0] ? l->seconds[0][i] : NEVER;
    for (unsigned used = 0; used < 1u << (l->devices - 1); used++)
        for (unsigned d = 0; d < l->devices; d++) {
            bool is_in = d ? used >> (d - 1) & 1 : used == 0;
            if (d > 0 && is_in) run_on(l, used & ~(1u << (d - 1)), d, space[d]);
            if (!is_in || (with & ~used) || l->best[used][d][l->layers] >= NEVER) continue;
            double all = l->best[used][d][l->layers] + (d ? l->hop[d][0][l->layers] : 0);
            if (all > best || (all == best && count(used) >= count(*set))) continue;
            best = all, *set = used, *last = d;
        }
    return best < NEVER;
}

/* Where all layers would fit if the devices' memory were larger in the same proportion. */
static bool stretch(plan_layers *l, unsigned *set, unsigned *last)
{
    enum { DOUBLINGS = 60, HALVINGS = 24 };
    double low = 1, high = 2;
    for (unsigned i = 0; !search(l, high, 0, set, last); i++, low = high, high *= 2)
        if (i == DOUBLINGS) return false;
    for (unsigned i = 0; i < HALVINGS; i++) {
        double middle = (low + high) / 2;
        if (search(l, middle, 0, set, last)) high = middle;
        else low = middle;
    }
    return search(l, high, 0, set, last);
}

/* --- the plan --------------------------------------------------------------------------------- */

/* Who runs each layer, from the last run to the first. */
static void trace(const plan_layers *l, unsigned set, unsigned last, uint8_t *device)
{
    unsigned end = l->layers;
    while (set) {
        double at[PLAN_LAYERS_MAX + 1];
        uint8_t via[PLAN_LAYERS_MAX + 1];
        unsigned begin = l->begin[set][last][end];
        memset(&device[begin], (int)last, end - begin);
        set &= ~(1u << (last - 1));
        arrive(l, set, last, at, via);
        last = via[begin], end = begin;
    }
    memset(device, 0, end);
}

bool vti_plan_layers(plan_layers *l, const vti_plan_request *r, unsigned with, bool nearest,
                     vti_plan *plan)
{
    uint8_t device[PLAN_LAYERS_MAX] = {0};
    unsigned set = 0, last = 0, from = 0;
    add_up(l, r);
    bool fits = search(l, 1, with >> 1, &set, &last);
    if (!fits && !nearest) return false;
    if (fits || stretch(l, &set, &last)) trace(l, set, last, device);
    for (unsigned u = 0; u < plan->units; u++) {
        bool middle = u > 0 && u + 1 < plan->units;
        unsigned d = middle ? device[(u - 1) / 2] : 0;
        vti_plan_place place = {.from = (uint8_t)from, .home = (uint8_t)d};
        place.wire = (uint8_t)vti_plan_unit_wire(r, u);
        place.shares[d] = (uint16_t)vti_plan_shards(r, u);
        plan->place[VTI_DECODE][u] = plan->place[VTI_PREFILL][u] = place;
        from = d;
    }
    return fits;
}
