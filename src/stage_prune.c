/* stage_prune.c: shards and channels that are left out of the forward pass. */
#include <stdlib.h>

#include "stage_internal.h"

/* The widest unit's slots come behind the flags. */
static vt_status open_pruning(vti_stage *s, vt_error *err)
{
    const vti_weights *w = s->p.weights;
    size_t flags = 0, widest = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        size_t slots = w->units[i].shards + 1;
        flags += slots;
        if (slots > widest) widest = slots;
    }
    size_t aligned = (sizeof *s->pruning + flags + sizeof(void *) - 1) / sizeof(void *);
    s->pruning = calloc(aligned + widest, sizeof(void *));
    if (!s->pruning) return vti_fail(err, VT_ERR_MEMORY, "no memory to leave out shards");
    s->pruning->left = (vti_shard **)(void *)s->pruning + aligned;
    return VT_OK;
}

static bool *flags_of(const vti_stage *s, uint32_t unit)
{
    return s->pruning->pruned + (vti_weights_unit(s->p.weights, unit)->shard - s->p.weights->slots);
}

vt_status vti_stage_prune(vti_stage *s, uint32_t unit, uint32_t shard, bool pruned, vt_error *err)
{
    if (!s->pruning && !pruned) return VT_OK;
    if (!s->pruning) VTI_TRY(open_pruning(s, err));
    flags_of(s, unit)[shard] = pruned;
    return VT_OK;
}

vt_status vti_prune_missing(vti_stage *s, vt_error *err)
{
    const vti_weights *w = s->p.weights;
    for (uint32_t i = 0; w->pruned && i < w->count; i++)
        for (uint32_t shard = 0; shard < w->units[i].shards; shard++)
            if (w->pruned[w->units[i].shard + shard - w->slots])
                VTI_TRY(vti_stage_prune(s, w->first + i, shard, true, err));
    return VT_OK;
}

void vti_prune_block(vti_block *b, uint32_t unit)
{
    const bool *pruned = flags_of(b->s, unit);
    vti_shard **left = b->s->pruning->left;
    bool any = false;
    for (uint32_t i = 0; i <= b->unit.shards; i++) {
        left[i] = pruned[i] ? NULL : b->unit.shard[i];
        any = any || pruned[i];
    }
    if (!any) return;
    b->unit.shard = left;
    b->pruned = pruned;
}

/* --- channels --------------------------------------------------------------------------------- */

uint32_t vti_shard_channels(const vti_geometry *g, uint32_t unit, uint32_t shard)
{
    vti_piece piece[VTI_PIECES];
    vti_shard_pieces(g, unit, shard, false, piece);
    return vti_unit_kind_of(g, unit) == VTI_UNIT_ATTN ? piece[VTI_PIECE_OUT].cols
                                                      : piece[VTI_PIECE_DOWN].cols;
}

void vti_stage_prune_channel(vti_stage *s, const vti_channel *channel)
{
    s->channel = channel ? *channel : (vti_channel){.unit = VTI_NO_UNIT};
}

/* Where the channel is multiplied with weights: the role, for an expert its number, the column. */
typedef struct meeting {
    vti_role role;
    uint32_t slice, col;
} meeting;

static meeting meeting_of(const vti_geometry *g, const vti_channel *c)
{
    uint32_t experts = g->hparams.experts;
    if (vti_unit_kind_of(g, c->unit) == VTI_UNIT_ATTN)
        return (meeting){VTI_ATTN_OUT, 0, c->shard * vti_mix_slice(g) + c->channel};
    if (c->shard < experts) return (meeting){VTI_EXPERTS_DOWN, c->shard, c->channel};
    return (meeting){experts ? VTI_SHARED_DOWN : VTI_FFN_DOWN, 0,
                     (c->shard - experts) * g->ffn_width + c->channel};
}

void vti_prune_input(const vti_block *b, vti_role role, uint32_t slice, float *x, size_t stride,
                     uint32_t tokens, uint32_t col, uint32_t cols)
{
    const vti_stage *s = b->s;
    if (vti_unit_layer(s->channel.unit) != vti_unit_layer(s->p.weights->first) + b->layer) return;
    meeting m = meeting_of(s->p.geometry, &s->channel);
    if (role != m.role || slice != m.slice || m.col < col || m.col >= col + cols) return;
    for (uint32_t t = 0; t < tokens; t++) x[t * stride + m.col] = 0;
}
