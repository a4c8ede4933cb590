#include "profile_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nnls.h"

enum { ROUNDS = 20 }; /* of reweighting */

/* Memory does not change more than by this factor: what was slower was read while delayed. */
#define MOST_FASTER 1.7

/* Weights from memory are not read faster than memory by more than this factor: its median is
 * of moments, too. */
#define MOST_ABOVE_MEMORY 1.5

/* Terms that are told apart. Decoding does as many multiply-accumulates as it reads weights, and
 * the width of one token is next to nothing; prompts read each weight once for many tokens. */
static const bool used[VTI_PHASES][VTI_PROFILE_TERMS] = {
    [VTI_PREFILL] = {[VTI_TERM_FIXED] = true, [VTI_TERM_MAC] = true, [VTI_TERM_WEIGHT_BYTE] = true,
                     [VTI_TERM_KV_BYTE] = true, [VTI_TERM_KV_MAC] = true, [VTI_TERM_SHARD] = true,
                     [VTI_TERM_VALUE] = true},
    [VTI_DECODE] = {[VTI_TERM_FIXED] = true, [VTI_TERM_WEIGHT_BYTE] = true,
                    [VTI_TERM_CACHED_BYTE] = true, [VTI_TERM_KV_BYTE] = true,
                    [VTI_TERM_CACHED_KV_BYTE] = true, [VTI_TERM_KV_MAC] = true,
                    [VTI_TERM_SHARD] = true},
};

/* A sample's features, as if memory had been as fast as the profile says; in prefill, it does not
 * matter where weights come from. */
static void features_of(const vti_profile_sample *s, double bytes_per_s,
                        double feature[VTI_PROFILE_TERMS])
{
    memcpy(feature, s->feature, sizeof s->feature);
    if (s->phase == VTI_PREFILL) {
        feature[VTI_TERM_WEIGHT_BYTE] += feature[VTI_TERM_CACHED_BYTE];
        feature[VTI_TERM_KV_BYTE] += feature[VTI_TERM_CACHED_KV_BYTE];
        feature[VTI_TERM_CACHED_BYTE] = feature[VTI_TERM_CACHED_KV_BYTE] = 0;
    } else if (s->bytes_per_s > 0) {
        double faster = fmax(bytes_per_s / s->bytes_per_s, 1 / MOST_FASTER);
        feature[VTI_TERM_WEIGHT_BYTE] *= fmin(faster, MOST_FASTER);
    }
}

double vti_profile_predict(const vti_profile *profile, const vti_profile_sample *s)
{
    float terms[VTI_PROFILE_TERMS + 1];
    double feature[VTI_PROFILE_TERMS], seconds = 0;
    vti_profile_terms(&profile->cost[s->kind][s->precision][s->phase], terms);
    features_of(s, (double)profile->bytes_per_s, feature);
    for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++) seconds += (double)terms[t] * feature[t];
    return seconds;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What memory usually gave. */
static bool median_rate(const vti_profile_samples *samples, double *out)
{
    double *rates = malloc((samples->count + 1) * sizeof *rates);
    size_t count = 0;
    if (!rates) return false;
    for (size_t i = 0; i < samples->count; i++)
        if (samples->sample[i].bytes_per_s > 0) rates[count++] = samples->sample[i].bytes_per_s;
    qsort(rates, count, sizeof *rates, by_size);
    *out = count ? rates[count / 2] : 0;
    free(rates);
    return true;
}

/* --- fitting ---------------------------------------------------------------------------------- */

/* The samples of one kind, precision and phase: A x = 1 where the prediction is the measurement. */
typedef struct equations {
    size_t rows, columns;
    unsigned term[VTI_PROFILE_TERMS];
    double least[VTI_PROFILE_TERMS]; /* of each column's coefficient */
    double *exact;    /* rows × columns, each sample's features over its seconds */
    double *weighted; /* the same times the rows' weights */
    double *right;    /* the weights times what the least coefficients leave to explain */
    double *scratch;
} equations;

static bool is_of(const vti_profile_sample *s, unsigned kind, unsigned precision, unsigned phase)
{
    return s->kind == kind && s->precision == precision && s->phase == phase && s->seconds > 0;
}

static void weigh(equations *y, const double *x)
{
    for (size_t i = 0; i < y->rows; i++) {
        double error = -1, left = 1, weight = 1;
        for (size_t c = 0; c < y->columns; c++) {
            left -= y->least[c] * y->exact[c * y->rows + i];
            if (x) error += x[c] * y->exact[c * y->rows + i];
        }
        /* so that squares become absolute values: a sample that something delayed counts little */
        if (x) weight = 1 / sqrt(fmax(fabs(error), 1e-3));
        y->right[i] = weight * left;
        for (size_t c = 0; c < y->columns; c++)
            y->weighted[c * y->rows + i] = weight * y->exact[c * y->rows + i];
    }
}

/* What is solved for is by how much each coefficient is above its least. */
static bool solve(equations *y, double *x)
{
    weigh(y, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (!vti_nnls(y->rows, y->columns, y->weighted, y->right, x, y->scratch)) return false;
        for (size_t c = 0; c < y->columns; c++) x[c] += y->least[c];
        weigh(y, x);
    }
    return true;
}

static bool open_equations(equations *y, const vti_profile_samples *samples)
{
    size_t most = samples->count * VTI_PROFILE_TERMS;
    *y = (equations){.rows = 0};
    y->exact = malloc((2 * most + samples->count +
                       vti_nnls_scratch(samples->count, VTI_PROFILE_TERMS)) * sizeof(double));
    if (!y->exact) return false;
    y->weighted = y->exact + most;
    y->right = y->weighted + most;
    y->scratch = y->right + samples->count;
    return true;
}

/* Seconds per byte from memory. Prompts compute meanwhile, so that weights may cost nothing. */
static double least_per_byte(double bytes_per_s, unsigned phase)
{
    return phase == VTI_DECODE && bytes_per_s > 0 ? 1 / (MOST_ABOVE_MEMORY * bytes_per_s) : 0;
}

static void fill_equations(equations *y, const vti_profile_samples *samples, double bytes_per_s,
                        unsigned kind, unsigned precision, unsigned phase)
{
    size_t row = 0;
    y->rows = y->columns = 0;
    for (unsigned t = 0; t < VTI_PROFILE_TERMS; t++) {
        if (!used[phase][t]) continue;
        y->least[y->columns] = t == VTI_TERM_WEIGHT_BYTE ? least_per_byte(bytes_per_s, phase) : 0;
        y->term[y->columns++] = t;
    }
    for (size_t i = 0; i < samples->count; i++)
        y->rows += is_of(&samples->sample[i], kind, precision, phase);
    for (size_t i = 0; i < samples->count; i++) {
        double feature[VTI_PROFILE_TERMS];
        const vti_profile_sample *s = &samples->sample[i];
        if (!is_of(s, kind, precision, phase)) continue;
        features_of(s, bytes_per_s, feature);
        for (size_t c = 0; c < y->columns; c++)
            y->exact[c * y->rows + row] = feature[y->term[c]] / s->seconds;
        row++;
    }
}

static bool has(const equations *y, unsigned term)
{
    bool found = false;
    for (size_t c = 0; c < y->columns; c++)
        for (size_t i = 0; y->term[c] == term && i < y->rows; i++)
            found |= y->exact[c * y->rows + i] > 0;
    return found;
}

/* What was only measured in the cache, or only outside of it, has one price; and the cache is not
 * slower than memory. */
static void set_cached(const equations *y, unsigned term, unsigned cached_term, float *terms)
{
    bool streamed = has(y, term), cached = has(y, cached_term);
    if (!streamed) terms[term] = fmaxf(terms[term], terms[cached_term]); /* it is at its least */
    if (!cached || terms[cached_term] > terms[term]) terms[cached_term] = terms[term];
}

static bool fit_one(equations *y, vti_profile_cost *out)
{
    double x[VTI_PROFILE_TERMS];
    float terms[VTI_PROFILE_TERMS + 1] = {0};
    if (y->rows == 0 || !solve(y, x)) return false;
    for (size_t c = 0; c < y->columns; c++) terms[y->term[c]] = (float)x[c];
    set_cached(y, VTI_TERM_WEIGHT_BYTE, VTI_TERM_CACHED_BYTE, terms);
    set_cached(y, VTI_TERM_KV_BYTE, VTI_TERM_CACHED_KV_BYTE, terms);
    *out = vti_profile_cost_of(terms);
    return true;
}

static vt_status fit_all(equations *y, const vti_profile_samples *samples, vti_profile *profile,
                         vt_error *err)
{
    static const char *const names[VTI_PLAN_KINDS] = {"EMBED", "ATTN", "FFN", "MOE", "HEAD"};
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                unsigned measured = k == VTI_PLAN_HEAD ? VTI_DECODE : phase;
                fill_equations(y, samples, (double)profile->bytes_per_s, k, p, measured);
                if (!fit_one(y, &profile->cost[k][p][phase]))
                    return vti_fail(err, VT_ERR_INTERNAL, "%s cannot be fitted to %zu measurements",
                                    names[k], y->rows);
            }
    return VT_OK;
}

vt_status vti_profile_fit(const vti_profile_samples *samples, vti_profile *profile, vt_error *err)
{
    equations y;
    double rate;
    if (!median_rate(samples, &rate) || !open_equations(&y, samples))
        return vti_fail(err, VT_ERR_MEMORY, "no memory to fit %zu measurements", samples->count);
    profile->bytes_per_s = (float)rate;
    vt_status status = fit_all(&y, samples, profile, err);
    free(y.exact);
    return status;
}

/* --- judging ---------------------------------------------------------------------------------- */

static double mean_error(const vti_profile *profile, const vti_profile_samples *samples,
                         unsigned kind, unsigned precision, unsigned phase, unsigned *count)
{
    double sum = 0;
    *count = 0;
    for (size_t i = 0; i < samples->count; i++) {
        const vti_profile_sample *s = &samples->sample[i];
        if (!is_of(s, kind, precision, phase)) continue;
        sum += fabs(vti_profile_predict(profile, s) / s->seconds - 1);
        ++*count;
    }
    return *count ? sum / *count : 0;
}

void vti_profile_judge(vti_profile *profile, const vti_profile_samples *samples)
{
    for (unsigned k = VTI_PLAN_EMBED + 1; k < VTI_PLAN_KINDS; k++)
        for (unsigned p = 0; p < VTI_PLAN_PRECISIONS; p++)
            for (unsigned phase = 0; phase < VTI_PHASES; phase++) {
                unsigned count;
                double error = mean_error(profile, samples, k, p,
                                          k == VTI_PLAN_HEAD ? VTI_DECODE : phase, &count);
                if (count) profile->cost[k][p][phase].accuracy = (float)fmax(1 - error, 1e-6);
            }
}
