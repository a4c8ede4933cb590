/* head.h: HEAD, the output norm and projection: residual stream → logits. */
#ifndef VTI_HEAD_H
#define VTI_HEAD_H

#include "model.h"

/* Most rows of one call. */
enum { VTI_HEAD_ROWS = 16 };

typedef struct vti_head {
    const vt_model *model;
    float *norm;                   /* VTI_HEAD_ROWS × d */
    void *act[VTI_ACT_TYPE_COUNT]; /* the same, as the output matrix's kernel wants it */
} vti_head;

/* Loads the model's output matrix if that has not happened yet. */
vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err);
void vti_head_close(vti_head *head);

/* logits: rows × vocab = Wout · RMSNorm(h[row]); h: rows × d. */
void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits);

#endif
