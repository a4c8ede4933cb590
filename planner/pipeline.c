/* A prompt passes the devices batch by batch: while one computes a batch, the next computes the one
 * before. */
#include "search.h"

/* Seconds of the whole prompt that something is at work. */
typedef struct plan_busy {
    double device[VTI_PLAN_DEVICES_MAX];
    double group[VTI_PLAN_GROUPS_MAX + 1]; /* airtime; 0 is not used */
    double link[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX];
} plan_busy;

/* What one unit adds to it. */
typedef struct plan_load {
    double device[VTI_PLAN_DEVICES_MAX];
    double wire;
    double *on; /* in plan_busy, what the wire's time is of */
} plan_load;

static double *wire_of(const vti_plan_request *r, const vti_plan_place *place, plan_busy *busy)
{
    unsigned from = place->from, to = place->home;
    if (from == to) {
        unsigned others = vti_plan_mask(place) & ~(1u << from);
        to = others ? (unsigned)__builtin_ctz(others) : from;
    }
    unsigned group = r->cluster->link[from][to].group;
    return group ? &busy->group[group] : &busy->link[from][to];
}

static void load_of(const vti_plan_request *r, unsigned u, const vti_plan_place *place,
                    unsigned holders, plan_busy *busy, plan_load *load)
{
    double slowest = 0;
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        plan_work work;
        load->device[d] = 0;
        if (!place->shares[d]) continue;
        vti_plan_work(r, VTI_PREFILL, u, d, &work);
        load->device[d] = vti_plan_work_seconds(&work, place->shares[d]);
        slowest = vti_larger(slowest, load->device[d]);
    }
    load->wire = vti_larger(vti_plan_unit_seconds(r, VTI_PREFILL, u, place, holders) - slowest, 0);
    load->on = wire_of(r, place, busy);
}

static double busiest(const vti_plan_request *r, const plan_busy *busy)
{
    double most = 0;
    for (unsigned g = 1; g <= VTI_PLAN_GROUPS_MAX; g++) most = vti_larger(most, busy->group[g]);
    for (unsigned d = 0; d < r->cluster->devices; d++) {
        most = vti_larger(most, busy->device[d]);
        for (unsigned e = 0; e < r->cluster->devices; e++)
            most = vti_larger(most, busy->link[d][e]);
    }
    return most;
}

double vti_plan_prompt_seconds(const vti_plan_request *r, const vti_plan_place *places)
{
    double in_turn = vti_plan_seconds(r, VTI_PREFILL, places);
    if (r->batch_tokens == 0 || r->prompt_tokens <= r->batch_tokens) return in_turn;
    unsigned head = r->model->units - 1;
    plan_busy busy = {0};
    plan_load last[2];
    for (unsigned u = 0; u < head; u++) {
        plan_load *load = &last[u % 2];
        unsigned holders = u ? vti_plan_holders(&places[u - 1]) : 1;
        if (!vti_plan_repeats(r, places, u)) load_of(r, u, &places[u], holders, &busy, load);
        for (unsigned d = 0; d < r->cluster->devices; d++) busy.device[d] += load->device[d];
        *load->on += load->wire;
    }
    /* The first batch passes everything; the others follow as fast as the busiest lets them. HEAD
     * is for the last token only. */
    double end = vti_plan_unit_seconds(r, VTI_PREFILL, head, &places[head],
                                       vti_plan_holders(&places[head - 1]));
    double first = r->batch_tokens / r->prompt_tokens;
    return vti_smaller(in_turn,
                       end + first * (in_turn - end) + (1 - first) * busiest(r, &busy));
}
