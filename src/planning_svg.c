/* planning_svg.c: a plan as a drawing. Devices are rows, units columns; a bar is as high as the
 * device's share of the unit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planning.h"

/* In pixels of the drawing. */
enum {
    WIDTH = 1200, MARGIN = 24, LABEL = 150, LANE = 26, LANE_STEP = 32, LINE = 20,
    CHART = WIDTH - 2 * MARGIN - LABEL, COLUMN_MAX = 32, NAME_MAX = 20
};

/* Told apart by most kinds of colour vision. */
static const char *const device_colours[VT_PLAN_DEVICES_MAX] = {
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a400", "#777777"};
static const char *const precision_colours[VT_PRECISION_COUNT] = {"#33415c", "#7d8597", "#ced4da"};
static const char *const phase_titles[VT_PHASE_COUNT] = {"prefill", "decode"};

typedef struct drawing {
    FILE *out;
    const vt_plan *plan;
    vt_plan_info info;
    double column; /* width of a unit */
    double y;      /* of what is drawn next */
} drawing;

static void write_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
}

static void rect(const drawing *d, double x, double y, double width, double height,
                 const char *colour)
{
    fprintf(d->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n", x,
            y, width, height, colour);
}

static void text(const drawing *d, double x, double y, const char *style, const char *words)
{
    fprintf(d->out, "<text x=\"%.2f\" y=\"%.2f\" class=\"%s\">", x, y, style);
    write_escaped(d->out, words);
    fputs("</text>\n", d->out);
}

/* A name, with an ellipsis where there is no room for all of it. */
static void name_text(const drawing *d, double x, double y, const char *name)
{
    char shown[4 * NAME_MAX + 4];
    size_t at = 0;
    for (int characters = 0; name[at] && at < sizeof shown - 4; at++) {
        if (((unsigned char)name[at] & 0xC0) != 0x80 && characters++ == NAME_MAX) break;
        shown[at] = name[at];
    }
    strcpy(shown + at, name[at] ? "…" : "");
    text(d, x, y, "plain", shown);
}

static double unit_x(const drawing *d, unsigned unit) { return MARGIN + LABEL + unit * d->column; }

static void draw_head(drawing *d)
{
    char line[200];
    const vt_plan_info *i = &d->info;
    snprintf(line, sizeof line, "TTFT %.2f s, asked for %.2f s; TPOT %.1f ms, asked for %.0f ms%s",
             i->ttft_s, i->ttft_qos_s, 1e3 * i->tpot_s, 1e3 * i->tpot_qos_s,
             i->is_feasible ? "" : "; too little memory");
    text(d, MARGIN, d->y += LINE, "title", "What runs where");
    text(d, MARGIN, d->y += LINE, "plain", line);
    snprintf(line, sizeof line, "planner %s, prompt of %u tokens, context of %u tokens", i->planner,
             (unsigned)i->prompt_tokens, (unsigned)i->context_tokens);
    text(d, MARGIN, d->y += LINE, "small", line);
    d->y += LINE;
}

/* Layer numbers above the columns, as many as have room. */
static void draw_ruler(drawing *d)
{
    char number[16];
    unsigned layers = (d->info.unit_count - 2) / 2, step = 1;
    while (step * 2 * d->column < 24) step *= 2;
    for (unsigned layer = 0; layer < layers; layer += step) {
        snprintf(number, sizeof number, "%u", layer);
        text(d, unit_x(d, 1 + 2 * layer), d->y, "small", number);
    }
    text(d, unit_x(d, 0), d->y, "small", "E");
    text(d, unit_x(d, d->info.unit_count - 1), d->y, "small", "H");
    text(d, MARGIN, d->y, "small", "layer (ATTN, FFN)");
    d->y += 6;
}

static void draw_lane(drawing *d, const vt_plan_device_info *device, unsigned index, unsigned phase)
{
    vt_plan_unit_info unit;
    name_text(d, MARGIN, d->y + LANE * 0.7, device->name);
    rect(d, MARGIN + LABEL, d->y, d->info.unit_count * d->column, LANE, "#f1f3f5");
    for (unsigned u = 0; vt_plan_get_unit(d->plan, u, &unit) == VT_OK; u++) {
        const vt_plan_unit_phase *p = &unit.phase[phase];
        double height = (double)LANE * p->shares[index] / unit.shards;
        if (p->shares[index] == 0) continue;
        fprintf(d->out,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>"
                "%s on ",
                unit_x(d, u), d->y + LANE - height, d->column * 0.88, height,
                device_colours[index], unit.name);
        write_escaped(d->out, device->name);
        fprintf(d->out, ": %u of %u shards, %s</title></rect>\n", (unsigned)p->shares[index],
                (unsigned)unit.shards, vt_precision_name(unit.precision));
    }
    d->y += LANE_STEP;
}

static void draw_phase(drawing *d, unsigned phase)
{
    vt_plan_device_info device;
    char line[120];
    double compute = d->info.compute_s[phase], wire = d->info.wire_s[phase];
    double sum = compute + wire > 0 ? compute + wire : 1;
    double whole = phase == VT_PHASE_PREFILL ? d->info.ttft_s : d->info.tpot_s;
    bool is_long = whole >= 1;
    snprintf(line, sizeof line, "%s: %.*f %s, %.0f %% computing, %.0f %% on the wire",
             phase_titles[phase], is_long ? 2 : 1, whole * (is_long ? 1 : 1e3),
             is_long ? "s" : "ms", 100 * compute / sum, 100 * wire / sum);
    text(d, MARGIN, d->y += LINE, "title", line);
    d->y += LINE;
    draw_ruler(d);
    for (unsigned i = 0; vt_plan_get_device(d->plan, i, &device) == VT_OK; i++)
        draw_lane(d, &device, i, phase);
}

static void draw_precisions(drawing *d)
{
    vt_plan_unit_info unit;
    text(d, MARGIN, d->y + 12, "plain", "precision");
    for (unsigned u = 0; vt_plan_get_unit(d->plan, u, &unit) == VT_OK; u++)
        if (u > 0)
            rect(d, unit_x(d, u), d->y, d->column * 0.88, 14, precision_colours[unit.precision]);
    d->y += LINE + 14;
    for (unsigned p = 0; p < VT_PRECISION_COUNT; p++) {
        rect(d, MARGIN + LABEL + 80 * p, d->y - 10, 12, 12, precision_colours[p]);
        text(d, MARGIN + LABEL + 80 * p + 18, d->y, "small", vt_precision_name(p));
    }
    text(d, MARGIN + LABEL + 260, d->y, "small",
         "full height: the whole unit; less: that part of its shards");
    d->y += LINE;
}

static void draw_memory_of(drawing *d, const vt_plan_device_info *device, unsigned index,
                           double scale)
{
    char line[200];
    double x = MARGIN + LABEL;
    const struct {
        uint64_t bytes;
        double opacity;
    } parts[] = {{device->weight_bytes, 1}, {device->kv_bytes, 0.6}, {device->scratch_bytes, 0.3}};
    rect(d, MARGIN, d->y + 2, 12, 12, device_colours[index]);
    name_text(d, MARGIN + 18, d->y + 12, device->name);
    rect(d, x, d->y, (double)device->budget_bytes * scale, 16, "#f1f3f5");
    for (unsigned i = 0; i < 3; i++) {
        double width = (double)parts[i].bytes * scale;
        fprintf(d->out,
                "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"16\" fill=\"%s\" "
                "fill-opacity=\"%.1f\"/>\n",
                x, d->y, width, device_colours[index], parts[i].opacity);
        x += width;
    }
    bool small = device->budget_bytes < 1 << 30;
    snprintf(line, sizeof line, "%.1f of %.1f %s%s",
             (double)device->memory_bytes / (small ? 0x1p20 : 0x1p30),
             (double)device->budget_bytes / (small ? 0x1p20 : 0x1p30), small ? "MiB" : "GiB",
             device->shortfall_bytes ? ": too little" : device->is_used ? "" : ", left out");
    text(d, WIDTH - MARGIN - 230, d->y + 12, "small", line);
    d->y += LANE;
}

static void draw_memory(drawing *d)
{
    vt_plan_device_info device;
    uint64_t most = 1;
    for (unsigned i = 0; vt_plan_get_device(d->plan, i, &device) == VT_OK; i++) {
        if (device.budget_bytes > most) most = device.budget_bytes;
        if (device.memory_bytes > most) most = device.memory_bytes;
    }
    text(d, MARGIN, d->y += LINE, "title", "memory: weights, KV cache, scratch");
    d->y += LINE / 2;
    for (unsigned i = 0; vt_plan_get_device(d->plan, i, &device) == VT_OK; i++)
        draw_memory_of(d, &device, i, (CHART - 250) / (double)most);
    d->y += MARGIN;
}

static void draw(drawing *d)
{
    draw_head(d);
    draw_phase(d, VT_PHASE_DECODE);
    draw_phase(d, VT_PHASE_PREFILL);
    draw_precisions(d);
    draw_memory(d);
}

/* What is drawn says how high the drawing is. */
static char *frame(const char *body, double height)
{
    char *svg = NULL;
    size_t length;
    FILE *out = open_memstream(&svg, &length);
    if (!out) return NULL;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" fill=\"#212529\">\n"
            "<style>.title{font-size:15px;font-weight:bold}.plain{font-size:13px}"
            ".small{font-size:11px;fill:#495057}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
            WIDTH, height, WIDTH, height, body);
    if (fclose(out) == 0) return svg;
    free(svg);
    return NULL;
}

char *vti_planning_svg(const vt_plan *plan)
{
    char *body = NULL, *svg = NULL;
    size_t length;
    drawing d = {.out = open_memstream(&body, &length), .plan = plan, .y = MARGIN / 2};
    if (!d.out) return NULL;
    vt_plan_get_info(plan, &d.info);
    d.column = (double)CHART / d.info.unit_count;
    if (d.column > COLUMN_MAX) d.column = COLUMN_MAX;
    draw(&d);
    if (fclose(d.out) == 0) svg = frame(body, d.y);
    free(body);
    return svg;
}
