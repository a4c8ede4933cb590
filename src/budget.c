#include "budget.h"

#include <stdio.h>

/* A category as messages name it, and what makes it need less. */
static const struct {
    const char *name, *help;
} words[VTI_BUDGET_CATEGORIES] = {
    [VTI_BUDGET_WEIGHTS] = {"weights", "weights of fewer bits, more devices"},
    [VTI_BUDGET_KV] = {"KV cache", "a smaller context, a KV cache of lower precision (q8), weights "
                                   "of fewer bits"},
    [VTI_BUDGET_SCRATCH] = {"scratch", "a smaller batch, a smaller context, weights of fewer bits"},
    [VTI_BUDGET_WIRE] = {"wire", "a smaller batch, a smaller context, weights of fewer bits"},
    [VTI_BUDGET_CACHE] = {"cache", "a smaller cache"},
};

const char *vti_budget_category_name(vti_budget_category category)
{
    return (unsigned)category < VTI_BUDGET_CATEGORIES ? words[category].name : "?";
}

void vti_budget_init(vti_budget *budget, uint64_t limit_bytes)
{
    atomic_init(&budget->limit_bytes, limit_bytes);
    atomic_init(&budget->total_bytes, 0);
    atomic_init(&budget->peak_bytes, 0);
    for (unsigned i = 0; i < VTI_BUDGET_CATEGORIES; i++) atomic_init(&budget->used_bytes[i], 0);
}

/* --- taking and giving ----------------------------------------------------------------------- */

static void raise_peak(vti_budget *budget, uint64_t total)
{
    uint64_t peak = atomic_load(&budget->peak_bytes);
    while (total > peak && !atomic_compare_exchange_weak(&budget->peak_bytes, &peak, total)) {}
}

bool vti_budget_try(vti_budget *budget, vti_budget_category category, uint64_t bytes)
{
    if (!budget || bytes == 0) return true;
    uint64_t total = atomic_load(&budget->total_bytes);
    do {
        uint64_t limit = atomic_load(&budget->limit_bytes);
        if (!limit) limit = UINT64_MAX;
        if (total > limit || bytes > limit - total) return false;
    } while (!atomic_compare_exchange_weak(&budget->total_bytes, &total, total + bytes));
    atomic_fetch_add(&budget->used_bytes[category], bytes);
    raise_peak(budget, total + bytes);
    return true;
}

void vti_budget_give(vti_budget *budget, vti_budget_category category, uint64_t bytes)
{
    if (!budget) return;
    atomic_fetch_sub(&budget->used_bytes[category], bytes);
    atomic_fetch_sub(&budget->total_bytes, bytes);
}

/* --- saying no ------------------------------------------------------------------------------- */

typedef char size_text[24];

static const char *text_of(uint64_t bytes, size_text out)
{
    double kib = (double)bytes / 1024;
    if (bytes == 0)
        snprintf(out, sizeof(size_text), "0");
    else if (kib >= 1048576)
        snprintf(out, sizeof(size_text), "%.2f GiB", kib / 1048576);
    else if (kib >= 1024)
        snprintf(out, sizeof(size_text), "%.1f MiB", kib / 1024);
    else
        snprintf(out, sizeof(size_text), "%.1f KiB", kib);
    return out;
}

/* "weights 1.20 GiB, KV cache 0, …"; without those that are 0 if `all` is false. */
typedef char list_text[160];

static const char *list_of(const uint64_t bytes[VTI_BUDGET_CATEGORIES], bool all, list_text out)
{
    size_t length = 0;
    size_text size;
    out[0] = 0;
    for (unsigned i = 0; i < VTI_BUDGET_CATEGORIES && length < sizeof(list_text); i++)
        if (all || bytes[i])
            length += (size_t)snprintf(out + length, sizeof(list_text) - length, "%s%s %s",
                                       length ? ", " : "", words[i].name, text_of(bytes[i], size));
    return out;
}

static vt_status refuse(const vti_budget *budget, vti_budget_category category, uint64_t bytes,
                        const char *what, vt_error *err)
{
    vti_budget_usage u = vti_budget_get(budget);
    list_text held;
    size_text a, b, c;
    return vti_fail(err, VT_ERR_MEMORY,
                    "%.120s needs %s more (%s), but %s of the device's %s of memory are taken "
                    "(%s); %s or a higher memory limit would help",
                    what, text_of(bytes, a), words[category].name, text_of(u.total_bytes, b),
                    text_of(u.limit_bytes, c), list_of(u.used_bytes, true, held),
                    words[category].help);
}

vt_status vti_budget_check(const vti_budget *budget, const uint64_t need[VTI_BUDGET_CATEGORIES],
                           const char *what, vt_error *err)
{
    uint64_t sum = 0, left = vti_budget_left(budget);
    for (unsigned i = 0; i < VTI_BUDGET_CATEGORIES; i++)
        sum = need[i] > UINT64_MAX - sum ? UINT64_MAX : sum + need[i];
    if (sum <= left) return VT_OK;
    vti_budget_usage u = vti_budget_get(budget);
    bool weights = need[VTI_BUDGET_WEIGHTS] > left;
    list_text wanted, held;
    size_text a, b, c, d;
    return vti_fail(err, VT_ERR_MEMORY,
                    "%.100s needs %s of memory (%s), but %s of the device's %s are left%s%s%s; %s "
                    "are missing: %s or a higher memory limit would help",
                    what, text_of(sum, a), list_of(need, false, wanted), text_of(left, b),
                    text_of(u.limit_bytes, c), u.total_bytes ? " (in use: " : "",
                    u.total_bytes ? list_of(u.used_bytes, false, held) : "",
                    u.total_bytes ? ")" : "", text_of(sum - left, d),
                    words[weights ? VTI_BUDGET_WEIGHTS : VTI_BUDGET_KV].help);
}

vt_status vti_budget_take(vti_budget *budget, vti_budget_category category, uint64_t bytes,
                          const char *what, vt_error *err)
{
    if (vti_budget_try(budget, category, bytes)) return VT_OK;
    return refuse(budget, category, bytes, what, err);
}

/* --- the limit, and what is known ------------------------------------------------------------ */

uint64_t vti_budget_set_limit(vti_budget *budget, uint64_t limit_bytes)
{
    atomic_store(&budget->limit_bytes, limit_bytes);
    return vti_budget_overshoot(budget);
}

uint64_t vti_budget_overshoot(const vti_budget *budget)
{
    uint64_t limit = atomic_load(&budget->limit_bytes), total = atomic_load(&budget->total_bytes);
    return limit && total > limit ? total - limit : 0;
}

uint64_t vti_budget_left(const vti_budget *budget)
{
    uint64_t limit = atomic_load(&budget->limit_bytes), total = atomic_load(&budget->total_bytes);
    if (!limit) return UINT64_MAX;
    return total < limit ? limit - total : 0;
}

vti_budget_usage vti_budget_get(const vti_budget *budget)
{
    vti_budget_usage usage = {
        .limit_bytes = atomic_load(&budget->limit_bytes),
        .peak_bytes = atomic_load(&budget->peak_bytes),
    };
    for (unsigned i = 0; i < VTI_BUDGET_CATEGORIES; i++) {
        usage.used_bytes[i] = atomic_load(&budget->used_bytes[i]);
        usage.total_bytes += usage.used_bytes[i];
    }
    return usage;
}
