/* sampling_oracle.h: the distribution that docs/sampling.md describes, in doubles, by sorting. */
#ifndef VTI_TEST_SAMPLING_ORACLE_H
#define VTI_TEST_SAMPLING_ORACLE_H

#include "voltron.h"

/* probability: vocab of them, 0 for what the filters cut; `history` as for the penalties. */
void sampling_oracle(const vt_sampling *params, const float *logits, uint32_t vocab,
                     const vt_token *history, size_t history_count, double *probability);

#endif
