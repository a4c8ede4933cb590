/* Spreading a unit's shards so that the slowest device is fastest. */
#include "search.h"

#include <string.h>

static unsigned room_of(const unsigned *room, unsigned device, unsigned shards)
{
    return room && room[device] < shards ? room[device] : shards;
}

/* A start near the best one: what each device does until the level at which all would be done if
 * shards were divisible, less what rounding might add. Gives at most `shards` in all. */
static unsigned pour(const plan_work *work, unsigned devices, unsigned shards, unsigned mask,
                     const unsigned *room, uint16_t *shares)
{
    double level = 0;
    unsigned given = 0;
    for (unsigned wet = mask; wet;) {
        double rate = 0, fixed = 0, highest = -1;
        unsigned top = 0;
        for (unsigned d = 0; d < devices; d++) {
            if (!(wet >> d & 1)) continue;
            rate += work[d].shards_per_s;
            fixed += work[d].fixed * work[d].shards_per_s;
            if (work[d].fixed > highest) highest = work[d].fixed, top = d;
        }
        level = (shards + fixed) / rate;
        if (level > highest) break;
        wet &= ~(1u << top);
    }
    for (unsigned d = 0; d < devices; d++) {
        double n = mask >> d & 1 ? (level - work[d].fixed) * work[d].shards_per_s : 0;
        unsigned most = room_of(room, d, shards);
        if (most > shards - given) most = shards - given;
        shares[d] = (uint16_t)(n >= most ? most : n > 0 ? (unsigned)n : 0);
        given += shares[d];
    }
    return given;
}

/* When device d would end with a shard more; NEVER: it has no room for it. */
static double next_end(const plan_work *work, unsigned shards, const unsigned *room,
                       const uint16_t *shares, unsigned d)
{
    if (shares[d] >= room_of(room, d, shards)) return NEVER;
    return vti_plan_work_seconds(&work[d], shares[d] + 1u);
}

/* Who of the mask ends first; -1 if nobody has room. */
static int first_to_end(const double *ends, unsigned mask)
{
    int best = -1;
    for (double least = NEVER; mask; mask &= mask - 1) {
        int d = __builtin_ctz(mask);
        if (ends[d] < least) least = ends[d], best = d;
    }
    return best;
}

bool vti_plan_balance(const plan_work *work, unsigned devices, unsigned shards, unsigned mask,
                      const unsigned *room, uint16_t *shares)
{
    double ends[VTI_PLAN_DEVICES_MAX], now[VTI_PLAN_DEVICES_MAX];
    memset(shares, 0, VTI_PLAN_DEVICES_MAX * sizeof *shares);
    unsigned given = pour(work, devices, shards, mask, room, shares);
    for (unsigned d = 0; d < devices; d++)
        ends[d] = mask >> d & 1 ? next_end(work, shards, room, shares, d) : NEVER;
    for (; given < shards; given++) {
        int d = first_to_end(ends, mask);
        if (d < 0) return false;
        shares[d]++;
        ends[d] = next_end(work, shards, room, shares, (unsigned)d);
    }
    for (unsigned d = 0; d < devices; d++) now[d] = vti_plan_work_seconds(&work[d], shares[d]);
    /* When nobody could end earlier with a shard of the slowest, no spread is better: one in which
     * the slowest has fewer gives somebody else more. Every move is towards such a spread. */
    for (unsigned moved = 0; moved < shards; moved++) {
        unsigned slowest = 0;
        for (unsigned d = 1; d < devices; d++)
            if (now[d] > now[slowest]) slowest = d;
        int d = first_to_end(ends, mask & ~(1u << slowest));
        if (d < 0 || ends[d] >= now[slowest]) break;
        ends[slowest] = now[slowest], now[d] = ends[d];
        shares[slowest]--, shares[d]++;
        now[slowest] = vti_plan_work_seconds(&work[slowest], shares[slowest]);
        ends[d] = next_end(work, shards, room, shares, (unsigned)d);
    }
    return true;
}
