#include "head.h"

#include <stdlib.h>
#include <string.h>

vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err)
{
    *head = (vti_head){.model = model};
    VTI_TRY(vti_model_head(model, &head->weights, err));
    uint32_t shards = head->weights->units[0].shards, width = vti_padded(model->hparams.d);
    vti_batch_limits limits = {.products = shards, .links = shards};
    const vti_batch_inputs norm = {1, 0, VTI_HEAD_ROWS, width};
    vti_batch_limit_inputs(&limits, &model->kernels, &norm);
    size_t bytes = vti_batch_lay_out(&head->batch, &model->kernels, &limits, NULL);
    size_t norm_bytes = ((size_t)VTI_HEAD_ROWS * width * sizeof(float) + 63) / 64 * 64;
    head->memory = aligned_alloc(64, bytes + norm_bytes);
    if (!head->memory)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for the output projection's scratch");
    vti_batch_lay_out(&head->batch, &model->kernels, &limits, head->memory);
    head->norm = (float *)(void *)((unsigned char *)head->memory + bytes);
    memset(head->norm, 0, norm_bytes); /* what is padded stays so */
    return VT_OK;
}

void vti_head_close(vti_head *head)
{
    free(head->memory);
    *head = (vti_head){0};
}

void vti_head_observe(vti_head *head, const vti_observer *observer) { head->observer = *observer; }

void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits)
{
    const vt_model *m = head->model;
    const vti_unit *unit = &head->weights->units[0];
    const vti_hparams *p = &m->hparams;
    size_t width = vti_padded(p->d);
    for (size_t row = 0; row < rows; row++)
        m->kernels.rms_norm(head->norm + row * width, h + row * p->d,
                            vti_unit_tensor(unit, VTI_PIECE_NORM)->data, p->d, p->rms_eps);
    if (head->observer.input)
        head->observer.input(head->observer.user, p->layers, VTI_OUTPUT, 0, head->norm, width, rows,
                             0, (uint32_t)width);
    vti_batch_begin(&head->batch);
    vti_linear_input *in = vti_batch_input(&head->batch, head->norm, width, rows, (uint32_t)width);
    for (uint32_t i = 0; i < unit->shards; i++) {
        vti_batch_product(&head->batch, logits + (size_t)i * m->geometry.vocab_rows, p->vocab);
        vti_batch_link(&head->batch, &unit->shard[i]->tensor[VTI_PIECE_ROWS], in);
    }
    vti_batch_run(&head->batch, m->pool);
}
