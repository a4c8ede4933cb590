#include "candidates.h"

#include <math.h>
#include <stdlib.h>

/* Up to so many are kept in a heap while the logits pass by; more are selected afterwards. */
enum { HEAP_MAX = 2048 };

uint64_t vti_candidates_bytes(uint32_t vocab)
{
    const vti_candidates *c = NULL;
    return (uint64_t)vocab *
           (sizeof *c->logit + sizeof *c->token + sizeof *c->weight + sizeof *c->ranked);
}

vt_status vti_candidates_open(vti_candidates *c, const vti_kernels *kernels, uint32_t vocab,
                              vt_error *err)
{
    *c = (vti_candidates){.kernels = kernels, .capacity = vocab};
    c->logit = malloc(vocab * sizeof *c->logit);
    c->token = malloc(vocab * sizeof *c->token);
    c->weight = malloc(vocab * sizeof *c->weight);
    c->ranked = malloc(vocab * sizeof *c->ranked);
    if (c->logit && c->token && c->weight && c->ranked) return VT_OK;
    vti_candidates_close(c);
    return vti_fail(err, VT_ERR_MEMORY, "no memory for a sampler");
}

void vti_candidates_close(vti_candidates *c)
{
    free(c->logit);
    free(c->token);
    free(c->weight);
    free(c->ranked);
    *c = (vti_candidates){0};
}

/* --- selecting -------------------------------------------------------------------------------- */

static bool comes_before(const vti_ranked *a, const vti_ranked *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

static void swap(vti_ranked *a, vti_ranked *b)
{
    vti_ranked kept = *a;
    *a = *b;
    *b = kept;
}

/* Puts the middle one of three into `middle`. */
static void order_three(vti_ranked *first, vti_ranked *middle, vti_ranked *last)
{
    if (comes_before(middle, first)) swap(first, middle);
    if (comes_before(last, middle)) swap(middle, last);
    if (comes_before(middle, first)) swap(first, middle);
}

/* Moves what comes before the element in the middle to the front; returns where that one now is. */
static size_t partition(vti_ranked *r, size_t begin, size_t end, double *front_weight)
{
    order_three(&r[begin], &r[begin + (end - begin) / 2], &r[end - 1]);
    swap(&r[begin + (end - begin) / 2], &r[end - 1]);
    vti_ranked pivot = r[end - 1];
    size_t at = begin;
    *front_weight = 0;
    for (size_t i = begin; i + 1 < end; i++) {
        if (!comes_before(&r[i], &pivot)) continue;
        *front_weight += (double)r[i].weight;
        swap(&r[i], &r[at++]);
    }
    swap(&r[at], &r[end - 1]);
    return at;
}

/* The last of the shortest run of firsts whose weights reach `target` > 0: quickselect (Hoare) by
 * weight, linear on average. */
static vti_ranked select_last(vti_ranked *r, size_t count, double target)
{
    size_t begin = 0, end = count;
    double before = 0, front;
    while (end - begin > 1) {
        size_t pivot = partition(r, begin, end, &front);
        if (pivot > begin && before + front >= target) {
            end = pivot;
        } else if (before + front + (double)r[pivot].weight >= target || pivot + 1 == end) {
            return r[pivot];
        } else {
            before += front + (double)r[pivot].weight;
            begin = pivot + 1;
        }
    }
    return r[begin];
}

static void keep(vti_candidates *c, uint32_t to, uint32_t from)
{
    c->logit[to] = c->logit[from];
    c->token[to] = c->token[from];
    c->weight[to] = c->weight[from];
}

/* Keeps the firsts by `key_of` whose weights (or, without weights, number) reach `target`. */
static void keep_first(vti_candidates *c, float (*key_of)(const vti_candidates *, uint32_t, float),
                       float parameter, bool by_weight, double target)
{
    for (uint32_t i = 0; i < c->count; i++)
        c->ranked[i] = (vti_ranked){key_of(c, i, parameter), by_weight ? c->weight[i] : 1.0f, i};
    vti_ranked last = select_last(c->ranked, c->count, target);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        vti_ranked candidate = {key_of(c, i, parameter), 0, i};
        if (!comes_before(&last, &candidate)) keep(c, kept++, i);
    }
    c->count = kept;
}

static float likelihood_key(const vti_candidates *c, uint32_t i, float parameter)
{
    (void)parameter;
    return -c->logit[i];
}

/* --- the best k of all logits ----------------------------------------------------------------- */

static void sift_down(vti_ranked *heap, size_t count, size_t at)
{
    for (;;) {
        size_t worst = at, child = 2 * at + 1;
        if (child < count && comes_before(&heap[worst], &heap[child])) worst = child;
        if (child + 1 < count && comes_before(&heap[worst], &heap[child + 1])) worst = child + 1;
        if (worst == at) return;
        swap(&heap[at], &heap[worst]);
        at = worst;
    }
}

/* The best k in c->ranked, in no order: a heap with the worst of them on top, so that a large
 * vocabulary costs one comparison per entry. */
static size_t collect_best(vti_candidates *c, const float *logits, uint32_t vocab, size_t k)
{
    vti_ranked *heap = c->ranked;
    size_t count = 0;
    float floor = -INFINITY;
    for (uint32_t i = 0; i < vocab; i++) {
        if (!(logits[i] > floor)) continue; /* also leaves out what is not a number */
        if (count < k) {
            heap[count++] = (vti_ranked){-logits[i], 0, i};
            if (count < k) continue;
            for (size_t at = count / 2; at-- > 0;) sift_down(heap, count, at);
        } else {
            heap[0] = (vti_ranked){-logits[i], 0, i};
            sift_down(heap, count, 0);
        }
        floor = -heap[0].key;
    }
    return count;
}

static int by_index(const void *left, const void *right)
{
    const vti_ranked *a = left, *b = right;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int by_key(const void *left, const void *right)
{
    const vti_ranked *a = left, *b = right;
    return comes_before(a, b) ? -1 : comes_before(b, a);
}

static void gather_all(vti_candidates *c, const float *logits, uint32_t vocab)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        c->logit[count] = logits[i];
        c->token[count] = (vt_token)i;
        count += logits[i] > -INFINITY;
    }
    c->count = count;
    c->weighed = false;
}

void vti_candidates_gather(vti_candidates *c, const float *logits, uint32_t vocab, uint32_t top_k)
{
    if (top_k == 0 || top_k > HEAP_MAX) {
        gather_all(c, logits, vocab);
        if (top_k && top_k < c->count) keep_first(c, likelihood_key, 0, false, top_k);
        return;
    }
    c->count = (uint32_t)collect_best(c, logits, vocab, top_k);
    c->weighed = false;
    qsort(c->ranked, c->count, sizeof *c->ranked, by_index);
    for (uint32_t i = 0; i < c->count; i++) {
        c->token[i] = (vt_token)c->ranked[i].index;
        c->logit[i] = logits[c->ranked[i].index];
    }
}

size_t vti_candidates_best(vti_candidates *c, const float *logits, uint32_t vocab, size_t count,
                           vt_logprob *out)
{
    if (count > vocab) count = vocab;
    c->count = 0;
    count = collect_best(c, logits, vocab, count);
    qsort(c->ranked, count, sizeof *c->ranked, by_key);
    for (size_t i = 0; i < count; i++)
        out[i] = (vt_logprob){(vt_token)c->ranked[i].index, -c->ranked[i].key};
    return count;
}

/* --- weights ---------------------------------------------------------------------------------- */

static float largest(const vti_candidates *c)
{
    return c->logit[c->kernels->argmax(c->logit, c->count)];
}

/* weight = exp((logit - most) / temperature), up to a factor. Below e^-200 nothing is ever drawn;
 * the bound keeps the argument finite at any temperature. */
static void weigh(vti_candidates *c, float temperature)
{
    float most = largest(c);
    for (uint32_t i = 0; i < c->count; i++) {
        float x = (c->logit[i] - most) / temperature;
        c->weight[i] = x > -200.0f ? x : -200.0f;
    }
    c->kernels->softmax(c->weight, c->count);
}

/* Not quite 1: softmax adds up floats. */
static double sum_of_weights(const vti_candidates *c)
{
    double total = 0;
    for (uint32_t i = 0; i < c->count; i++) total += (double)c->weight[i];
    return total;
}

static double total_weight(vti_candidates *c)
{
    if (!c->weighed) weigh(c, 1);
    c->weighed = true;
    return sum_of_weights(c);
}

float vti_candidates_log_sum(vti_candidates *c, const float *logits, uint32_t vocab)
{
    gather_all(c, logits, vocab);
    size_t best = c->kernels->argmax(c->logit, c->count);
    float most = c->logit[best];
    weigh(c, 1);
    /* The share of the largest is 1 / Σ exp(logit - most). */
    double share = (double)c->weight[best] / sum_of_weights(c);
    c->count = 0;
    return (float)((double)most - log(share));
}

/* --- filters ---------------------------------------------------------------------------------- */

/* How far the surprise -log p of a candidate is from the mean surprise (Meister et al. 2023).
 * `parameter`: the logit whose surprise is the mean. */
static float typicality_key(const vti_candidates *c, uint32_t i, float parameter)
{
    return fabsf(c->logit[i] - parameter);
}

void vti_candidates_typical(vti_candidates *c, float typical_p)
{
    if (typical_p >= 1) return;
    double total = total_weight(c), mean = 0;
    /* Entropy is log Z - Σ p logit; a candidate's surprise log Z - logit: log Z drops out. */
    for (uint32_t i = 0; i < c->count; i++)
        mean += (double)c->weight[i] * (double)c->logit[i];
    keep_first(c, typicality_key, (float)(mean / total), true, (double)typical_p * total);
}

/* What is lighter than this cannot, all together, weigh as much as the tail that is cut anyway. It
 * leaves little of a large vocabulary to select from. */
static void drop_dust(vti_candidates *c, double tail)
{
    float least = (float)(tail / c->count * 0.999);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->weight[i] >= least) keep(c, kept++, i);
    c->count = kept;
}

void vti_candidates_top_p(vti_candidates *c, float top_p)
{
    if (top_p >= 1) return;
    double total = total_weight(c), target = (double)top_p * total;
    drop_dust(c, total - target);
    keep_first(c, likelihood_key, 0, true, target);
}

void vti_candidates_min_p(vti_candidates *c, float min_p)
{
    if (min_p <= 0) return;
    float floor = largest(c) + logf(min_p);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->logit[i] >= floor) keep(c, kept++, i);
    c->count = kept;
}

vt_token vti_candidates_pick(vti_candidates *c, float temperature, double point)
{
    weigh(c, temperature);
    c->weighed = false;
    double left = point * sum_of_weights(c);
    uint32_t last = 0; /* of those with any weight, should rounding leave something */
    for (uint32_t i = 0; i < c->count; i++) {
        left -= (double)c->weight[i];
        if (left < 0) return c->token[i];
        if (c->weight[i] > 0) last = i;
    }
    return c->token[last];
}
