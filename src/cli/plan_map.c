/* plan_map.c: a plan as a map on the terminal: a row for each device, a character for each unit.
 *
 *   decode         0·······4·······
 *     tablet      █████▅█▅█·····
 *     phone       ·····▃·▃·█████
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plan.h"

enum { COLUMNS_USUAL = 100, COLUMNS_LEAST = 28, LABEL = 18, DEVICES = VT_PLAN_DEVICES_MAX };

cli_canvas cli_canvas_of_output(void)
{
    struct winsize size;
    cli_canvas canvas = {.columns = COLUMNS_USUAL};
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR"), *columns = getenv("COLUMNS");
    canvas.colour = isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        canvas.columns = size.ws_col;
    else if (columns && atoi(columns) > 0)
        canvas.columns = atoi(columns);
    if (canvas.columns < COLUMNS_LEAST) canvas.columns = COLUMNS_LEAST;
    return canvas;
}

const char *cli_device_colour(const cli_canvas *canvas, size_t device)
{
    static const char *const colours[DEVICES] = {"\033[34m", "\033[33m", "\033[32m", "\033[35m",
                                                 "\033[36m", "\033[31m", "\033[93m", "\033[90m"};
    return canvas->colour ? colours[device % DEVICES] : "";
}

const char *cli_canvas_plain(const cli_canvas *canvas) { return canvas->colour ? "\033[0m" : ""; }

/* --- one row ---------------------------------------------------------------------------------- */

/* How much of a unit a device has: nothing, eighths, all. */
static const char *mark(uint32_t share, uint32_t shards)
{
    static const char *const eighths[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇"};
    if (share == 0) return "·";
    if (share == shards) return "█";
    uint32_t n = (8 * share + shards / 2) / shards;
    return eighths[n < 1 ? 0 : n > 7 ? 6 : n - 1];
}

/* Columns [first, end) of the map: the units of these numbers. */
typedef struct stripe {
    const vt_plan *plan;
    const cli_canvas *canvas;
    uint32_t first, end, units;
} stripe;

void cli_print_name(const char *text, int columns)
{
    int at = 0;
    for (; *text; text++) { /* a character begins at bytes that do not go on */
        if (((unsigned char)*text & 0xC0) != 0x80 && at++ == columns) break;
        putchar(*text);
    }
    printf("%*s", at < columns ? columns - at : 0, "");
}

/* Layer numbers where their ATTN stands, with room for the digits. */
static void print_ruler(const stripe *s, const char *title)
{
    cli_print_name(title, LABEL);
    for (uint32_t u = s->first; u < s->end;) {
        int wide = 1;
        if (u == 0 || u + 1 == s->units) {
            putchar(u == 0 ? 'E' : 'H');
        } else if (u % 2 && (u - 1) / 2 % 4 == 0 && u + 4 < s->end) {
            wide = printf("%" PRIu32, (u - 1) / 2);
        } else {
            putchar(' ');
        }
        u += (uint32_t)wide;
    }
    putchar('\n');
}

static void print_device_row(const stripe *s, size_t device, vt_phase phase)
{
    vt_plan_device_info info;
    vt_plan_unit_info unit;
    vt_plan_get_device(s->plan, device, &info);
    printf("  ");
    cli_print_name(info.name, LABEL - 3);
    putchar(' ');
    fputs(cli_device_colour(s->canvas, device), stdout);
    for (uint32_t u = s->first; u < s->end; u++) {
        vt_plan_get_unit(s->plan, u, &unit);
        fputs(mark(unit.phase[phase].shares[device], unit.shards), stdout);
    }
    puts(cli_canvas_plain(s->canvas));
}

static void print_precision_row(const stripe *s)
{
    static const char letters[VT_PRECISION_COUNT] = {'F', '8', '4'};
    vt_plan_unit_info unit;
    cli_print_name("precision", LABEL);
    for (uint32_t u = s->first; u < s->end; u++) {
        vt_plan_get_unit(s->plan, u, &unit);
        putchar(u == 0 ? ' ' : letters[unit.precision]);
    }
    putchar('\n');
}

/* --- the map ---------------------------------------------------------------------------------- */

/* Whether every device has the same shares in both phases. */
static bool phases_alike(const vt_plan *plan)
{
    vt_plan_unit_info unit;
    for (size_t u = 0; vt_plan_get_unit(plan, u, &unit) == VT_OK; u++)
        if (memcmp(unit.phase[VT_PHASE_PREFILL].shares, unit.phase[VT_PHASE_DECODE].shares,
                   sizeof unit.phase[0].shares) != 0)
            return false;
    return true;
}

static void print_stripe(const stripe *s, size_t devices, bool alike)
{
    print_ruler(s, alike ? "decode, prefill" : "decode");
    for (size_t d = 0; d < devices; d++) print_device_row(s, d, VT_PHASE_DECODE);
    if (!alike) {
        print_ruler(s, "prefill");
        for (size_t d = 0; d < devices; d++) print_device_row(s, d, VT_PHASE_PREFILL);
    }
    print_precision_row(s);
    putchar('\n');
}

void cli_print_plan_map(const vt_plan *plan, const cli_canvas *canvas)
{
    vt_plan_info info;
    vt_plan_get_info(plan, &info);
    bool alike = phases_alike(plan);
    /* Layers stay whole: after EMBED an even number of units. */
    uint32_t room = (uint32_t)(canvas->columns - LABEL - 2) / 8 * 8;
    for (uint32_t first = 0, end; first < info.unit_count; first = end) {
        end = first + room + (first == 0);
        if (end + 1 >= info.unit_count) end = info.unit_count;
        stripe s = {plan, canvas, first, end, info.unit_count};
        print_stripe(&s, info.device_count, alike);
    }
    static const char *const legend[] = {
        "E: embedding, H: output; between them each layer's ATTN and FFN.",
        "█: the whole unit here; ▁ to ▇: that part of its shards; ·: none.",
        "Precisions: F: F16, 8: I8, 4: I4."};
    for (int i = 0; i < 3; i++) cli_print_wrapped(legend[i], canvas->columns, 0, 2);
    putchar('\n');
}
