/* plan_report.c: what a plan takes, for people. */
#include <inttypes.h>
#include <string.h>

#include "plan.h"

enum { NAME = 15, AMOUNT = 11, NOTE = 17, AMOUNTS = 5, BAR_MOST = 24, BAR_LEAST = 6 };

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

/* --- words ------------------------------------------------------------------------------------ */

static void print_text(const cli_canvas *canvas, const char *text)
{
    cli_print_wrapped(text, canvas->columns, 0, 2);
}

/* --- times ------------------------------------------------------------------------------------ */

/* A plan that does not fit meets nothing. */
static void print_time(const cli_canvas *canvas, const vt_plan_info *i, vt_phase phase)
{
    bool first = phase == VT_PHASE_PREFILL;
    double seconds = first ? i->ttft_s : i->tpot_s, asked = first ? i->ttft_qos_s : i->tpot_qos_s;
    double wire = i->wire_s[phase], whole = i->compute_s[phase] + wire, saved = whole - seconds;
    char line[256];
    size_t n = (size_t)snprintf(line, sizeof line, "%s %9s, asked for %s", first ? "TTFT" : "TPOT",
                                cli_seconds(seconds), cli_seconds(asked));
    if (i->is_feasible)
        n += (size_t)snprintf(line + n, sizeof line - n, ": %s",
                              seconds <= asked ? "met" : "missed");
    if (wire > 0)
        n += (size_t)snprintf(line + n, sizeof line - n,
                              "; %.0f %% computing, %.0f %% on the wire (%s)",
                              100 * i->compute_s[phase] / whole, 100 * wire / whole,
                              cli_seconds(wire));
    if (saved > 0.005 * whole)
        snprintf(line + n, sizeof line - n, ", less %s as devices compute batches at the same time",
                 cli_seconds(saved));
    print_text(canvas, line);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Weights, KV cache and scratch, of the larger of what there is and what is needed. */
static void print_bar(const vt_plan_device_info *d, int columns)
{
    static const char *const marks[] = {"█", "▓", "▒"};
    const uint64_t parts[] = {d->weight_bytes, d->kv_bytes, d->scratch_bytes};
    uint64_t whole = d->memory_bytes > d->budget_bytes ? d->memory_bytes : d->budget_bytes, sum = 0;
    int at = 0;
    for (int i = 0; i < 3; i++) {
        sum += parts[i];
        int end = whole ? (int)((double)sum * columns / (double)whole + 0.5) : 0;
        for (; at < end && at < columns; at++) fputs(marks[i], stdout);
    }
    for (; at < columns; at++) fputs("·", stdout);
    putchar(' ');
}

/* How many amounts there is room for: where not all, the last ones, which say the most. */
static int amounts_of(const cli_canvas *canvas)
{
    int room = (canvas->columns - 2 - NAME - NOTE) / AMOUNT;
    return room < 1 ? 1 : room > AMOUNTS ? AMOUNTS : room;
}

static void print_device(const cli_canvas *canvas, const vt_plan_info *info, size_t index,
                         const vt_plan_device_info *d)
{
    const uint64_t amounts[AMOUNTS] = {d->weight_bytes, d->kv_bytes, d->scratch_bytes,
                                       d->memory_bytes, d->budget_bytes};
    int shown = amounts_of(canvas);
    int bar = canvas->columns - 3 - NAME - AMOUNTS * AMOUNT - NOTE - 1;
    if (bar > BAR_MOST) bar = BAR_MOST;
    printf("  ");
    cli_print_name(d->name, NAME);
    for (int i = AMOUNTS - shown; i < AMOUNTS; i++) printf(" %10s", cli_bytes(amounts[i]));
    putchar(' ');
    fputs(cli_device_colour(canvas, index), stdout);
    if (bar >= BAR_LEAST) print_bar(d, bar);
    fputs(cli_canvas_plain(canvas), stdout);
    if (d->shortfall_bytes)
        printf("lacks %s\n", cli_bytes(d->shortfall_bytes));
    else if (d->is_used)
        printf("busy %.0f %%\n",
               info->tpot_s > 0 ? 100 * d->busy_s[VT_PHASE_DECODE] / info->tpot_s : 0);
    else
        puts("left out");
}

static void print_devices(const vt_plan *plan, const vt_plan_info *info, const cli_canvas *canvas)
{
    static const char *const titles[AMOUNTS] = {"weights", "KV cache", "scratch", "together", "of"};
    vt_plan_device_info d;
    printf("\n  %-*s", NAME, "memory");
    for (int i = AMOUNTS - amounts_of(canvas); i < AMOUNTS; i++) printf(" %10s", titles[i]);
    putchar('\n');
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++)
        print_device(canvas, info, i, &d);
    putchar('\n');
}

void cli_print_plan(const vt_plan *plan, const cli_canvas *canvas)
{
    vt_plan_info info;
    vt_plan_device_info d;
    const char *remark;
    char line[512];
    vt_plan_get_info(plan, &info);
    print_time(canvas, &info, VT_PHASE_PREFILL);
    print_time(canvas, &info, VT_PHASE_DECODE);
    print_devices(plan, &info, canvas);
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++) {
        if (!d.left_out) continue;
        snprintf(line, sizeof line, "%s is left out: %s.", d.name, d.left_out);
        print_text(canvas, line);
    }
    for (size_t i = 0; (remark = vt_plan_remark(plan, i)); i++) print_text(canvas, remark);
}
