#include "head.h"

#include <stdlib.h>

#include "linear.h"

static void *allocate(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err)
{
    *head = (vti_head){.model = model};
    VTI_TRY(vti_model_load_head(model, err));
    uint32_t d = model->hparams.d;
    vti_act_type type = model->kernels.matmul[model->output.type].act;
    head->norm = allocate((size_t)VTI_HEAD_ROWS * d * sizeof(float));
    head->act[type] = allocate(model->kernels.act[type].bytes(VTI_HEAD_ROWS, d));
    if (head->norm && head->act[type]) return VT_OK;
    vti_head_close(head);
    return vti_fail(err, VT_ERR_MEMORY, "no memory for the output projection's scratch");
}

void vti_head_close(vti_head *head)
{
    free(head->norm);
    for (unsigned i = 0; i < VTI_ACT_TYPE_COUNT; i++) free(head->act[i]);
    *head = (vti_head){0};
}

void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits)
{
    const vt_model *m = head->model;
    uint32_t d = m->hparams.d;
    for (size_t row = 0; row < rows; row++)
        m->kernels.rms_norm(head->norm + row * d, h + row * d, m->output_norm.data, d,
                            m->hparams.rms_eps);
    vti_act_type type = m->kernels.matmul[m->output.type].act;
    vti_linear_input input = {.x = head->norm, .tokens = rows, .cols = d};
    input.act[type] = head->act[type];
    vti_linear(&m->kernels, m->pool, &(const vti_product){logits, &m->output, &input}, 1);
}
