#include "head.h"

#include <stdlib.h>

#include "linear.h"

static const vti_act_kernel *act_kernel(const vt_model *model)
{
    return &model->kernels.act[model->kernels.matmul[model->output.type].act];
}

static void *allocate(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err)
{
    *head = (vti_head){.model = model};
    VTI_TRY(vti_model_load_head(model, err));
    uint32_t d = model->hparams.d;
    head->norm = allocate((size_t)VTI_HEAD_ROWS * d * sizeof(float));
    head->act = allocate(act_kernel(model)->bytes(VTI_HEAD_ROWS, d));
    if (head->norm && head->act) return VT_OK;
    vti_head_close(head);
    return vti_fail(err, VT_ERR_MEMORY, "no memory for the output projection's scratch");
}

void vti_head_close(vti_head *head)
{
    free(head->norm);
    free(head->act);
    head->norm = NULL;
    head->act = NULL;
}

void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits)
{
    const vt_model *m = head->model;
    size_t d = m->hparams.d;
    for (uint32_t row = 0; row < rows; row++)
        m->kernels.rms_norm(head->norm + row * d, h + row * d, m->output_norm.data, d,
                            m->hparams.rms_eps);
    act_kernel(m)->pack(head->act, head->norm, d, rows, d);
    vti_linear(&m->kernels, m->pool, logits, &m->output, head->act, rows);
}
