/* sampler.h: draws the next token from logits. */
#ifndef VTI_SAMPLER_H
#define VTI_SAMPLER_H

#include "../kernels/kernels.h"
#include "error.h"

/* One entry of the vocabulary on its way through the filters. */
typedef struct vti_candidate {
    float logit;
    vt_token token;
} vti_candidate;

typedef struct vti_sampler {
    vt_sampling params;
    const vti_kernels *kernels;
    uint32_t vocab;
    uint64_t random[4];        /* xoshiro256** state */
    float *adjusted;           /* vocab: logits after the penalty */
    vti_candidate *candidates; /* vocab */
} vti_sampler;

/* ERR_ARGUMENT names the parameter that is out of range. */
vt_status vti_sampling_check(const vt_sampling *params, vt_error *err);

vt_status vti_sampler_open(vti_sampler *sampler, const vt_sampling *params,
                           const vti_kernels *kernels, uint32_t vocab, vt_error *err);
void vti_sampler_close(vti_sampler *sampler);

/* Back to the state after the open: the same draws follow. */
void vti_sampler_reset(vti_sampler *sampler);

/* `history`: the tokens so far, for the repetition penalty. ERR_FORMAT if no logit is a number. */
vt_status vti_sampler_draw(vti_sampler *sampler, const float *logits, const vt_token *history,
                           size_t history_count, vt_token *out, vt_error *err);

#endif
