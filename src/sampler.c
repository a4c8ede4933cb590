#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- random numbers --------------------------------------------------------------------------- */

/* splitmix64 (Vigna): spreads a seed over the generator's state, as its authors advise. */
static uint64_t spread(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

/* xoshiro256** (Blackman, Vigna). */
static uint64_t next_random(uint64_t s[4])
{
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

void vti_sampler_reset(vti_sampler *sampler)
{
    uint64_t seed = sampler->params.seed;
    for (int i = 0; i < 4; i++) sampler->random[i] = spread(&seed);
}

/* --- opening ---------------------------------------------------------------------------------- */

static void forget_drawn(vti_sampler *sampler)
{
    sampler->drawn = (vt_drawn){.drawn = {VT_TOKEN_NONE, 0}};
}

/* Copies what *params points to and takes it over. */
static vt_status take_params(vti_sampler *s, const vt_sampling *params, vt_error *err)
{
    VTI_TRY(vti_sampling_check(params, s->vocab, err));
    size_t bias_bytes = params->logit_bias_count * sizeof *params->logit_bias;
    vt_logit_bias *bias = malloc(bias_bytes ? bias_bytes : 1);
    vt_logprob *top = malloc((params->logprobs + 1) * sizeof *top);
    if (!bias || !top) {
        free(bias);
        free(top);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a sampler");
    }
    if (bias_bytes) memcpy(bias, params->logit_bias, bias_bytes);
    free((void *)(uintptr_t)s->params.logit_bias);
    free(s->top);
    s->params = *params;
    s->params.logit_bias = bias;
    s->top = top;
    forget_drawn(s);
    return VT_OK;
}

vt_status vti_sampler_set(vti_sampler *s, const vt_sampling *params, vt_error *err)
{
    uint64_t seed = s->params.seed;
    VTI_TRY(take_params(s, params, err));
    if (s->params.seed != seed) vti_sampler_reset(s);
    return VT_OK;
}

static vt_status open_parts(vti_sampler *s, const vt_sampling *params, vt_error *err)
{
    VTI_TRY(take_params(s, params, err));
    VTI_TRY(vti_candidates_open(&s->candidates, s->kernels, s->vocab, err));
    s->adjusted = malloc(s->vocab * sizeof *s->adjusted);
    s->occurrences = calloc(s->vocab, sizeof *s->occurrences);
    if (s->adjusted && s->occurrences) return VT_OK;
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a sampler");
}

uint64_t vti_sampler_bytes(uint32_t vocab)
{
    const vti_sampler *s = NULL;
    return (uint64_t)vocab * (sizeof *s->adjusted + sizeof *s->occurrences) +
           vti_candidates_bytes(vocab);
}

vt_status vti_sampler_open(vti_sampler *sampler, const vt_sampling *params,
                           const vti_kernels *kernels, uint32_t vocab, vt_error *err)
{
    *sampler = (vti_sampler){.kernels = kernels, .vocab = vocab};
    vt_status status = open_parts(sampler, params, err);
    if (status == VT_OK)
        vti_sampler_reset(sampler);
    else
        vti_sampler_close(sampler);
    return status;
}

void vti_sampler_close(vti_sampler *s)
{
    vti_candidates_close(&s->candidates);
    free(s->adjusted);
    free(s->occurrences);
    free((void *)(uintptr_t)s->params.logit_bias);
    free(s->top);
    *s = (vti_sampler){0};
}

/* --- bias and penalties ----------------------------------------------------------------------- */

static bool penalises(const vt_sampling *p)
{
    bool any = p->repeat_penalty != 1.0f || p->frequency_penalty != 0 || p->presence_penalty != 0;
    return any && p->repeat_last_tokens;
}

/* repeat: CTRL (Keskar et al. 2019). */
static float penalised(const vt_sampling *p, float logit, uint32_t occurrences)
{
    logit = logit > 0 ? logit / p->repeat_penalty : logit * p->repeat_penalty;
    return logit - (float)occurrences * p->frequency_penalty - p->presence_penalty;
}

static void penalise(vti_sampler *s, const vt_token *history, size_t count)
{
    size_t first = count > s->params.repeat_last_tokens ? count - s->params.repeat_last_tokens : 0;
    for (size_t i = first; i < count; i++)
        if (history[i] >= 0 && (uint32_t)history[i] < s->vocab) s->occurrences[history[i]]++;
    for (size_t i = first; i < count; i++) {
        vt_token token = history[i];
        if (token < 0 || (uint32_t)token >= s->vocab || !s->occurrences[token]) continue;
        s->adjusted[token] = penalised(&s->params, s->adjusted[token], s->occurrences[token]);
        s->occurrences[token] = 0;
    }
}

/* The logits to draw from: s->adjusted, or the model's own if nothing changes them. */
static const float *adjust(vti_sampler *s, const float *logits, const vt_token *history,
                           size_t history_count)
{
    const vt_sampling *p = &s->params;
    if (!p->logit_bias_count && !penalises(p)) return logits;
    memcpy(s->adjusted, logits, s->vocab * sizeof *logits);
    for (size_t i = 0; i < p->logit_bias_count; i++)
        s->adjusted[p->logit_bias[i].token] += p->logit_bias[i].bias;
    if (penalises(p)) penalise(s, history, history_count);
    return s->adjusted;
}

/* --- drawing ---------------------------------------------------------------------------------- */

static vt_token draw(vti_sampler *s, const float *logits)
{
    const vt_sampling *p = &s->params;
    vti_candidates_gather(&s->candidates, logits, s->vocab, p->top_k);
    vti_candidates_typical(&s->candidates, p->typical_p);
    vti_candidates_top_p(&s->candidates, p->top_p);
    vti_candidates_min_p(&s->candidates, p->min_p);
    double point = (double)(next_random(s->random) >> 11) * 0x1p-53;
    return vti_candidates_pick(&s->candidates, p->temperature, point);
}

/* What the model itself thought of the token. */
static void record(vti_sampler *s, const float *logits, vt_token token)
{
    s->drawn = (vt_drawn){.drawn = {token, 0}, .top = s->top};
    if (!s->params.logprobs) return;
    float log_sum = vti_candidates_log_sum(&s->candidates, logits, s->vocab);
    s->drawn.drawn.logprob = logits[token] - log_sum;
    s->drawn.top_count = vti_candidates_best(&s->candidates, logits, s->vocab, s->params.logprobs,
                                             s->top);
    for (size_t i = 0; i < s->drawn.top_count; i++) s->top[i].logprob -= log_sum;
}

vt_status vti_sampler_draw(vti_sampler *s, const float *model_logits, const vt_token *history,
                           size_t history_count, vt_token *out, vt_error *err)
{
    if (!isfinite(model_logits[s->kernels->argmax(model_logits, s->vocab)]))
        return vti_fail(err, VT_ERR_FORMAT,
                        "the model's logits are not finite numbers; its weights are damaged");
    const float *logits = adjust(s, model_logits, history, history_count);
    size_t best = s->kernels->argmax(logits, s->vocab);
    if (!isfinite(logits[best]))
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "bias and penalties leave no token to draw; logit_bias excludes too many");
    bool greedy = s->params.temperature == 0 || s->params.top_k == 1;
    *out = greedy ? (vt_token)best : draw(s, logits);
    record(s, model_logits, *out);
    return VT_OK;
}
