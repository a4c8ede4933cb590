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
    float *in;             /* slots × d: the tokens' normed input */
    float *gate, *up;      /* slots × expert_ff */
    float *out;            /* slots × d */
    float *shared_out;     /* tokens × d */
    void *act[VTI_ACT_TYPE_COUNT]; /* slots of `in` or `gate` as kernels want them */
    vti_linear_input *inputs;      /* experts + 1 (the shared one) */
    vti_tensor *matrices;          /* 2 × experts */
    vti_product *products;         /* 2 × experts + 1 */
} vti_moe;

/* Where expert `expert`'s slots, from `first` on, begin in vti_moe.act: apart from each other,
 * aligned. With first = all slots and expert = all experts: the bytes of the whole. */
static inline size_t vti_moe_act_offset(const vti_act_kernel *kernel, size_t first, size_t expert,
                                        size_t cols)
{
    return (kernel->bytes(first, cols) + 63) / 64 * 64 + expert * 64;
}

/* Scratch buffers have room for `batch_tokens` rows. */
struct vti_stage {
    vti_stage_params p;
    const vti_family *family;
    vti_kv_cache cache;
    float *norm;       /* tokens × d: normed input of a unit */
    float *q;          /* tokens × heads × head_dim */
    float *k, *v;      /* tokens × kv_heads × head_dim */
    float *mix;        /* tokens × heads × head_dim: attention's output */
    float *gate;       /* tokens × ff */
    float *up;         /* tokens × ff */
    float *out;        /* tokens × d: a unit's contribution to the residual */
    vti_rope rope;     /* of global layers */
    vti_rope local_rope;
    float *partial;    /* parts × heads × head_dim: attention over a part of the positions */
    float *part_sums;  /* parts × heads × 2: its largest score and its sum */
    vti_moe moe;       /* of families with experts */
    void *act[VTI_ACT_TYPE_COUNT]; /* the current input as kernels want it */
    void *memory;
    vti_linear_input input;
};

/* A step's tokens on their way through one layer. h: tokens × d, the residual stream. */
typedef struct vti_block {
    vti_stage *s;
    const vti_tensor *w; /* the layer's, by role */
    uint32_t layer;      /* counted from the stage's first */
    bool local;          /* sees only its window */
    float *h;
    uint32_t position, tokens;
} vti_block;

/* The units of a layer: h += f(h). */
void vti_attention_unit(vti_block *b);
void vti_dense_unit(vti_block *b);
void vti_moe_unit(vti_block *b);

/* --- what they share ------------------------------------------------------------------------- */

/* Calls work(context, first token, end) for all tokens, each of which touches `floats` numbers. */
void vti_for_tokens(const vti_block *b, size_t floats, vti_work_fn *work, void *context);

/* s->norm = RMSNorm(h); it becomes s->input. */
void vti_norm_input(const vti_block *b, vti_role norm);

/* Makes x (tokens × cols) s->input: what the next products multiply. */
void vti_set_input(const vti_block *b, const float *x, uint32_t cols);

/* gate = activation(gate) * up, over `rows` rows of `cols`. */
void vti_gate_rows(const vti_block *b, float *gate, const float *up, size_t rows, size_t cols);

/* h += s->out, normed first if the family has such a norm. */
void vti_add_output(const vti_block *b, vti_role post_norm);

#endif
