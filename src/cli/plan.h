/* plan.h: how voltron-run plan shows a plan. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli.h"

/* Of standard output. */
typedef struct cli_canvas {
    int columns;
    bool colour;
} cli_canvas;

cli_canvas cli_canvas_of_output(void);

/* The colour of a device's rows, and back; "" without colours. */
const char *cli_device_colour(const cli_canvas *canvas, size_t device);
const char *cli_canvas_plain(const cli_canvas *canvas);

/* Exactly so many columns: cut, or filled with spaces. */
void cli_print_name(const char *text, int columns);

/* Devices × units, both phases. */
void cli_print_plan_map(const vt_plan *plan, const cli_canvas *canvas);

/* Times, what they are made of, memory, remarks. */
void cli_print_plan(const vt_plan *plan, const cli_canvas *canvas);

/* "38.2 ms", "2.31 s" into a static ring of buffers. */
const char *cli_seconds(double seconds);

#endif
