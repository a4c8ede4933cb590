/* planner.h: what runs where. Pure functions on plain structs: no I/O, allocation, clocks, globals.
 *
 * A model is a chain of units; a unit is made of equal shards. A plan gives every unit and phase a
 * place: how many of its shards each device runs, and the home, which holds the residual stream
 * afterwards. One device with all shards that is the home too is MP, several are TP. Device d runs
 * the shards after those of the devices before it, so that both phases agree on which they are. */
#ifndef VTI_PLANNER_H
#define VTI_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VTI_PLAN_DEVICES_MAX = 8,
    VTI_PLAN_UNITS_MAX = 2 * 128 + 2,
    VTI_PLAN_GROUPS_MAX = 8,
};

typedef enum vti_plan_phase { VTI_PREFILL, VTI_DECODE, VTI_PHASES } vti_plan_phase;
typedef enum vti_plan_precision { VTI_F16, VTI_I8, VTI_I4, VTI_PRECISIONS } vti_plan_precision;
typedef enum vti_plan_wire { VTI_WIRE_F32, VTI_WIRE_F16, VTI_WIRE_I8, VTI_WIRE_I4, VTI_WIRES }
    vti_plan_wire;
typedef enum vti_plan_kind {
    VTI_UNIT_EMBED,
    VTI_UNIT_ATTN,
    VTI_UNIT_FFN,
    VTI_UNIT_MOE,
    VTI_UNIT_HEAD,
    VTI_UNIT_KINDS
} vti_plan_kind;

/* Seconds of a unit's step; none is negative. */
typedef struct vti_plan_coefficients {
    double fixed, per_mac, per_weight_byte, per_kv_byte;
} vti_plan_coefficients;

typedef struct vti_plan_device {
    double memory_bytes;  /* the budget */
    double scratch_bytes; /* what it needs of it as soon as it takes part */
    vti_plan_coefficients cost[VTI_UNIT_KINDS][VTI_PRECISIONS][VTI_PHASES];
} vti_plan_device;

/* Links of the same group (1..VTI_PLAN_GROUPS_MAX) share its airtime; those of group 0 share nothing. */
typedef struct vti_plan_link {
    double latency_s, bytes_per_s;
    unsigned group;
} vti_plan_link;

typedef struct vti_plan_cluster {
    unsigned devices; /* device 0 is the main device */
    vti_plan_device device[VTI_PLAN_DEVICES_MAX];
    vti_plan_link link[VTI_PLAN_DEVICES_MAX][VTI_PLAN_DEVICES_MAX]; /* [from][to] */
} vti_plan_cluster;

/* All sizes are those of one shard. Whole MHA, GQA and SWA differ in kv_bytes, kv_macs and window. */
typedef struct vti_plan_unit {
    vti_plan_kind kind;
    unsigned shards;
    unsigned active_shards;              /* MoE: experts a token goes through; otherwise 0 */
    double weight_bytes[VTI_PRECISIONS]; /* EMBED: 0, its rows are read on demand */
    double macs;                         /* per token */
    double kv_bytes, kv_macs;            /* per token in the KV cache; 0 but for ATTN */
    double window;                       /* tokens attended to at most; 0: all */
    unsigned input_width, output_width;  /* values per token sent to and from a sharer */
} vti_plan_unit;

/* The first unit is EMBED, the last HEAD, neither occurs elsewhere. */
typedef struct vti_plan_model {
    unsigned units;
    vti_plan_unit unit[VTI_PLAN_UNITS_MAX];
} vti_plan_model;

typedef struct vti_plan_request {
    const vti_plan_cluster *cluster;
    const vti_plan_model *model;
    uint8_t precision[VTI_PLAN_UNITS_MAX];
    vti_plan_wire wire;
    double prompt_tokens;  /* TTFT is that of a prompt of so many */
    double context_tokens; /* TPOT and the KV cache are those at this length */
    double ttft_s, tpot_s; /* the QoS */
} vti_plan_request;

typedef struct vti_plan_place {
    uint8_t home, wire;
    uint16_t shares[VTI_PLAN_DEVICES_MAX]; /* shards; they add up to the unit's */
} vti_plan_place;

typedef enum vti_plan_search_kind {
    VTI_SEARCH_DP, /* the default */
    VTI_SEARCH_GREEDY,
    VTI_SEARCH_SINGLE,
    VTI_SEARCH_EVEN_MP,
    VTI_SEARCH_EVEN_TP,
    VTI_SEARCH_AWARE_MP,
    VTI_SEARCH_AWARE_TP,
    VTI_SEARCHES
} vti_plan_search_kind;

/* Not changed once it is made. Holds no pointer: it may be copied and compared as bytes. */
typedef struct vti_plan {
    unsigned units, devices;
    uint8_t precision[VTI_PLAN_UNITS_MAX];
    vti_plan_place place[VTI_PHASES][VTI_PLAN_UNITS_MAX];
    double ttft_s, tpot_s;
    double memory_bytes[VTI_PLAN_DEVICES_MAX]; /* scratch included; 0 for a device left out */
    double shortfall_bytes[VTI_PLAN_DEVICES_MAX];
    bool feasible;   /* no shortfall */
    bool meets_qos;  /* feasible, and both times are within the QoS */
    bool unconfined; /* dp: memory did not change the decode phase; it is the best there is */
} vti_plan;

/* NULL if the request is sound, else what is wrong; *where is the offending device or unit. */
const char *vti_plan_check_request(const vti_plan_request *request, unsigned *where);

/* "dp", "greedy", "single", … */
const char *vti_plan_search_name(vti_plan_search_kind kind);

/* Bytes of scratch memory (aligned as malloc does) for vti_plan_search. */
size_t vti_plan_scratch_bytes(void);

/* Fills all of *plan. The request must be sound. Returns plan->feasible; if false, the plan is the
 * nearest that was found and shortfall_bytes says what each device lacks for it. */
bool vti_plan_search(const vti_plan_request *request, vti_plan_search_kind kind, void *scratch,
                     vti_plan *plan);

/* Fills what follows from the places: times, memory, shortfall, feasible, meets_qos. */
void vti_plan_evaluate(const vti_plan_request *request, vti_plan *plan);

/* Which devices run shards. */
unsigned vti_plan_mask(const vti_plan_place *place);

/* One unit's time, when the residual stream is on device `from` before it. */
double vti_plan_unit_seconds(const vti_plan_request *request, vti_plan_phase phase, unsigned unit,
                             const vti_plan_place *place, unsigned from);

#endif
