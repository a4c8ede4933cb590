#include "sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

vt_sampling vt_sampling_default(void)
{
    return (vt_sampling){
        .repeat_penalty = 1.0f,
        .repeat_last_tokens = 64,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .temperature = 0.7f,
        .seed = 0,
    };
}

static vt_status check(bool fine, const char *name, double value, const char *range, vt_error *err)
{
    if (fine) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT, "%s is %g, expected %s", name, value, range);
}

vt_status vti_sampling_check(const vt_sampling *p, vt_error *err)
{
    VTI_TRY(check(p->temperature >= 0 && p->temperature <= 100, "temperature",
                  (double)p->temperature, "0 to 100", err));
    VTI_TRY(check(p->top_p > 0 && p->top_p <= 1, "top_p", (double)p->top_p,
                  "more than 0, at most 1", err));
    VTI_TRY(check(p->min_p >= 0 && p->min_p <= 1, "min_p", (double)p->min_p, "0 to 1", err));
    return check(p->repeat_penalty > 0 && p->repeat_penalty <= 100, "repeat_penalty",
                 (double)p->repeat_penalty, "more than 0, at most 100", err);
}

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

vt_status vti_sampler_open(vti_sampler *sampler, const vt_sampling *params,
                           const vti_kernels *kernels, uint32_t vocab, vt_error *err)
{
    *sampler = (vti_sampler){.params = *params, .kernels = kernels, .vocab = vocab};
    VTI_TRY(vti_sampling_check(params, err));
    sampler->adjusted = malloc(vocab * sizeof *sampler->adjusted);
    sampler->candidates = malloc(vocab * sizeof *sampler->candidates);
    if (!sampler->adjusted || !sampler->candidates) {
        vti_sampler_close(sampler);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for a sampler");
    }
    vti_sampler_reset(sampler);
    return VT_OK;
}

void vti_sampler_close(vti_sampler *sampler)
{
    free(sampler->adjusted);
    free(sampler->candidates);
    sampler->adjusted = NULL;
    sampler->candidates = NULL;
}

/* CTRL (Keskar et al. 2019): every token seen lately, once however often it occurred. */
static void penalise(vti_sampler *s, const float *logits, const vt_token *history, size_t count)
{
    float penalty = s->params.repeat_penalty;
    size_t first = count > s->params.repeat_last_tokens ? count - s->params.repeat_last_tokens : 0;
    for (size_t i = first; i < count; i++) {
        vt_token token = history[i];
        if (token < 0 || (uint32_t)token >= s->vocab) continue;
        float logit = logits[token];
        s->adjusted[token] = logit > 0 ? logit / penalty : logit * penalty;
    }
}

/* Highest logit first; of equals the lower id, so that the order does not depend on the sort. */
static int by_logit(const void *left, const void *right)
{
    const vti_candidate *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static void sift_down(vti_candidate *heap, size_t count, size_t at)
{
    for (;;) {
        size_t worst = at, child = 2 * at + 1;
        if (child < count && by_logit(&heap[child], &heap[worst]) > 0) worst = child;
        if (child + 1 < count && by_logit(&heap[child + 1], &heap[worst]) > 0) worst = child + 1;
        if (worst == at) return;
        vti_candidate swap = heap[at];
        heap[at] = heap[worst];
        heap[worst] = swap;
        at = worst;
    }
}

/* The `k` best of the logits that are at least `floor`, best first: a heap of the best so far with
 * the worst of them on top, so that a large vocabulary costs one comparison per entry. */
static size_t collect(vti_sampler *s, const float *logits, float floor, size_t k)
{
    vti_candidate *heap = s->candidates;
    size_t count = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (!(logits[i] >= floor)) continue; /* also leaves out what is not a number */
        vti_candidate candidate = {logits[i], (vt_token)i};
        if (count < k) {
            heap[count++] = candidate;
            if (count == k)
                for (size_t at = count / 2; at-- > 0;) sift_down(heap, count, at);
        } else if (by_logit(&candidate, &heap[0]) < 0) {
            heap[0] = candidate;
            sift_down(heap, count, 0);
        }
    }
    qsort(heap, count, sizeof *heap, by_logit);
    return count;
}

/* Shortest prefix whose probability reaches top_p (Holtzman et al. 2019); at least one. */
static size_t nucleus(const vti_candidate *candidates, size_t count, float top_p)
{
    if (top_p >= 1) return count;
    double total = 0, sum = 0;
    for (size_t i = 0; i < count; i++) total += exp(candidates[i].logit - candidates[0].logit);
    for (size_t i = 0; i < count; i++) {
        sum += exp(candidates[i].logit - candidates[0].logit);
        if (sum >= (double)top_p * total) return i + 1;
    }
    return count;
}

static vt_token draw(vti_sampler *s, size_t count)
{
    const vti_candidate *c = s->candidates;
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += exp((double)(c[i].logit - c[0].logit) / s->params.temperature);
    double point = (double)(next_random(s->random) >> 11) * 0x1p-53 * total;
    for (size_t i = 0; i + 1 < count; i++) {
        point -= exp((double)(c[i].logit - c[0].logit) / s->params.temperature);
        if (point < 0) return c[i].token;
    }
    return c[count - 1].token;
}

vt_status vti_sampler_draw(vti_sampler *s, const float *logits, const vt_token *history,
                           size_t history_count, vt_token *out, vt_error *err)
{
    const vt_sampling *p = &s->params;
    if (p->repeat_penalty != 1.0f && p->repeat_last_tokens) {
        memcpy(s->adjusted, logits, s->vocab * sizeof *logits);
        penalise(s, logits, history, history_count);
        logits = s->adjusted;
    }
    size_t best = s->kernels->argmax(logits, s->vocab);
    if (!isfinite(logits[best]))
        return vti_fail(err, VT_ERR_FORMAT,
                        "the model's logits are not finite numbers; its weights are damaged");
    if (p->temperature == 0 || p->top_k == 1) {
        *out = (vt_token)best;
        return VT_OK;
    }
    /* min_p keeps what is at least min_p times as likely as the best: a floor for the logits. It
     * does not depend on the filters before it, which only cut the tail, so it can go first. */
    float floor = p->min_p > 0 ? logits[best] + logf(p->min_p) : -INFINITY;
    size_t k = p->top_k && p->top_k < s->vocab ? p->top_k : s->vocab;
    if (p->top_p >= 1) {
        *out = draw(s, collect(s, logits, floor, k));
        return VT_OK;
    }
    size_t count = nucleus(s->candidates, collect(s, logits, -INFINITY, k), p->top_p);
    while (count > 1 && s->candidates[count - 1].logit < floor) count--;
    *out = draw(s, count);
    return VT_OK;
}
