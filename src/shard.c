#include "shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool vti_shard_source_lay_out(const vti_shard_source *source, vti_shard_id id,
                              vti_shard_layout *out)
{
    vti_shard_form form;
    return source->form(source->self, id, &form) &&
           vti_shard_lay_out(source->geometry, source->kernels, id.unit, id.shard, &form, out);
}

void vti_shard_point(vti_shard *shard, vti_shard_id id, const vti_shard_layout *layout,
                     void *memory)
{
    *shard = (vti_shard){.id = id, .memory = memory, .bytes = layout->bytes};
    for (unsigned i = 0; i < VTI_PIECES; i++) {
        const vti_placed_piece *at = &layout->at[i];
        if (at->piece.rows == 0) continue;
        shard->tensor[i] = (vti_tensor){
            .type = at->type,
            .rows = at->piece.rows,
            .cols = at->packed_cols,
            .data = (unsigned char *)memory + at->offset,
        };
    }
}

void vti_shard_describe(const vti_geometry *g, vti_shard_id id, char text[VTI_SHARD_TEXT])
{
    static const char *const kinds[] = {"ATTN", "FFN", "HEAD", "EMBED"};
    vti_unit_kind kind = vti_unit_kind_of(g, id.unit);
    int at = snprintf(text, VTI_SHARD_TEXT, "%s", kinds[kind]);
    if (kind == VTI_UNIT_ATTN || kind == VTI_UNIT_FFN)
        at += snprintf(text + at, VTI_SHARD_TEXT - (size_t)at, "(%" PRIu32 ")",
                       vti_unit_layer(id.unit));
    if (id.shard == vti_unit_shards(g, id.unit))
        snprintf(text + at, VTI_SHARD_TEXT - (size_t)at, " shared tensors");
    else
        snprintf(text + at, VTI_SHARD_TEXT - (size_t)at, " shard %" PRIu32, id.shard);
}

vt_status vti_shard_new(vti_shard_memory *memory, vti_shard_id id, const vti_shard_layout *layout,
                        vti_shard **out, vt_error *err)
{
    void *block;
    *out = malloc(sizeof **out);
    if (!*out) return vti_fail(err, VT_ERR_MEMORY, "no memory for a shard");
    vt_status status = vti_shard_memory_allocate(memory, layout->bytes, "a shard of weights",
                                                 &block, err);
    if (status != VT_OK) {
        free(*out);
        *out = NULL;
        return status;
    }
    vti_shard_point(*out, id, layout, block);
    return VT_OK;
}

void vti_shard_free(vti_shard_memory *memory, vti_shard *shard)
{
    if (!shard) return;
    vti_shard_memory_free(memory, shard->memory);
    free(shard);
}
