#include "shard.h"

#include <string.h>

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
