/* head.h: HEAD, the output norm and projection: residual stream → logits. */
#ifndef VTI_HEAD_H
#define VTI_HEAD_H

#include "linear.h"
#include "model.h"
#include "stage.h"

/* Most rows of one call. */
enum { VTI_HEAD_ROWS = 16 };

typedef struct vti_head {
    vt_model *model;
    const vti_weights *weights;
    vti_shard_reader *reader;
    vti_batch batch;
    float *norm; /* VTI_HEAD_ROWS × padded d */
    void *memory;
    uint64_t scratch_bytes; /* of it, taken from the model's budget */
    uint32_t first_pruned, pruned; /* columns that are left out */
    vti_observer observer;
} vti_head;

/* Bytes of scratch. */
uint64_t vti_head_bytes(const vt_model *model);

/* Loads the model's output matrix if that has not happened yet. */
vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err);
void vti_head_close(vti_head *head);

/* Of the calls from now on: VTI_OUTPUT, as of a layer behind the last. */
void vti_head_observe(vti_head *head, const vti_observer *observer);

/* Leaves out columns [first, first + count) of the output matrix from now on; count 0: none. */
void vti_head_prune_columns(vti_head *head, uint32_t first, uint32_t count);

/* logits: rows × vocab = Wout · RMSNorm(h[row]); h: rows × d. */
void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits);

#endif
