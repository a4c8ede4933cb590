/* search.h: what the files of planner/ share. */
#ifndef VTI_PLANNER_SEARCH_H
#define VTI_PLANNER_SEARCH_H

#include <float.h>

#include "planner.h"

enum {
    MASKS = 1 << VTI_PLAN_DEVICES_MAX,
    STATES_MAX = 36,    /* who has the residual stream: one device each, and sets (tables.c) */
    GROUPS_MAX = VTI_PLAN_UNITS_MAX + VTI_PLAN_CLASSES_MAX * VTI_PLAN_PRECISIONS * VTI_WIRES,
    OPTIONS_MAX = 16384, /* of all groups together */
    OPTIONS_MORE = OPTIONS_MAX - GROUPS_MAX, /* the rest is for every group's first one */
    FEW_UNITS = 28, /* models in which single units count, and for which there is time */
    LABELS_MAX = 32768,
    STATE_LABELS_MAX = 64, /* labels kept per unit and state */
    PATHS_MAX = 48,
};

/* Longer than any time; what is not allowed takes so long. */
#define NEVER 1e300

static inline double vti_smaller(double a, double b) { return a < b ? a : b; }
static inline double vti_larger(double a, double b) { return a > b ? a : b; }

/* Seconds of `share` shards of a unit on a device. */
typedef struct plan_work {
    double fixed, per_shard;
    double shards_per_s; /* about; what is per expert evened out */
    double per_active, per_read; /* MoE: per expert that runs, per expert whose weights are read */
    double tokens, batch_tokens; /* in all, and at once */
    unsigned active, shards; /* MoE: of these shards so many are active for a token; else 0 */
} plan_work;

/* A way to spread a unit's shards; who has the stream before and afterwards comes on top. */
typedef struct plan_option {
    double compute_s;
    double priced_s; /* with its bytes paid */
    double bytes[VTI_PLAN_DEVICES_MAX]; /* beyond what is there anyway */
    uint16_t shares[VTI_PLAN_DEVICES_MAX];
    unsigned mask;
} plan_option;

/* What units that cost the same have in common, and the best way from state to state for the
 * current prices of memory. */
typedef struct plan_group {
    unsigned unit; /* the first of them */
    unsigned count;
    unsigned like; /* prefill, confined: the group that had all units alike */
    unsigned wires, first, options;
    unsigned shards;
    plan_work work[VTI_PLAN_DEVICES_MAX];
    double cost[STATES_MAX][STATES_MAX]; /* [before][after] */
} plan_group;

/* Times of transfers of one width, by the mask of receivers or senders. */
typedef struct plan_wires {
    unsigned input_width, output_width;
    vti_plan_wire wire;
    double tokens;
    bool inner; /* of units that another follows */
    double from_one[VTI_PLAN_DEVICES_MAX][MASKS]; /* [sender][receivers] */
    double in[MASKS][STATES_MAX];                 /* [receivers][state before] */
    double reach[MASKS][VTI_PLAN_DEVICES_MAX];    /* [sharers][state after]: no star takes less */
    double out[MASKS][VTI_PLAN_DEVICES_MAX];      /* [senders][home] */
    double exchange[MASKS];
    uint8_t sender[MASKS][STATES_MAX];
} plan_wires;

/* The beginning of a path, up to some unit. */
typedef struct plan_label {
    double seconds;
    double paid;  /* with the bytes at s->price */
    double bound; /* no path that begins so is faster */
    double left[VTI_PLAN_DEVICES_MAX]; /* bytes */
    uint32_t parent;
    uint16_t option;
} plan_label;

/* A path that was found at some prices; times and bytes up to each unit. */
typedef struct plan_path {
    double seconds, used[VTI_PLAN_DEVICES_MAX];
    uint16_t option[VTI_PLAN_UNITS_MAX];
    uint8_t state[VTI_PLAN_UNITS_MAX];
} plan_path;

typedef struct plan_sums {
    double seconds[VTI_PLAN_UNITS_MAX], bytes[VTI_PLAN_UNITS_MAX][VTI_PLAN_DEVICES_MAX];
} plan_sums;

/* Parts of paths that together fit; the parts add up to 1. */
typedef struct plan_mixture {
    unsigned parts, path[VTI_PLAN_DEVICES_MAX + 1];
    double part[VTI_PLAN_DEVICES_MAX + 1];
} plan_mixture;

enum { PLAN_LAYERS_MAX = (VTI_PLAN_UNITS_MAX - 2) / 2 };

/* The search for the best split of layers: by the workers used and the last of the devices. */
typedef struct plan_layers {
    const vti_plan_request *request;
    unsigned devices, layers;
    double bytes[PLAN_LAYERS_MAX + 1]; /* of all layers before */
    double seconds[VTI_PLAN_DEVICES_MAX][PLAN_LAYERS_MAX + 1];
    double hop[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX][PLAN_LAYERS_MAX + 1]; /* [from][to] */
    double best[MASKS / 2][VTI_PLAN_DEVICES_MAX][PLAN_LAYERS_MAX + 1];
    uint8_t begin[MASKS / 2][VTI_PLAN_DEVICES_MAX][PLAN_LAYERS_MAX + 1]; /* of the last run */
} plan_layers;

/* A search of one phase. In prefill, the places of decode are given and what they hold is free. */
typedef struct plan_search {
    const vti_plan_request *request;
    unsigned units, devices;
    vti_plan_phase phase;
    const vti_plan_place *decode; /* NULL in decode */
    double budget[VTI_PLAN_DEVICES_MAX];
    unsigned usable; /* devices whose scratch memory fits, and the main device */

    unsigned states, singles; /* single devices come first */
    unsigned holders[STATES_MAX];
    uint8_t state_of[MASKS]; /* STATES_MAX: none */

    unsigned first_group, groups, options, wires; /* groups before the first are not in use */
    uint16_t group_of[VTI_PLAN_UNITS_MAX];
    double embed_s;

    /* the least times until each state after each unit, less what was taken off so that the least
     * of them is 0: at[slot[u]], as several units may have the same */
    double at[VTI_PLAN_UNITS_MAX][STATES_MAX], taken_s[VTI_PLAN_UNITS_MAX];
    uint16_t slot[VTI_PLAN_UNITS_MAX];
    /* the current path, from unit 1 on: the state after each unit, the option, what it uses */
    double price[VTI_PLAN_DEVICES_MAX], used[VTI_PLAN_DEVICES_MAX];
    double path_s;
    uint8_t path_state[VTI_PLAN_UNITS_MAX];
    uint16_t path_option[VTI_PLAN_UNITS_MAX];

    /* the best places that fit, and what none that fits is faster than */
    vti_plan_place best[VTI_PLAN_UNITS_MAX];
    double best_s, bound_s;
    bool warm;       /* bound_price is that of a similar search: a good beginning */
    double enough_s; /* only asked whether a plan is as fast; 0: the fastest is wanted */
    double bound_price[VTI_PLAN_DEVICES_MAX];
    bool complete; /* the options are all there are */

    plan_group group[GROUPS_MAX];
    plan_wires wire[VTI_PLAN_CLASSES_MAX * VTI_WIRES + 1];
    plan_option option[OPTIONS_MAX];
    double to_go[VTI_PLAN_UNITS_MAX + 1][STATES_MAX];
    double bytes_to_go[VTI_PLAN_UNITS_MAX + 1];
    plan_label label[LABELS_MAX];
    unsigned paths;
    plan_path path[PATHS_MAX];
    plan_sums sums[VTI_PLAN_DEVICES_MAX + 1];
    uint16_t labels[VTI_PLAN_UNITS_MAX][STATES_MAX];
    vti_plan_place draft[VTI_PLAN_UNITS_MAX];
    vti_plan baseline, probed;
    plan_layers layers;
} plan_search;

/* --- search.c --------------------------------------------------------------------------------- */

/* What a plan has of its request; all else 0. */
void vti_plan_start(const vti_plan_request *r, vti_plan *plan);
/* Whether there is a plan that meets the QoS; then it is in *plan, but not evaluated. May overlook
 * one that only a thorough search finds. */
bool vti_plan_probe(plan_search *s, const vti_plan_request *r, vti_plan *plan);
void vti_plan_thorough(plan_search *s, const vti_plan_request *r, const vti_plan *incumbent,
                       vti_plan *plan);

static inline bool vti_plan_is_enough(const plan_search *s) { return s->best_s <= s->enough_s; }
/* The bound says that no plan is fast enough. */
static inline bool vti_plan_is_vain(const plan_search *s)
{
    return s->enough_s > 0 && s->bound_s > s->enough_s;
}

/* Marks which shards are pruned; importance may be NULL. */
void vti_plan_mark_pruned(const vti_plan_request *r, const vti_plan_importance *importance,
                          vti_plan *plan);

/* --- cost.c ----------------------------------------------------------------------------------- */

static inline const vti_plan_class *vti_plan_class_of(const vti_plan_request *r, unsigned unit)
{
    return &r->model->class_[r->model->unit_class[unit]];
}

/* Whether unit u is like the one two before; units come in long alternating runs. */
static inline bool vti_plan_like_before(const vti_plan_request *r, unsigned u)
{
    return u > 2 && r->model->unit_class[u] == r->model->unit_class[u - 2] &&
           r->precision[u] == r->precision[u - 2] && r->wire_lowered[u] == r->wire_lowered[u - 2];
}

void vti_plan_work(const vti_plan_request *r, vti_plan_phase phase, unsigned unit, unsigned device,
                   plan_work *work);
double vti_plan_work_seconds(const plan_work *work, unsigned share);
double vti_plan_transfer_bytes(const vti_plan_request *r, vti_plan_phase phase, unsigned unit,
                               unsigned wire, unsigned width);

/* `center` and everyone in `others` exchange at once; a group's airtime is used in turn. */
double vti_plan_round_seconds(const vti_plan_cluster *cluster, unsigned center, unsigned others,
                              bool outward, double bytes);
/* Everyone in `mask` sends to all others. */
double vti_plan_exchange_seconds(const vti_plan_cluster *cluster, unsigned mask, double bytes);

/* Of all units, one after the other. */
double vti_plan_seconds(const vti_plan_request *r, vti_plan_phase phase,
                        const vti_plan_place *places);

/* TTFT: the same in prefill, but for batches of a prompt that are under way at the same time. */
double vti_plan_prompt_seconds(const vti_plan_request *r, const vti_plan_place *places);

/* Unit u and the one before it are like the two before these: it takes as long as unit u - 2. */
bool vti_plan_repeats(const vti_plan_request *r, const vti_plan_place *places, unsigned u);

/* Bytes per device: the weights of both places, KV rows by the decode place. */
void vti_plan_unit_bytes(const vti_plan_request *r, unsigned unit, const vti_plan_place *decode,
                         const vti_plan_place *prefill, double *bytes);

double vti_plan_kv_bytes(const vti_plan_request *r, unsigned unit); /* of a shard */
/* Bytes of a shard and its KV rows. */
double vti_plan_shard_bytes(const vti_plan_request *r, unsigned unit);

/* --- replica.c -------------------------------------------------------------------------------- */

/* Evaluates the plan and, if wanted, finds places for copies of KV rows in the memory left. */
void vti_plan_replicate(const vti_plan_request *r, vti_plan *plan);
/* What the unit's replica takes on each device. */
void vti_plan_replica_bytes(const vti_plan_request *r, const vti_plan *plan, unsigned unit,
                            double *bytes);

/* --- baselines.c: every search but dp --------------------------------------------------------- */

/* Nothing slower is wanted: least_s[u] seconds, at least, are spent from unit u on. */
typedef struct plan_limit {
    double seconds, least_s[VTI_PLAN_UNITS_MAX + 1];
} plan_limit;

/* Fills the places of decode. False if the search gave up on them, as they are slower than the
 * limit (NULL: none). */
bool vti_plan_baseline(const vti_plan_request *r, vti_plan_search_kind kind,
                       const plan_limit *limit, vti_plan *plan);
/* Fills those of prefill, when decode's are there. */
void vti_plan_baseline_prefill(const vti_plan_request *r, vti_plan_search_kind kind,
                               vti_plan *plan);

/* --- layers.c --------------------------------------------------------------------------------- */

/* Fills the places of both phases with the best that fit and use the devices of `with` (a bit
 * each). False if none fit; the places then are the nearest ones, if wanted. */
bool vti_plan_layers(plan_layers *l, const vti_plan_request *r, unsigned with, bool nearest,
                     vti_plan *plan);

/* --- balance.c -------------------------------------------------------------------------------- */

/* The spread over `mask` whose slowest device is fastest; no device gets more than `room[d]` shards
 * (NULL: no bound). False if they do not fit. `work` has one entry per device. */
bool vti_plan_balance(const plan_work *work, unsigned devices, unsigned shards, unsigned mask,
                      const unsigned *room, uint16_t *shares);

/* --- tables.c: the phase's states, groups, options, transfer times ---------------------------- */

void vti_plan_begin(plan_search *s, const vti_plan_request *r, vti_plan_phase phase);
/* Prefill: groups by what decode has where; what it holds is free, the budget is what is left. */
void vti_plan_confine(plan_search *s, const vti_plan_place *decode);
/* Adds the spreads that are not balanced, where there are no more than `most`; s->complete says
 * whether these are all. */
void vti_plan_add_uneven(plan_search *s, unsigned most);
/* Finds or adds an option of a group; OPTIONS_MAX if there is no room for it. */
unsigned vti_plan_add_option(plan_search *s, unsigned group, const uint16_t *shares);

/* --- path.c ----------------------------------------------------------------------------------- */

void vti_plan_price_option(const plan_search *s, plan_option *option);
/* Seconds of a unit on the devices of `mask` between two states, apart from prices. */
double vti_plan_step_seconds(const plan_search *s, const plan_group *group, double compute_s,
                             unsigned mask, unsigned before, unsigned after);
/* The best path at s->price; fills s->path_*, s->used. Returns its time with the prices paid. */
double vti_plan_path(plan_search *s);
bool vti_plan_path_fits(const plan_search *s);
/* Writes the current path down as places. */
void vti_plan_path_places(const plan_search *s, vti_plan_place *places);
/* Writes down unit u's place between two states. */
void vti_plan_write_place(const plan_search *s, unsigned unit, const uint16_t *shares,
                          unsigned mask, unsigned before, unsigned after, vti_plan_place *place);
/* For each unit and state, the least that is left to pay from there at s->price (s->to_go). */
void vti_plan_backward(plan_search *s);

/* Takes the least of the times off all of them and returns it. */
double vti_plan_settle(double *at, unsigned states);

static inline bool vti_plan_is_head(const plan_search *s, unsigned u) { return u + 1 == s->units; }

/* --- rehome.c --------------------------------------------------------------------------------- */

/* Gives the places (of usable devices) the best homes and exchanges; returns the seconds. */
double vti_plan_rehome(plan_search *s, vti_plan_place *places);

/* --- when memory binds ------------------------------------------------------------------------ */

/* Fill s->best, s->best_s (NEVER: none was found that fits) and s->bound_s. */
void vti_plan_confined_decode(plan_search *s, const vti_plan *incumbent);
void vti_plan_confined_prefill(plan_search *s);
/* Spreads every unit by the memory that is left; fits if the budget is as good as enough. `stretch`
 * multiplies the budgets. False if it does not fit. */
bool vti_plan_fill(const plan_search *s, double stretch, vti_plan_place *places);
void vti_plan_offer(plan_search *s, const vti_plan_place *places, double seconds);
/* Finds the best mixture of paths, s->bound_s and s->bound_price; `hasty`: one that leads to a plan
 * that is enough will do. False if no mixture fits. */
bool vti_plan_mix(plan_search *s, bool hasty, plan_mixture *mixture);
/* Makes a draft of a mixture; it fits, or nearly so. */
void vti_plan_sew(plan_search *s, const plan_mixture *mixture);
/* Moves shards of the draft so that it fits, then, if wanted, to make it faster; the best homes are
 * still to be found. False if it cannot be made to fit. */
bool vti_plan_repair(plan_search *s, bool faster);
/* No plan of whole units that fits is faster. */
double vti_plan_whole_bound(const plan_search *s);
/* Rows of whole units, which nearly fit; false if the devices have too little memory together. */
bool vti_plan_runs(plan_search *s, vti_plan_place *places);
/* Looks for paths better than s->best that fit, with the prices of s->bound_price as guide. True if
 * there is none but those it found. */
bool vti_plan_labels(plan_search *s);

#endif
