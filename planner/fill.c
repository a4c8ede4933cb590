/* Spreads by memory alone: what fits at all nearly always fits so. */
#include "search.h"

#include <string.h>

/* Deals a unit's shards by what is left on each device: whole shards by proportion, then to those
 * whose proportion was cut most. */
static bool fill_unit(const plan_search *s, unsigned unit, double *left, uint16_t *shares)
{
    double bytes = vti_plan_shard_bytes(s->request, unit), sum = 0;
    double shared = vti_plan_class_of(s->request, unit)->shared_bytes;
    double wanted[VTI_PLAN_DEVICES_MAX];
    unsigned shards = vti_plan_shards(s->request, unit), given = 0, room[VTI_PLAN_DEVICES_MAX];
    for (unsigned d = 0; d < s->devices; d++) {
        double free = s->usable >> d & 1 ? left[d] - shared : -1;
        double n = free < 0 ? 0 : bytes > 0 ? free / bytes : shards;
        room[d] = n < shards ? (unsigned)n : shards;
        sum += room[d] ? free : 0;
        wanted[d] = room[d] ? free : 0;
    }
    for (unsigned d = 0; d < s->devices; d++) {
        wanted[d] = sum > 0 ? wanted[d] / sum * shards : 0;
        shares[d] = (uint16_t)(wanted[d] < room[d] ? (unsigned)wanted[d] : room[d]);
        given += shares[d];
    }
    for (; given < shards; given++) {
        int best = -1;
        for (unsigned d = 0; d < s->devices; d++) {
            if (shares[d] >= room[d]) continue;
            if (best < 0 || wanted[d] - shares[d] > wanted[best] - shares[best]) best = (int)d;
        }
        if (best < 0) return false;
        shares[best]++;
    }
    for (unsigned d = 0; d < s->devices; d++)
        left[d] -= shares[d] * bytes + (shares[d] ? shared : 0);
    return true;
}

/* Units of large shards first. */
bool vti_plan_fill(const plan_search *s, double stretch, vti_plan_place *places)
{
    double left[VTI_PLAN_DEVICES_MAX];
    bool done[GROUPS_MAX] = {false};
    for (unsigned d = 0; d < s->devices; d++) left[d] = stretch * s->budget[d];
    for (unsigned round = s->first_group; round < s->groups; round++) {
        unsigned group = s->groups;
        double most = -1;
        for (unsigned g = s->first_group; g < s->groups; g++) {
            double bytes = vti_plan_shard_bytes(s->request, s->group[g].unit);
            if (!done[g] && bytes > most) most = bytes, group = g;
        }
        done[group] = true;
        for (unsigned u = 1; u < s->units; u++) {
            if (s->group_of[u] != group) continue;
            memset(&places[u], 0, sizeof *places);
            if (!fill_unit(s, u, left, places[u].shares)) return false;
        }
    }
    return true;
}
