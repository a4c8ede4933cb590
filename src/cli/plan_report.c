/* plan_report.c: what a plan takes, for people. */
#include <inttypes.h>
#include <string.h>

#include "plan.h"

enum { NAME = 15, TABLE = 3 + NAME + 5 * 11, NOTE = 18, BAR_MOST = 24, BAR_LEAST = 6 };

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

/* --- times ------------------------------------------------------------------------------------ */

static void print_time(const char *what, double seconds, double asked, double compute, double wire)
{
    double sum = compute + wire > 0 ? compute + wire : 1, saved = compute + wire - seconds;
    printf("%s %9s, asked for %s: %s; %.0f %% computing, %.0f %% on the wire (%s)", what,
           cli_seconds(seconds), cli_seconds(asked), seconds <= asked ? "met" : "missed",
           100 * compute / sum, 100 * wire / sum, cli_seconds(wire));
    printf(saved > 0.005 * sum ? ",\n  less %s as devices compute batches at the same time\n" : "\n",
           cli_seconds(saved));
}

static void print_times(const vt_plan_info *i)
{
    print_time("TTFT", i->ttft_s, i->ttft_qos_s, i->compute_s[VT_PHASE_PREFILL],
               i->wire_s[VT_PHASE_PREFILL]);
    print_time("TPOT", i->tpot_s, i->tpot_qos_s, i->compute_s[VT_PHASE_DECODE],
               i->wire_s[VT_PHASE_DECODE]);
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

static void print_device(const cli_canvas *canvas, const vt_plan_info *info, size_t index,
                         const vt_plan_device_info *d)
{
    int bar = canvas->columns - TABLE - NOTE;
    if (bar > BAR_MOST) bar = BAR_MOST;
    printf("  ");
    cli_print_name(d->name, NAME);
    printf(" %10s %10s %10s %10s %10s ", cli_bytes(d->weight_bytes), cli_bytes(d->kv_bytes),
           cli_bytes(d->scratch_bytes), cli_bytes(d->memory_bytes), cli_bytes(d->budget_bytes));
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
    vt_plan_device_info d;
    printf("\n  %-*s %10s %10s %10s %10s %10s\n", NAME, "memory", "weights", "KV cache", "scratch",
           "together", "of");
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++)
        print_device(canvas, info, i, &d);
    putchar('\n');
}

/* --- words ------------------------------------------------------------------------------------ */

/* Bytes up to where a line may end: a number and its unit stay together. */
static size_t word_bytes(const char *text)
{
    size_t bytes = strcspn(text, " ");
    while (bytes && text[bytes] && text[bytes - 1] >= '0' && text[bytes - 1] <= '9')
        bytes += 1 + strcspn(text + bytes + 1, " ");
    return bytes;
}

/* In lines of the terminal's width, broken at spaces; the later ones are indented. */
static void print_wrapped(const cli_canvas *canvas, const char *text)
{
    int column = 0;
    while (*text) {
        size_t bytes = word_bytes(text);
        int width = 0;
        for (size_t i = 0; i < bytes; i++) width += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (column > 2 && column + 1 + width > canvas->columns) {
            printf("\n ");
            column = 1;
        }
        printf("%s%.*s", column ? " " : "", (int)bytes, text);
        column += width + (column > 0);
        text += bytes;
        while (*text == ' ') text++;
    }
    putchar('\n');
}

void cli_print_plan(const vt_plan *plan, const cli_canvas *canvas)
{
    vt_plan_info info;
    vt_plan_device_info d;
    const char *remark;
    char line[512];
    vt_plan_get_info(plan, &info);
    print_times(&info);
    print_devices(plan, &info, canvas);
    for (size_t i = 0; vt_plan_get_device(plan, i, &d) == VT_OK; i++) {
        if (!d.left_out) continue;
        snprintf(line, sizeof line, "%s is left out: %s.", d.name, d.left_out);
        print_wrapped(canvas, line);
    }
    for (size_t i = 0; (remark = vt_plan_remark(plan, i)); i++) print_wrapped(canvas, remark);
}
