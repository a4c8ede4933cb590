/* The plans to compare with: one device, even and speed-aware MP and TP, and the paper's greedy. */
#include "search.h"

#include <string.h>

/* Spreads a unit over all of `mask` by speed. */
static bool balance(const vti_plan_request *r, vti_plan_phase phase, unsigned u, unsigned mask,
                    const unsigned *room, uint16_t *shares)
{
    plan_work work[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < r->cluster->devices; d++) vti_plan_work(r, phase, u, d, &work[d]);
    return vti_plan_balance(work, r->cluster->devices, vti_plan_shards(r, u), mask, room, shares);
}

/* All of unit u on device d; the result of HEAD goes to the main device, EMBED is there. */
static vti_plan_place whole(const vti_plan_request *r, unsigned u, unsigned d)
{
    bool head = vti_plan_class_of(r, u)->kind == VTI_PLAN_HEAD;
    if (u == 0) d = 0;
    vti_plan_place place = {.home = (uint8_t)(head ? 0 : d)};
    place.wire = (uint8_t)vti_plan_unit_wire(r, u);
    place.shares[d] = (uint16_t)vti_plan_shards(r, u);
    return place;
}

static double whole_bytes(const vti_plan_request *r, unsigned u)
{
    return vti_plan_shard_bytes(r, u) * vti_plan_shards(r, u) +
           vti_plan_class_of(r, u)->shared_bytes;
}

static double whole_seconds(const vti_plan_request *r, vti_plan_phase phase, unsigned u, unsigned d)
{
    plan_work work;
    vti_plan_work(r, phase, u, d, &work);
    return vti_plan_work_seconds(&work, vti_plan_shards(r, u));
}

/* Each place's stream comes from the home before. */
static void link_up(const vti_plan *plan, vti_plan_place *places)
{
    for (unsigned u = 1; u < plan->units; u++) places[u].from = places[u - 1].home;
}

/* --- single ----------------------------------------------------------------------------------- */

static double lack(const vti_plan_request *r, unsigned d, double bytes)
{
    const vti_plan_device *device = &r->cluster->device[d];
    return vti_larger(bytes + device->scratch_bytes - device->memory_bytes, 0);
}

static void place_all(const vti_plan_request *r, unsigned d, vti_plan *plan)
{
    for (unsigned u = 0; u < plan->units; u++) plan->place[VTI_DECODE][u] = whole(r, u, d);
    link_up(plan, plan->place[VTI_DECODE]);
}

static void search_single(const vti_plan_request *r, vti_plan *plan)
{
    double best_s = 0, best_lack = 0, bytes = 0;
    unsigned best = r->cluster->devices;
    for (unsigned u = 1; u < plan->units; u++) bytes += whole_bytes(r, u);
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        double lacks = lack(r, d, bytes) + (d ? lack(r, 0, 0) : 0);
        place_all(r, d, plan);
        double seconds = vti_plan_seconds(r, VTI_DECODE, plan->place[VTI_DECODE]);
        if (best < r->cluster->devices &&
            (lacks > best_lack || (lacks == best_lack && seconds >= best_s)))
            continue;
        best = d, best_lack = lacks, best_s = seconds;
    }
    place_all(r, best, plan);
}

/* --- MP --------------------------------------------------------------------------------------- */

/* Runs of units in device order, each device's as long as its weight says; when `bounded`, what
 * does not fit is left to the devices after it, and at last to any that has room. */
static void runs(const vti_plan_request *r, const double *weight, bool bounded, vti_plan *plan)
{
    unsigned devices = r->cluster->devices, d = 0, before[2] = {devices, devices};
    double bytes[2] = {0};
    double sum = 0, room[VTI_PLAN_DEVICES_MAX], passed = 0, done = 0;
    for (unsigned i = 0; i < devices; i++) {
        sum += weight[i];
        room[i] = r->cluster->device[i].memory_bytes - r->cluster->device[i].scratch_bytes;
    }
    plan->place[VTI_DECODE][0] = whole(r, 0, 0);
    for (unsigned u = 1; u < plan->units; u++, done++) {
        while (d + 1 < devices && (done + 0.5) * sum >= (passed + weight[d]) * (plan->units - 1))
            passed += weight[d++];
        unsigned on = d;
        bool again = vti_plan_like_before(r, u);
        if (!again) bytes[u % 2] = whole_bytes(r, u);
        for (unsigned i = 0; bounded && room[on] < bytes[u % 2] && i < devices; i++)
            if (room[(d + i) % devices] >= bytes[u % 2]) on = (d + i) % devices;
        room[on] -= bytes[u % 2];
        vti_plan_place *place = &plan->place[VTI_DECODE][u];
        *place = again && before[u % 2] == on ? place[-2] : whole(r, u, on);
        before[u % 2] = on;
    }
}

static void search_mp(const vti_plan_request *r, bool aware, vti_plan *plan)
{
    double weight[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        double t = 0, unit[2] = {0};
        for (unsigned u = 1; aware && u < plan->units; u++) {
            if (!vti_plan_like_before(r, u)) unit[u % 2] = whole_seconds(r, VTI_DECODE, u, d);
            t += unit[u % 2];
        }
        weight[d] = t > 0 ? 1 / t : 1;
    }
    runs(r, weight, aware, plan);
}

/* --- TP --------------------------------------------------------------------------------------- */

static void even_shares(const vti_plan_request *r, unsigned u, uint16_t *shares)
{
    unsigned devices = r->cluster->devices, shards = vti_plan_shards(r, u);
    memset(shares, 0, VTI_PLAN_DEVICES_MAX * sizeof *shares);
    for (unsigned d = 0; d < devices; d++)
        shares[d] = (uint16_t)(shards / devices + (d < shards % devices));
}

/* How many of u's shards fit into what is left. */
static void shards_that_fit(const vti_plan_request *r, unsigned u, const double *left,
                            unsigned *room)
{
    double bytes = vti_plan_shard_bytes(r, u), shards = vti_plan_shards(r, u);
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        double free = left[d] - vti_plan_class_of(r, u)->shared_bytes;
        if (free >= bytes * shards) {
            room[d] = (unsigned)shards;
            continue;
        }
        double n = free < 0 ? 0 : bytes > 0 ? free / bytes : shards;
        room[d] = (unsigned)(n < shards ? n : shards);
    }
}

static void take(const vti_plan_request *r, unsigned u, const vti_plan_place *place, double *left)
{
    double bytes[VTI_PLAN_DEVICES_MAX];
    vti_plan_unit_bytes(r, u, place, place, bytes);
    for (unsigned d = 0; d < r->cluster->devices; d++) left[d] -= bytes[d];
}

static void memory_left(const vti_plan_request *r, double *left)
{
    for (unsigned d = 0; d < r->cluster->devices; d++)
        left[d] = r->cluster->device[d].memory_bytes - r->cluster->device[d].scratch_bytes;
}

/* Whether unit u is like the one two before and has the same room: what was right there is here. */
static bool again(const vti_plan_request *r, unsigned u, unsigned rooms[2][VTI_PLAN_DEVICES_MAX],
                  const unsigned *room)
{
    bool same = vti_plan_like_before(r, u) && memcmp(rooms[u % 2], room, sizeof rooms[0]) == 0;
    memcpy(rooms[u % 2], room, sizeof rooms[0]);
    return same;
}

/* Adds a unit's seconds, which are those of the one two before if it is like that. Whether the plan
 * is still wanted. */
static bool is_wanted(const vti_plan_request *r, const plan_limit *limit, unsigned u, bool again,
                      const vti_plan_place *place, double unit_s[2], double *seconds)
{
    if (!limit) return true;
    if (!again)
        unit_s[u % 2] = vti_plan_unit_seconds(r, VTI_DECODE, u, place, 1u << place->from);
    *seconds += unit_s[u % 2];
    return (*seconds + limit->least_s[u + 1]) * (1 - 1e-12) < limit->seconds; /* rounding */
}

static bool search_tp(const vti_plan_request *r, bool aware, const plan_limit *limit,
                      vti_plan *plan)
{
    double seconds = 0, unit_s[2];
    double left[VTI_PLAN_DEVICES_MAX], bytes[2][VTI_PLAN_DEVICES_MAX];
    unsigned room[VTI_PLAN_DEVICES_MAX] = {0}, rooms[2][VTI_PLAN_DEVICES_MAX];
    unsigned all = (1u << r->cluster->devices) - 1;
    memory_left(r, left);
    plan->place[VTI_DECODE][0] = whole(r, 0, 0);
    for (unsigned u = 1; u < plan->units; u++) {
        vti_plan_place *place = &plan->place[VTI_DECODE][u];
        if (aware) shards_that_fit(r, u, left, room);
        bool same = again(r, u, rooms, room);
        if (same) {
            *place = place[-2];
        } else {
            *place = (vti_plan_place){.wire = (uint8_t)vti_plan_unit_wire(r, u)};
            if (!aware || !balance(r, VTI_DECODE, u, all, room, place->shares))
                even_shares(r, u, place->shares);
            vti_plan_unit_bytes(r, u, place, place, bytes[u % 2]);
        }
        for (unsigned d = 0; d < r->cluster->devices; d++) left[d] -= bytes[u % 2][d];
        if (!is_wanted(r, limit, u, same, place, unit_s, &seconds)) return false;
    }
    return true;
}

/* --- greedy ----------------------------------------------------------------------------------- */

/* The paper's choice for one unit: MP on the fastest device it fits on or TP over all with balanced
 * shares, whichever is estimated to be faster. False if it fits in neither way. */
static bool greedy_place(const vti_plan_request *r, vti_plan_phase phase, unsigned u, unsigned from,
                         const unsigned *room, vti_plan_place *place)
{
    int fastest = -1;
    unsigned all = (1u << r->cluster->devices) - 1;
    vti_plan_place tp = {.home = (uint8_t)from, .from = (uint8_t)from};
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        if (room[d] < vti_plan_shards(r, u)) continue;
        if (fastest < 0 || whole_seconds(r, phase, u, d) <
                               whole_seconds(r, phase, u, (unsigned)fastest))
            fastest = (int)d;
    }
    if (vti_plan_class_of(r, u)->kind == VTI_PLAN_HEAD) tp.home = 0;
    tp.wire = (uint8_t)vti_plan_unit_wire(r, u);
    bool spread = balance(r, phase, u, all, room, tp.shares);
    if (fastest >= 0) *place = whole(r, u, (unsigned)fastest);
    place->from = (uint8_t)from;
    if (spread && (fastest < 0 || vti_plan_unit_seconds(r, phase, u, &tp, 1u << from) <
                                      vti_plan_unit_seconds(r, phase, u, place, 1u << from)))
        *place = tp;
    return spread || fastest >= 0;
}

/* In prefill what decode holds is there already; a choice that needs more than is left gives way to
 * decode's. */
static void greedy_prefill(const vti_plan_request *r, vti_plan *plan)
{
    unsigned every[VTI_PLAN_DEVICES_MAX], from = 0;
    double left[VTI_PLAN_DEVICES_MAX];
    memory_left(r, left);
    for (unsigned u = 1; u < plan->units; u++) take(r, u, &plan->place[VTI_DECODE][u], left);
    for (unsigned u = 1; u < plan->units; u++) {
        vti_plan_place place, *decode = &plan->place[VTI_DECODE][u];
        double with[VTI_PLAN_DEVICES_MAX], without[VTI_PLAN_DEVICES_MAX];
        for (unsigned d = 0; d < r->cluster->devices; d++)
            every[d] = left[d] >= 0 ? vti_plan_shards(r, u) : 0;
        bool fits = greedy_place(r, VTI_PREFILL, u, from, every, &place);
        if (fits) {
            vti_plan_unit_bytes(r, u, decode, &place, with);
            vti_plan_unit_bytes(r, u, decode, decode, without);
            for (unsigned d = 0; d < r->cluster->devices; d++)
                if (with[d] - without[d] > left[d] && with[d] > without[d]) fits = false;
        }
        if (fits) {
            for (unsigned d = 0; d < r->cluster->devices; d++) left[d] -= with[d] - without[d];
            plan->place[VTI_PREFILL][u] = place;
        }
        from = plan->place[VTI_PREFILL][u].home;
    }
}

static bool search_greedy(const vti_plan_request *r, const plan_limit *limit, vti_plan *plan)
{
    double seconds = 0, unit_s[2];
    double left[VTI_PLAN_DEVICES_MAX], bytes[2][VTI_PLAN_DEVICES_MAX];
    unsigned room[VTI_PLAN_DEVICES_MAX] = {0}, rooms[2][VTI_PLAN_DEVICES_MAX];
    memory_left(r, left);
    plan->place[VTI_DECODE][0] = whole(r, 0, 0);
    for (unsigned u = 1; u < plan->units; u++) {
        vti_plan_place *place = &plan->place[VTI_DECODE][u];
        shards_that_fit(r, u, left, room);
        bool same = again(r, u, rooms, room) && place[-1].home == place[-3].home;
        if (same) {
            *place = place[-2];
        } else {
            if (!greedy_place(r, VTI_DECODE, u, place[-1].home, room, place))
                *place = whole(r, u, 0);
            vti_plan_unit_bytes(r, u, place, place, bytes[u % 2]);
        }
        for (unsigned d = 0; d < r->cluster->devices; d++) left[d] -= bytes[u % 2][d];
        if (!is_wanted(r, limit, u, same, place, unit_s, &seconds)) return false;
    }
    return true;
}

bool vti_plan_baseline(const vti_plan_request *r, vti_plan_search_kind kind,
                       const plan_limit *limit, vti_plan *plan)
{
    bool wanted = true;
    switch (kind) {
    case VTI_SEARCH_SINGLE: search_single(r, plan); break;
    case VTI_SEARCH_EVEN_MP: search_mp(r, false, plan); break;
    case VTI_SEARCH_EVEN_TP: wanted = search_tp(r, false, limit, plan); break;
    case VTI_SEARCH_AWARE_MP: search_mp(r, true, plan); break;
    case VTI_SEARCH_AWARE_TP: wanted = search_tp(r, true, limit, plan); break;
    default: wanted = search_greedy(r, limit, plan); break;
    }
    if (wanted) link_up(plan, plan->place[VTI_DECODE]);
    return wanted;
}

void vti_plan_baseline_prefill(const vti_plan_request *r, vti_plan_search_kind kind, vti_plan *plan)
{
    memcpy(plan->place[VTI_PREFILL], plan->place[VTI_DECODE], sizeof plan->place[VTI_DECODE]);
    if (kind == VTI_SEARCH_GREEDY) greedy_prefill(r, plan);
    link_up(plan, plan->place[VTI_PREFILL]);
}
