#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampling_oracle.h"

typedef struct entry {
    double key, logit, p;
    uint32_t token;
} entry;

static int by_key(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

static void adjust(const vt_sampling *s, double *logits, const vt_token *history, size_t count)
{
    for (size_t i = 0; i < s->logit_bias_count; i++)
        logits[s->logit_bias[i].token] += (double)s->logit_bias[i].bias;
    size_t first = count > s->repeat_last_tokens ? count - s->repeat_last_tokens : 0;
    for (size_t i = first; i < count; i++) {
        int seen_before = 0, times = 0;
        for (size_t j = first; j < count; j++) times += history[j] == history[i];
        for (size_t j = first; j < i; j++) seen_before |= history[j] == history[i];
        if (seen_before) continue;
        double *logit = &logits[history[i]];
        *logit = *logit > 0 ? *logit / (double)s->repeat_penalty
                            : *logit * (double)s->repeat_penalty;
        *logit -= times * (double)s->frequency_penalty + (double)s->presence_penalty;
    }
}

static void normalise(entry *e, size_t count, double temperature)
{
    double most = -INFINITY, total = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, e[i].logit);
    for (size_t i = 0; i < count; i++) total += e[i].p = exp((e[i].logit - most) / temperature);
    for (size_t i = 0; i < count; i++) e[i].p /= total;
}

/* Entries in the order of their keys up to where their probabilities reach `share`. */
static size_t shortest(entry *e, size_t count, double share)
{
    double sum = 0;
    qsort(e, count, sizeof *e, by_key);
    for (size_t i = 0; i < count; i++)
        if ((sum += e[i].p) >= share) return i + 1;
    return count;
}

static size_t typical(entry *e, size_t count, double share)
{
    double entropy = 0;
    normalise(e, count, 1);
    for (size_t i = 0; i < count; i++)
        if (e[i].p > 0) entropy -= e[i].p * log(e[i].p);
    for (size_t i = 0; i < count; i++) e[i].key = fabs(-log(e[i].p) - entropy);
    return shortest(e, count, share);
}

static size_t most_likely(entry *e, size_t count, double share)
{
    normalise(e, count, 1);
    for (size_t i = 0; i < count; i++) e[i].key = -e[i].p;
    return shortest(e, count, share);
}

static size_t filter(const vt_sampling *s, entry *e, size_t count)
{
    for (size_t i = 0; i < count; i++) e[i].key = -e[i].logit;
    qsort(e, count, sizeof *e, by_key);
    if (s->top_k && s->top_k < count) count = s->top_k;
    if (s->typical_p < 1) count = typical(e, count, (double)s->typical_p);
    if (s->top_p < 1) count = most_likely(e, count, (double)s->top_p);
    double best = 0;
    size_t kept = 0;
    normalise(e, count, 1);
    for (size_t i = 0; i < count; i++) best = fmax(best, e[i].p);
    for (size_t i = 0; i < count; i++)
        if (e[i].p >= (double)s->min_p * best) e[kept++] = e[i];
    return kept;
}

void sampling_oracle(const vt_sampling *s, const float *logits, uint32_t vocab,
                     const vt_token *history, size_t history_count, double *probability)
{
    double *adjusted = malloc(vocab * sizeof *adjusted);
    entry *e = malloc(vocab * sizeof *e);
    size_t count = 0;
    if (!adjusted || !e) fail_msg("no memory");
    for (uint32_t i = 0; i < vocab; i++) adjusted[i] = (double)logits[i];
    adjust(s, adjusted, history, history_count);
    for (uint32_t i = 0; i < vocab; i++)
        if (adjusted[i] > -INFINITY) e[count++] = (entry){.logit = adjusted[i], .token = i};
    count = filter(s, e, count);
    normalise(e, count, (double)s->temperature);
    memset(probability, 0, vocab * sizeof *probability);
    for (size_t i = 0; i < count; i++) probability[e[i].token] = e[i].p;
    free(adjusted);
    free(e);
}
