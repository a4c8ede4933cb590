/* plan_report.c: what a plan takes, for people. */
#include <inttypes.h>
#include <string.h>

#include "plan.h"

enum { BAR = 24 };

const char *cli_seconds(double seconds)
{
    static char ring[8][24];
    static unsigned next;
    char *text = ring[next++ % 8];
    if (seconds >= 1000)
        snprintf(text, sizeof ring[0], "over 1000 s");
    else if (seconds >= 1)
        snprintf(text, sizeof ring[0], seconds >= 100 ? "%.0f s" : "%.2f s", seconds);
    else
        snprintf(text, sizeof ring[0], seconds >= 0.01 ? "%.1f ms" : "%.2f ms", 1e3 * seconds);
    return text;
}

static void print_time(const char *what, double seconds, double asked, double compute, double wire)
{
    double sum = compute + wire > 0 ? compute + wire : 1;
    printf("%s  %9s  asked for: %-9s %s  %3.0f %% computing (%s), %3.0f %% on the wire (%s)\n", what,
           cli_seconds(seconds), cli_seconds(asked), seconds <= asked ? "met   " : "missed",
           100 * compute / sum, cli_seconds(compute), 100 * wire / sum, cli_seconds(wire));
}

static void print_times(const vt_plan_info *i)
{
    print_time("TTFT", i->ttft_s, i->ttft_qos_s, i->compute_s[VT_PHASE_PREFILL],
               i->wire_s[VT_PHASE_PREFILL]);
    print_time("TPOT", i->tpot_s, i->tpot_qos_s, i->compute_s[VT_PHASE_DECODE],
               i->wire_s[VT_PHASE_DECODE]);
}

/* Weights, KV cache and scratch, of the larger of what there is and what is needed. */
static void print_bar(const vt_plan_device_info *d)
{
    static const char *const marks[] = {"█", "▓", "▒"};
    const uint64_t parts[] = {d->weight_bytes, d->kv_bytes, d->scratch_bytes};
    uint64_t whole = d->memory_bytes > d->budget_bytes ? d->memory_bytes : d->budget_bytes, sum = 0;
    int at = 0;
    for (int i = 0; i < 3; i++) {
        sum += parts[i];
        int end = whole ? (int)((double)sum * BAR / (double)whole + 0.5) : 0;
        for (; at < end && at < BAR; at++) fputs(marks[i], stdout);
    }
    for (; at < BAR; at++) fputs("·", stdout);
}

static void print_device(const cli_canvas *canvas, const vt_plan_info *info, size_t index,
                         const vt_plan_device_info *d)
{
    double decode = info->tpot_s > 0 ? 100 * d->busy_s[VT_PHASE_DECODE] / info->tpot_s : 0;
    printf("  %-15.15s %10s %10s %10s %10s  %10s  ", d->name, cli_bytes(d->weight_bytes),
           cli_bytes(d->kv_bytes), cli_bytes(d->scratch_bytes), cli_bytes(d->memory_bytes),
           cli_bytes(d->budget_bytes));
    fputs(cli_device_colour(canvas, index), stdout);
    print_bar(d);
    fputs(cli_canvas_plain(canvas), stdout);
    if (d->shortfall_bytes)
        printf(" lacks %s\n", cli_bytes(d->shortfall_bytes));
    else if (d->is_used)
        printf(" busy %.0f %%\n", decode);
    else
        puts(" left out");
}

static void print_devices(const vt_plan *plan, const vt_plan_info *info, const cli_canvas *canvas)
{
    vt_plan_device_info d;
    printf("\n  %-15s %10s %10s %10s %10s  %10s\n", "memory", "weights", "KV cache", "scratch",
           "together", "budget");
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++)
        print_device(canvas, info, i, &d);
    putchar('\n');
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++)
        if (d.left_out) printf("%s is left out: %s.\n", d.name, d.left_out);
}

void cli_print_plan(const vt_plan *plan, const cli_canvas *canvas)
{
    vt_plan_info info;
    const char *remark;
    vt_plan_get_info(plan, &info);
    print_times(&info);
    print_devices(plan, &info, canvas);
    for (size_t i = 0; (remark = vt_plan_remark(plan, i)); i++) puts(remark);
}
