/* sampler.h: draws the next token from logits. */
#ifndef VTI_SAMPLER_H
#define VTI_SAMPLER_H

#include "candidates.h"

typedef struct vti_sampler {
    vt_sampling params;      /* logit_bias: a copy */
    const vti_kernels *kernels;
    uint32_t vocab;
    uint64_t random[4];      /* xoshiro256** state */
    float *adjusted;         /* vocab: logits after bias and penalties */
    uint32_t *occurrences;   /* vocab: of the tokens looked back at; zero between the draws */
    vti_candidates candidates;
    vt_drawn drawn;          /* the newest; drawn.token VT_TOKEN_NONE: none yet */
    vt_logprob *top;         /* params.logprobs of them */
} vti_sampler;

/* Bytes that a sampler takes, but for the list of biases. */
uint64_t vti_sampler_bytes(uint32_t vocab);

/* ERR_ARGUMENT names the field that is out of range. */
vt_status vti_sampling_check(const vt_sampling *params, uint32_t vocab, vt_error *err);

vt_status vti_sampler_open(vti_sampler *sampler, const vt_sampling *params,
                           const vti_kernels *kernels, uint32_t vocab, vt_error *err);
void vti_sampler_close(vti_sampler *sampler);

/* Other parameters from now on; on failure the old ones stay. */
vt_status vti_sampler_set(vti_sampler *sampler, const vt_sampling *params, vt_error *err);

/* Back to the state after the open: the same draws follow. */
void vti_sampler_reset(vti_sampler *sampler);

/* `history`: the tokens so far, for the penalties. ERR_FORMAT if no logit is a number. */
vt_status vti_sampler_draw(vti_sampler *sampler, const float *logits, const vt_token *history,
                           size_t history_count, vt_token *out, vt_error *err);

#endif
