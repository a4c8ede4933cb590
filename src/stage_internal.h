/* stage_internal.h: a stage's insides, shared by what opens it and the blocks that run in it. */
#ifndef VTI_STAGE_INTERNAL_H
#define VTI_STAGE_INTERNAL_H

#include "families/family.h"
#include "linear.h"
#include "rope.h"
#include "stage.h"

/* Decoding cuts the positions of attention into parts of this many, so that threads can share
 * one KV head. It depends on nothing but the position: results are the same with any number of
 * threads. */
enum { VTI_ATTENTION_PART = 512 };

static inline size_t vti_attention_parts(size_t positions)
{
    return (positions + VTI_ATTENTION_PART - 1) / VTI_ATTENTION_PART;
}

/* Scratch of a mixture of experts. A slot is one token's use of one expert: tokens ×
 * experts_used of them, ordered by expert. */
typedef struct vti_moe {
    float *scores;         /* tokens × experts */
    uint32_t *choice;      /* tokens × experts_used: expert … */
    uint32_t *slot;        /* … its slot … */
    float *weight;         /* … and how much it counts */
    float *shared_weight;  /* tokens */
    uint32_t *slot_token;  /* slots */
    uint32_t *first_slot;  /* experts + 1: of each expert, and the end */
    float *in;             /* slots × padded d: the tokens' normed input */
    float *gate, *up;      /* slots × padded expert_ff */
    float *out;            /* slots × d */
    float *shared_out;     /* tokens × d */
    vti_linear_input **inputs; /* experts: of those with slots */
} vti_moe;

enum { VTI_NO_UNIT = UINT32_MAX };

/* Which shards are left out, and what is left of the unit that runs. */
typedef struct vti_pruning {
    vti_shard **left; /* as many as the widest unit has, with what they share */
    bool pruned[];    /* of all units, as in vti_weights.slots */
} vti_pruning;

/* Scratch buffers have room for `batch_tokens` rows. What is multiplied with weights has rows as
 * wide as the weights' packed columns: what is behind the numbers proper stays zero. */
struct vti_stage {
    vti_stage_params p;
    const vti_family *family;
    vti_kv_cache cache;
    float *norm;       /* tokens × padded d: normed input of a unit */
    float *q;          /* tokens × heads × head_dim */
    float *k, *v;      /* tokens × kv_heads × head_dim */
    float *mix;        /* tokens × ATTN shards × padded width of a shard: attention's output */
    float *gate;       /* tokens × padded ff */
    float *up;         /* tokens × padded ff */
    float *out;        /* tokens × d: a unit's contribution to the residual */
    vti_rope rope;     /* of global layers */
    vti_rope local_rope;
    float *partial;    /* parts × heads × head_dim: attention over a part of the positions */
    float *part_sums;  /* parts × heads × 2: its largest score and its sum */
    vti_moe moe;       /* of families with experts */
    vti_batch batch;   /* products of a unit */
    vti_shard_reader *reader; /* NULL: the weights stay as they are */
    void *memory;
    uint64_t scratch_bytes, kv_bytes; /* taken from the budget */
    vti_observer observer;
    vti_pruning *pruning; /* NULL: nothing ever was */
    vti_channel channel;  /* that is left out; unit VTI_NO_UNIT: none */
};

/* A step's tokens on their way through one unit. h: tokens × d, the residual stream. */
typedef struct vti_block {
    vti_stage *s;
    vti_unit unit;       /* its shards as they were when it began */
    uint32_t layer;      /* counted from the stage's first */
    bool local;          /* sees only its window */
    const bool *pruned;  /* of its shards; NULL: none is */
    float *h;
    uint32_t position, tokens;
} vti_block;

/* Width of an ATTN shard's slice of `mix`, padded; of all slices. */
static inline uint32_t vti_mix_slice(const vti_geometry *g)
{
    const vti_hparams *p = &g->hparams;
    return vti_padded(p->heads / p->kv_heads * g->shard_kv_heads * p->head_dim);
}

static inline uint32_t vti_mix_width(const vti_geometry *g)
{
    return vti_mix_slice(g) * vti_unit_shards(g, 0);
}

/* The units of a layer: h += f(h). */
void vti_attention_unit(vti_block *b);
void vti_dense_unit(vti_block *b);
void vti_moe_unit(vti_block *b);

/* --- what they share ------------------------------------------------------------------------- */

/* Calls work(context, first token, end) for all tokens, each of which touches `floats` numbers. */
void vti_for_tokens(const vti_block *b, size_t floats, vti_work_fn *work, void *context);

/* A tensor that the unit's shards share. */
static inline const vti_tensor *vti_block_tensor(const vti_block *b, unsigned piece)
{
    return vti_unit_tensor(&b->unit, piece);
}

/* s->norm = RMSNorm(h), and as an input of the batch, which it begins. `role`: the first matrix
 * that is multiplied with it. */
vti_linear_input *vti_norm_input(const vti_block *b, vti_role role);

/* Another input, of `cols` columns from column `col` of the rows that begin at x. */
vti_linear_input *vti_block_input(const vti_block *b, vti_role role, uint32_t slice, float *x,
                                  size_t stride, uint32_t tokens, uint32_t col, uint32_t cols);

/* Leaves out what the weights say. */
vt_status vti_prune_missing(vti_stage *stage, vt_error *err);

/* Takes out of the block's unit what is pruned. */
void vti_prune_block(vti_block *b, uint32_t unit);

/* Sets the channel that is left out to zero, if it is in this input. */
void vti_prune_input(const vti_block *b, vti_role role, uint32_t slice, float *x, size_t stride,
                     uint32_t tokens, uint32_t col, uint32_t cols);

/* gate = activation(gate) * up, over `rows` rows of `cols`. */
void vti_gate_rows(const vti_block *b, float *gate, const float *up, size_t rows, size_t cols);

/* Products of a dense FFN, or a shared expert, whose shards begin at number `first`: s->gate and
 * s->up of the input; and `out` of s->gate, after its activation. */
void vti_add_widen(const vti_block *b, uint32_t first, vti_linear_input *in);
void vti_add_narrow(const vti_block *b, uint32_t first, float *out);

/* The links of the newest product, a sum over shards, are complete: without any it is zero. */
void vti_end_sum(const vti_block *b, float *out);

/* h += s->out, normed first if the family has such a norm. */
void vti_add_output(const vti_block *b);

#endif
