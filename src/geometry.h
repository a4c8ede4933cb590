/* geometry.h: a model cut into units and shards; everything follows from its hyperparameters.
 *
 * Units are numbered in the order in which a token passes them: ATTN(0), FFN(0), ATTN(1), … HEAD;
 * EMBED comes last. A unit has shards [0, count), which can be placed, stored, quantised and pruned
 * one by one, and what they share: small tensors (norms, routers) that every device needs that runs
 * any of them. These are stored as one more shard, number `count`.
 *
 *   ATTN      a KV head with its query heads: rows of Wq, Wk, Wv and their biases, columns of Wo
 *   FFN       a block of hidden channels: rows of gate and up, columns of down
 *   FFN, MoE  first the experts, then blocks of the shared expert's hidden channels
 *   HEAD      a block of vocabulary rows
 *   EMBED     the same blocks of the embedding matrix, whose rows are read one by one
 *
 * A shard's partial output has the unit's full width; the unit's output is the sum over its shards
 * (HEAD: their concatenation). */
#ifndef VTI_GEOMETRY_H
#define VTI_GEOMETRY_H

#include "../kernels/layout.h"
#include "roles.h"

typedef enum vti_unit_kind {
    VTI_UNIT_ATTN, VTI_UNIT_FFN, VTI_UNIT_HEAD, VTI_UNIT_EMBED
} vti_unit_kind;

/* From the largest to the smallest. A file that is quantised already offers its own types as the
 * precision that their size is nearest to, and those below it. */
typedef enum vti_precision {
    VTI_PRECISION_F16, VTI_PRECISION_I8, VTI_PRECISION_I4,
    VTI_PRECISION_COUNT
} vti_precision;

/* "F16", "I8", "I4" */
const char *vti_precision_name(vti_precision precision);

/* Columns of packed matrices are filled up with zeros to whole steps of this many. */
enum { VTI_COLUMN_STEP = 32, VTI_SHARD_ALIGNMENT = 64 };

static inline uint32_t vti_padded(uint32_t cols)
{
    return (cols + VTI_COLUMN_STEP - 1) / VTI_COLUMN_STEP * VTI_COLUMN_STEP;
}

typedef struct vti_geometry {
    vti_hparams hparams;
    bool quantised;        /* as given to vti_geometry_init */
    uint32_t units;        /* 2 × layers + 2 */
    uint32_t shard_kv_heads; /* KV heads of an ATTN shard: 1, unless its columns of Wo would not be
                                whole blocks of a file that is quantised already */
    uint32_t ffn_width;    /* hidden channels of an FFN shard; the last may have fewer */
    uint32_t vocab_rows;   /* of a HEAD or EMBED shard; the last may have fewer */
} vti_geometry;

/* `quantised`: the file's matrices have blocks of 32 columns or more. */
void vti_geometry_init(vti_geometry *out, const vti_hparams *hparams, bool quantised);

vti_unit_kind vti_unit_kind_of(const vti_geometry *g, uint32_t unit);
static inline uint32_t vti_unit_layer(uint32_t unit) { return unit / 2; } /* of ATTN and FFN */
static inline uint32_t vti_attn_unit(uint32_t layer) { return 2 * layer; }
static inline uint32_t vti_ffn_unit(uint32_t layer) { return 2 * layer + 1; }
static inline uint32_t vti_head_unit(const vti_geometry *g) { return g->units - 2; }
static inline uint32_t vti_embed_unit(const vti_geometry *g) { return g->units - 1; }

uint32_t vti_unit_shards(const vti_geometry *g, uint32_t unit); /* without the shared tensors */

/* What a shard has of a tensor: rows [row, row + rows) × columns [col, col + cols), of one expert's
 * matrix if the role has several. rows 0: the shard has nothing there. A vector is one row. */
typedef struct vti_piece {
    vti_role role;
    uint32_t slice, row, rows, col, cols;
} vti_piece;

/* Places of the pieces in a shard; unused ones have rows 0. */
enum {
    /* ATTN */
    VTI_PIECE_Q = 0, VTI_PIECE_K, VTI_PIECE_V,
    VTI_PIECE_Q_BIAS, VTI_PIECE_K_BIAS, VTI_PIECE_V_BIAS,
    VTI_PIECE_OUT,
    VTI_PIECE_OUT_REST, /* of shards that begin within a block; see vti_shard_form.source_grid */
    /* FFN: dense, one expert, or a block of the shared expert */
    VTI_PIECE_GATE = 0, VTI_PIECE_UP, VTI_PIECE_DOWN,
    /* HEAD, EMBED */
    VTI_PIECE_ROWS = 0,
    /* what the shards of an ATTN unit share */
    VTI_PIECE_NORM = 0, VTI_PIECE_POST_NORM, VTI_PIECE_Q_NORM, VTI_PIECE_K_NORM,
    VTI_PIECE_ROPE_FREQS,
    /* of an FFN unit: VTI_PIECE_NORM, VTI_PIECE_POST_NORM and, of a mixture */
    VTI_PIECE_ROUTER = 2, VTI_PIECE_SHARED_ROUTER,
    /* of HEAD: VTI_PIECE_NORM; of EMBED: nothing */
    VTI_PIECES = 8,

    VTI_PIECE_ABSENT = 0xff /* type of a piece that is not there */
};

/* How a shard is stored: decides, with the geometry, every byte's place. */
typedef struct vti_shard_form {
    vti_precision precision;
    bool source_grid; /* Wo is of a K type, and its blocks are those of the file's rows, not the
                         shard's own: of a shard that begins within such a block, VTI_PIECE_OUT is
                         that block's rest and VTI_PIECE_OUT_REST what comes after it */
    uint8_t type[VTI_PIECES]; /* vti_weight_type, VTI_F32 for vectors; or VTI_PIECE_ABSENT */
} vti_shard_form;

typedef struct vti_placed_piece {
    vti_piece piece;
    vti_weight_type type;
    uint32_t packed_cols;   /* piece.cols, filled up to VTI_COLUMN_STEP; of a vector its elements */
    uint64_t offset, bytes; /* in the shard; multiples of VTI_SHARD_ALIGNMENT */
} vti_placed_piece;

/* A shard's bytes: its pieces one after the other, matrices packed for the kernels, vectors F32. */
typedef struct vti_shard_layout {
    vti_placed_piece at[VTI_PIECES];
    uint64_t bytes;
} vti_shard_layout;

/* Pieces that a shard (shard == vti_unit_shards: what they share) of this family can have. Roles
 * that are optional in a file are included. */
void vti_shard_pieces(const vti_geometry *g, uint32_t unit, uint32_t shard, bool source_grid,
                      vti_piece out[VTI_PIECES]);

/* Where everything lies. False if the form is not possible: a number that is no type, a piece that
 * the family requires or does not have, a unit or shard that does not exist. */
bool vti_shard_lay_out(const vti_geometry *g, const vti_kernels *kernels, uint32_t unit,
                       uint32_t shard, const vti_shard_form *form, vti_shard_layout *out);

/* --- sums for planning ------------------------------------------------------------------------- */

/* Multiply-accumulates per token that a shard does with its weights; of an expert, when chosen. */
uint64_t vti_shard_macs(const vti_geometry *g, uint32_t unit, uint32_t shard);

/* KV bytes per token of an ATTN shard at `element_bytes` per element; 0 of others. */
uint64_t vti_shard_kv_bytes(const vti_geometry *g, uint32_t unit, uint32_t shard,
                            uint32_t element_bytes);

/* Floats per token that come out of a shard; d go into every one. */
uint32_t vti_shard_output_width(const vti_geometry *g, uint32_t unit, uint32_t shard);

#endif
