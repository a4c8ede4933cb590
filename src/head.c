#include "head.h"

#include <stdlib.h>
#include <string.h>

#include "align.h"

/* Scratch: what the products need, then the normed rows. */
typedef struct sizes {
    vti_batch_limits limits;
    size_t batch_bytes, norm_bytes;
} sizes;

static sizes sizes_of(const vt_model *model)
{
    uint32_t shards = vti_unit_shards(&model->geometry, vti_head_unit(&model->geometry));
    uint32_t width = vti_padded(model->hparams.d);
    sizes s = {.limits = {.products = shards, .links = shards}};
    const vti_batch_inputs norm = {1, 0, VTI_HEAD_ROWS, width};
    vti_batch counted;
    vti_batch_limit_inputs(&s.limits, &model->kernels, &norm);
    s.batch_bytes = vti_batch_lay_out(&counted, &model->kernels, &s.limits, NULL);
    s.norm_bytes = (size_t)vti_align_up((uint64_t)VTI_HEAD_ROWS * width * sizeof(float),
                                        VTI_ALIGNMENT);
    return s;
}

uint64_t vti_head_bytes(const vt_model *model)
{
    sizes s = sizes_of(model);
    return s.batch_bytes + s.norm_bytes;
}

vt_status vti_head_open(vti_head *head, vt_model *model, vt_error *err)
{
    *head = (vti_head){.model = model};
    VTI_TRY(vti_model_head(model, &head->weights, err));
    VTI_TRY(vti_shard_reader_open(model->table, &head->reader, err));
    sizes s = sizes_of(model);
    size_t bytes = s.batch_bytes + s.norm_bytes;
    VTI_TRY(vti_budget_take(&model->device.budget, VTI_BUDGET_SCRATCH, bytes,
                            "the output projection", err));
    head->scratch_bytes = bytes;
    head->memory = aligned_alloc(64, bytes);
    if (!head->memory)
        return vti_fail(err, VT_ERR_MEMORY, "no memory for the output projection's scratch");
    vti_batch_lay_out(&head->batch, &model->kernels, &s.limits, head->memory);
    head->norm = (float *)(void *)((unsigned char *)head->memory + s.batch_bytes);
    memset(head->norm, 0, s.norm_bytes); /* what is padded stays so */
    return VT_OK;
}

void vti_head_close(vti_head *head)
{
    vti_shard_reader_close(head->reader);
    free(head->memory);
    if (head->model)
        vti_budget_give(&head->model->device.budget, VTI_BUDGET_SCRATCH, head->scratch_bytes);
    *head = (vti_head){0};
}

void vti_head_observe(vti_head *head, const vti_observer *observer) { head->observer = *observer; }

void vti_head_prune_columns(vti_head *head, uint32_t first, uint32_t count)
{
    head->first_pruned = first;
    head->pruned = count;
}

void vti_head_logits(vti_head *head, const float *h, uint32_t rows, float *logits)
{
    const vt_model *m = head->model;
    const vti_hparams *p = &m->hparams;
    const vti_unit unit = {head->weights->units[0].shards,
                           vti_shard_reader_enter(head->reader, head->weights->first)};
    size_t width = vti_padded(p->d);
    for (size_t row = 0; row < rows; row++) {
        float *normed = head->norm + row * width;
        m->kernels.rms_norm(normed, h + row * p->d, vti_unit_tensor(&unit, VTI_PIECE_NORM)->data,
                            p->d, p->rms_eps);
        memset(normed + head->first_pruned, 0, head->pruned * sizeof *normed);
    }
    if (head->observer.input)
        head->observer.input(head->observer.user, p->layers, VTI_OUTPUT, 0, head->norm, width, rows,
                             0, (uint32_t)width);
    vti_batch_begin(&head->batch);
    vti_linear_input *in = vti_batch_input(&head->batch, head->norm, width, rows, (uint32_t)width);
    for (uint32_t i = 0; i < unit.shards; i++) {
        vti_batch_product(&head->batch, logits + (size_t)i * m->geometry.vocab_rows, p->vocab);
        vti_batch_link(&head->batch, &unit.shard[i]->tensor[VTI_PIECE_ROWS], in);
    }
    vti_batch_run(&head->batch, m->pool);
    vti_shard_reader_leave(head->reader);
}
