/* sampling_params.c: defaults and ranges of vt_sampling. */
#include <inttypes.h>
#include <math.h>

#include "sampler.h"

static const float MOST_BIAS = 1e6f;

vt_sampling vt_sampling_default(void)
{
    return (vt_sampling){
        .repeat_penalty = 1.0f,
        .repeat_last_tokens = 64,
        .top_k = 40,
        .typical_p = 1.0f,
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

static vt_status check_bias(const vt_sampling *p, uint32_t vocab, vt_error *err)
{
    if (p->logit_bias_count && !p->logit_bias)
        return vti_fail(err, VT_ERR_ARGUMENT, "logit_bias is NULL, but logit_bias_count is %zu",
                        p->logit_bias_count);
    if (p->logit_bias_count > vocab)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "logit_bias_count is %zu, expected at most one per token, %" PRIu32,
                        p->logit_bias_count, vocab);
    for (size_t i = 0; i < p->logit_bias_count; i++) {
        vt_logit_bias b = p->logit_bias[i];
        if (b.token < 0 || (uint32_t)b.token >= vocab)
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "logit_bias: token %" PRId32 " does not exist, expected 0 to %" PRIu32,
                            b.token, vocab - 1);
        if (!(fabsf(b.bias) <= MOST_BIAS) && b.bias != -INFINITY)
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "logit_bias of token %" PRId32 " is %g, expected -%g to %g or -inf",
                            b.token, (double)b.bias, (double)MOST_BIAS, (double)MOST_BIAS);
    }
    return VT_OK;
}

static vt_status check_share(float value, const char *name, vt_error *err)
{
    return check(value > 0 && value <= 1, name, (double)value, "more than 0, at most 1 (1: off)",
                 err);
}

static vt_status check_subtracted(float value, const char *name, vt_error *err)
{
    return check(value >= -100 && value <= 100, name, (double)value, "-100 to 100 (0: off)", err);
}

vt_status vti_sampling_check(const vt_sampling *p, uint32_t vocab, vt_error *err)
{
    VTI_TRY(check(p->temperature >= 0 && p->temperature <= 100, "temperature",
                  (double)p->temperature, "0 to 100", err));
    VTI_TRY(check_share(p->typical_p, "typical_p", err));
    VTI_TRY(check_share(p->top_p, "top_p", err));
    VTI_TRY(check(p->min_p >= 0 && p->min_p <= 1, "min_p", (double)p->min_p, "0 to 1 (0: off)",
                  err));
    VTI_TRY(check(p->repeat_penalty >= 0.01f && p->repeat_penalty <= 100, "repeat_penalty",
                  (double)p->repeat_penalty, "0.01 to 100 (1: off)", err));
    VTI_TRY(check_subtracted(p->frequency_penalty, "frequency_penalty", err));
    VTI_TRY(check_subtracted(p->presence_penalty, "presence_penalty", err));
    VTI_TRY(check(p->logprobs <= VT_LOGPROBS_MAX, "logprobs", p->logprobs, "0 to 100 (0: off)",
                  err));
    return check_bias(p, vocab, err);
}
