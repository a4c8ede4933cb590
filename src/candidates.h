/* candidates.h: tokens that may still be drawn, and the filters that cut them; docs/sampling.md.
 *
 * They stay in the order of the vocabulary: what a random number means then hardly changes when
 * logits change by a rounding error. No filter sorts more than it keeps. */
#ifndef VTI_CANDIDATES_H
#define VTI_CANDIDATES_H

#include "../kernels/kernels.h"
#include "error.h"

/* For selections: smaller keys come first, of equals the lower index. */
typedef struct vti_ranked {
    float key, weight;
    uint32_t index;
} vti_ranked;

typedef struct vti_candidates {
    const vti_kernels *kernels;
    uint32_t capacity, count;
    float *logit;       /* finite */
    vt_token *token;
    float *weight;      /* in proportion to exp(logit) */
    vti_ranked *ranked; /* scratch */
    bool weighed;       /* `weight` is filled */
} vti_candidates;

uint64_t vti_candidates_bytes(uint32_t vocab);
vt_status vti_candidates_open(vti_candidates *c, const vti_kernels *kernels, uint32_t vocab,
                              vt_error *err);
void vti_candidates_close(vti_candidates *c);

/* The `top_k` (0: all) most likely of those of the `vocab` logits that are numbers and not
 * -INFINITY. At least one is, and none is INFINITY. */
void vti_candidates_gather(vti_candidates *c, const float *logits, uint32_t vocab, uint32_t top_k);

/* Each keeps at least one. */
void vti_candidates_typical(vti_candidates *c, float typical_p);
void vti_candidates_top_p(vti_candidates *c, float top_p);
void vti_candidates_min_p(vti_candidates *c, float min_p);

/* The token at `point`, 0 <= point < 1, of the distribution at `temperature` > 0. */
vt_token vti_candidates_pick(vti_candidates *c, float temperature, double point);

/* The `count` likeliest of the logits, best first, with the logit as their log probability; returns
 * how many there are. Leaves no candidates behind. */
size_t vti_candidates_best(vti_candidates *c, const float *logits, uint32_t vocab, size_t count,
                           vt_logprob *out);

/* log Σ exp(logit) over the logits that are numbers. Leaves no candidates behind. */
float vti_candidates_log_sum(vti_candidates *c, const float *logits, uint32_t vocab);

#endif
