/* planner.h: what runs where. Pure functions on plain structs: no I/O, allocation, clocks, globals.
 *
 * A model is a chain of units; a unit is made of equal shards. A plan gives every unit and phase a
 * place: how many of its shards each device runs, and who holds the residual stream afterwards. One
 * device with all shards is MP, several are TP. Device d runs the shards after those of the devices
 * before it, so that both phases agree on which they are; pruned shards are not counted. */
#ifndef VTI_PLANNER_H
#define VTI_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VTI_PLAN_DEVICES_MAX = 8,
    VTI_PLAN_UNITS_MAX = 2 * 128 + 2,
    VTI_PLAN_CLASSES_MAX = 16,
    VTI_PLAN_GROUPS_MAX = 8,
    VTI_PLAN_PRUNABLE_MAX = 256, /* shards of a unit that may be pruned: those with lower numbers */
};

typedef enum vti_plan_phase { VTI_PREFILL, VTI_DECODE, VTI_PHASES } vti_plan_phase;
typedef enum vti_plan_precision {
    VTI_PLAN_F16,
    VTI_PLAN_I8,
    VTI_PLAN_I4,
    VTI_PLAN_PRECISIONS
} vti_plan_precision;
typedef enum vti_plan_wire {
    VTI_WIRE_F32,
    VTI_WIRE_F16,
    VTI_WIRE_I8,
    VTI_WIRE_I4,
    VTI_WIRES
} vti_plan_wire;
typedef enum vti_plan_kind {
    VTI_PLAN_EMBED,
    VTI_PLAN_ATTN,
    VTI_PLAN_FFN,
    VTI_PLAN_MOE,
    VTI_PLAN_HEAD,
    VTI_PLAN_KINDS
} vti_plan_kind;

/* Seconds of a unit's step; none is negative. */
typedef struct vti_plan_coefficients {
    double fixed;
    double per_mac, per_weight_byte; /* of the weights */
    double per_kv_byte, per_kv_mac;  /* of attention: by each token with each that it attends to */
    double per_shard; /* that runs; of experts, whose weights are read */
    double per_value; /* of the residual stream: width times tokens */
} vti_plan_coefficients;

typedef struct vti_plan_device {
    double memory_bytes;  /* the budget */
    double scratch_bytes; /* what it needs of it as soon as it takes part, wire buffers included */
    vti_plan_coefficients cost[VTI_PLAN_KINDS][VTI_PLAN_PRECISIONS][VTI_PHASES];
} vti_plan_device;

/* Links of one group (1..VTI_PLAN_GROUPS_MAX) share its airtime; those of group 0 share nothing. */
typedef struct vti_plan_link {
    double latency_s, bytes_per_s;
    unsigned group;
} vti_plan_link;

typedef struct vti_plan_cluster {
    unsigned devices; /* device 0 is the main device */
    vti_plan_device device[VTI_PLAN_DEVICES_MAX];
    vti_plan_link link[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX]; /* [from][to] */
} vti_plan_cluster;

/* What units of one class have in common. Sizes are those of one shard unless they say otherwise.
 * MHA, GQA and SWA differ in kv_bytes, kv_macs and window. */
typedef struct vti_plan_class {
    vti_plan_kind kind;
    unsigned shards;
    unsigned active_shards; /* MoE: experts a token goes through; otherwise 0 */
    double weight_bytes[VTI_PLAN_PRECISIONS]; /* EMBED: 0, its rows are read on demand */
    double macs;                              /* per token; of an expert, when chosen */
    double kv_bytes, kv_macs;                 /* per token in the KV cache; 0 but for ATTN */
    double window;                            /* tokens attended to at most; 0: all */
    double shared_bytes; /* norms, router: whole, on every device that runs any of the shards */
    /* MoE: the piece of the shared expert that goes with each expert, run for every token */
    double always_bytes[VTI_PLAN_PRECISIONS], always_macs;
    unsigned input_width, output_width; /* values per token sent to and from a sharer */
} vti_plan_class;

/* The first unit is EMBED, the last HEAD, neither occurs elsewhere. */
typedef struct vti_plan_model {
    unsigned classes, units;
    vti_plan_class class_[VTI_PLAN_CLASSES_MAX];
    uint8_t unit_class[VTI_PLAN_UNITS_MAX];
} vti_plan_model;

typedef struct vti_plan_request {
    const vti_plan_cluster *cluster;
    const vti_plan_model *model;
    uint8_t precision[VTI_PLAN_UNITS_MAX];
    unsigned pruned_shards; /* of each ATTN, FFN and MoE unit; the last one always stays */
    vti_plan_wire wire;     /* of all transfers, */
    uint8_t wire_lowered[VTI_PLAN_UNITS_MAX]; /* but lower by so many steps for this unit's */
    bool replicate_kv;      /* where memory is left when the search is done */
    double prompt_tokens;  /* TTFT is that of a prompt of so many */
    double batch_tokens;   /* of which so many are computed at once; 0: all */
    double context_tokens; /* TPOT and the KV cache are those at this length */
    double ttft_s, tpot_s; /* the QoS */
} vti_plan_request;

/* The device `from`, which has the residual stream, sends it to those that need it and lack it:
 * the devices with shards, and `home` unless the unit is HEAD. Star: the partial sums go to `home`,
 * which alone has the stream afterwards. Exchange: those with shards, of whom `home` is the first,
 * send them to each other, and all have it. */
typedef struct vti_plan_place {
    uint8_t from, home;
    uint8_t exchange; /* 0 or 1 */
    uint8_t wire;     /* vti_plan_wire of all these transfers */
    uint16_t shares[VTI_PLAN_DEVICES_MAX]; /* they add up to vti_plan_shards */
} vti_plan_place;

typedef enum vti_plan_search_kind {
    VTI_SEARCH_DP, /* the default */
    VTI_SEARCH_GREEDY,
    VTI_SEARCH_SINGLE,
    VTI_SEARCH_EVEN_MP,
    VTI_SEARCH_EVEN_TP,
    VTI_SEARCH_AWARE_MP,
    VTI_SEARCH_AWARE_TP,
    VTI_SEARCH_LAYERS, /* whole layers, split over a chain of devices as well as can be */
    VTI_SEARCHES
} vti_plan_search_kind;

/* How sure a search is of its TPOT. In clusters of more than 4 devices, plans with exchanges that
 * dp does not try (of more than two devices, or too slow for a unit alone) do not count. */
typedef enum vti_plan_proof {
    VTI_PROOF_NONE,
    VTI_PROOF_BEST,       /* no plan that fits is faster */
    VTI_PROOF_UNCONFINED, /* nor would more memory help */
} vti_plan_proof;

/* Not changed once it is made. Holds no pointer: it may be copied and compared as bytes. */
typedef struct vti_plan {
    unsigned units, devices;
    uint64_t epoch; /* 0 until the runtime numbers it */
    uint8_t precision[VTI_PLAN_UNITS_MAX];
    uint16_t pruned_shards;
    uint64_t pruned[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX / 64]; /* a bit per shard */
    vti_plan_place place[VTI_PHASES][VTI_PLAN_UNITS_MAX];
    /* 1 + the device with a copy of the unit's KV rows, 0: none. If it owns some of them itself,
     * these are copied to the first other owner (vti_plan_replica_of). */
    uint8_t replica[VTI_PLAN_UNITS_MAX];
    double ttft_s, tpot_s;
    /* dp: no mixture of the plans it tries that fits has a lower TPOT; 0: not known. Exact where
     * there is a proof; otherwise a plan of other spreads may be faster by what rounding to whole
     * shards costs. */
    double bound_s;
    double memory_bytes[VTI_PLAN_DEVICES_MAX]; /* scratch included; 0 for a device left out */
    double shortfall_bytes[VTI_PLAN_DEVICES_MAX];
    bool feasible;  /* no shortfall */
    bool meets_qos; /* feasible, and both times are within the QoS */
    uint8_t proof;  /* vti_plan_proof */
} vti_plan;

/* NULL if the request is sound, else what is wrong; *where is the offending device or unit. */
const char *vti_plan_check_request(const vti_plan_request *request, unsigned *where);

/* NULL if the plan, wherever it comes from, can be carried out: every unit placed as the comments
 * above say, within the memory of every device, and its times and sums are what vti_plan_evaluate
 * says. Else what is wrong; *where is the offending device or unit. The request must be sound. */
const char *vti_plan_check(const vti_plan_request *request, const vti_plan *plan, unsigned *where);

/* The same without memory, times and sums: whether the plan can be evaluated. */
const char *vti_plan_check_places(const vti_plan_request *request, const vti_plan *plan,
                                  unsigned *where);

/* "dp", "greedy", "single", … */
const char *vti_plan_search_name(vti_plan_search_kind kind);

/* Bytes of scratch memory (aligned as malloc does) for vti_plan_search. */
size_t vti_plan_scratch_bytes(void);

/* Fills all of *plan. The request must be sound. Returns plan->feasible; if false, the plan is the
 * nearest that was found and shortfall_bytes says what each device lacks for it. `incumbent`, if
 * not NULL, is a plan for the same model, such as the one in force: dp's is not slower per token
 * as long as that one fits. */
bool vti_plan_search(const vti_plan_request *request, vti_plan_search_kind kind,
                     const vti_plan *incumbent, void *scratch, vti_plan *plan);

/* VTI_SEARCH_LAYERS among the splits that use all of `devices`, a bit each: what it would cost not
 * to leave one out. False, and *plan is nothing, if none fits. */
bool vti_plan_search_layers_with(const vti_plan_request *request, unsigned devices, void *scratch,
                                 vti_plan *plan);

/* Fills what follows from the places: times, memory, shortfall, feasible, meets_qos. */
void vti_plan_evaluate(const vti_plan_request *request, vti_plan *plan);

/* --- precision -------------------------------------------------------------------------------- */

/* How the precisions that meet memory and QoS are looked for. Units are lowered one after the other
 * in the order given: first all to I8, then all to I4. */
typedef enum vti_plan_allocation {
    VTI_ALLOCATE_SEARCH,    /* by halves: every step takes less memory and time than the last */
    VTI_ALLOCATE_ENUMERATE, /* step by step; for comparison */
    VTI_ALLOCATE_UNIFORM,   /* all units the same; for comparison */
    VTI_ALLOCATIONS
} vti_plan_allocation;

/* How much worse the model is without it, of any unit of measure. */
typedef struct vti_plan_importance {
    double unit[VTI_PLAN_UNITS_MAX];
    /* [unit][shard], which shards are pruned first; NULL: those with the highest numbers */
    const float (*shard)[VTI_PLAN_PRUNABLE_MAX];
} vti_plan_importance;

/* The units in the order in which they are lowered, the least important first; EMBED, which has no
 * weights of its own, is left out. `per_byte`: the least important per byte that I8 saves. Returns
 * how many there are. */
unsigned vti_plan_lowering_order(const vti_plan_request *request,
                                 const vti_plan_importance *importance, bool per_byte,
                                 uint16_t order[VTI_PLAN_UNITS_MAX]);

/* Chooses precisions not above the request's, as high as memory and QoS allow. If not even all-I4
 * meets the QoS, it is all-F16, all-I8 or all-I4: of those that fit the one that misses it least, by
 * the time that misses it more, and of equal ones the highest, as lower is not faster on every
 * device. If all-I4 does not fit into memory, as few shards as possible are pruned, the same number
 * of every ATTN, FFN and MoE unit, the least important first (the request's own number does not
 * count). *plan has `planner`'s plan for the result. Returns plan->feasible. The request must be
 * sound. */
bool vti_plan_allocate(const vti_plan_request *request, const vti_plan_importance *importance,
                       const uint16_t *order, unsigned ordered, vti_plan_allocation kind,
                       vti_plan_search_kind planner, void *scratch, vti_plan *plan);

/* --- parts of it ------------------------------------------------------------------------------ */

/* Shards of a unit that are left by pruning. */
unsigned vti_plan_shards(const vti_plan_request *request, unsigned unit);

/* Of a unit's transfers. */
vti_plan_wire vti_plan_unit_wire(const vti_plan_request *request, unsigned unit);

/* The device with a copy of the KV rows of `unit` that `owner` writes; -1: there is none. */
int vti_plan_replica_of(const vti_plan *plan, unsigned unit, unsigned owner);

/* Which devices run shards; which have the residual stream afterwards. One bit each. */
unsigned vti_plan_mask(const vti_plan_place *place);
unsigned vti_plan_holders(const vti_plan_place *place);

/* One unit's time, when the residual stream is on the devices `holders` before it. */
double vti_plan_unit_seconds(const vti_plan_request *request, vti_plan_phase phase, unsigned unit,
                             const vti_plan_place *place, unsigned holders);

#endif
