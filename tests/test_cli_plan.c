/* voltron-run plan: the map, the options, the files it writes, the exit codes. */
#include "cli_support.h"
#include "planning_support.h"
#include "pty_support.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Clusters of the test: $DIR/NAME.json. */
static int set_up(void **state)
{
    static const struct {
        const char *name;
        unsigned memory[3];
    } clusters[] = {{"roomy", {64, 64, 64}}, {"tight", {8, 4, 4}}, {"small", {5, 4, 3}},
                    {"pruned", {3, 3, 3}}, {"none", {2, 2, 2}}};
    if (test_cli_set_up(state) != 0) return -1;
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        char path[128];
        const unsigned *m = clusters[i].memory;
        snprintf(path, sizeof path, "%s/%s.json", test_cli_folder(), clusters[i].name);
        FILE *file = fopen(path, "w");
        if (!file || fputs(planning_cluster(m[0], m[1], m[2]), file) < 0 || fclose(file) != 0)
            return -1;
    }
    return 0;
}

/* --- the map ---------------------------------------------------------------------------------- */

/* Characters of a line, and how many of them stand behind column `from`. */
static unsigned characters(const char *line, const char *end)
{
    unsigned n = 0;
    for (; line < end; line++) n += ((unsigned char)*line & 0xC0) != 0x80;
    return n;
}

/* The line that begins with `label`, from `text` on. */
static const char *find_line(const char *text, const char *label, const char **end)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, label, strlen(label)) != 0) continue;
        *end = strchr(line, '\n');
        return line;
    }
    fail_msg("no line \"%s\" in:\n%s", label, text);
    return NULL;
}

/* 14 units: embedding, 6 layers, output. Every unit is whole somewhere or shared. */
static void the_map_has_a_column_for_each_unit(void **state)
{
    (void)state;
    static const char *const rows[] = {"  tablet ", "  phone ", "  board ", "precision "};
    char *out = test_cli_output("RUN plan --cluster $DIR/tight.json --precision I8", 0);
    const char *end = NULL;
    for (int i = 0; i < 4; i++) {
        const char *line = find_line(out, rows[i], &end);
        assert_int_equal(characters(line, end), 18 + 14);
    }
    const char *line = find_line(out, "precision ", &end);
    assert_non_null(strstr(line, " 8888888888888\n"));
    line = find_line(out, "decode", &end);
    assert_non_null(strstr(line, "E0       4   H\n"));
    assert_non_null(strstr(out, "TPOT"));
    assert_null(strchr(out, '\033')); /* no colours in a file */
    free(out);
}

static void one_device_with_everything_has_full_blocks(void **state)
{
    (void)state;
    test_cli_expect("RUN plan --cluster $DIR/roomy.json --planner single", 0,
                    "  tablet          ██████████████\n"
                    "  phone           ··············\n"
                    "  board           ··············\n"
                    "precision          FFFFFFFFFFFFF\n", NULL);
    test_cli_expect("RUN plan --cluster $DIR/roomy.json --planner even-tp", 0, "▄", NULL);
}

/* Room for four layers: embedding and eight units, then the rest. */
static void the_map_is_wrapped(void **state)
{
    (void)state;
    const char *end = NULL;
    char *out = test_cli_output("COLUMNS=20 RUN plan --cluster $DIR/tight.json", 0);
    const char *line = find_line(out, "  tablet ", &end);
    assert_int_equal(characters(line, end), 18 + 9);
    line = find_line(end + 1, "  tablet ", &end);
    assert_int_equal(characters(line, end), 18 + 5);
    assert_non_null(strstr(out, "4   H\n"));
    free(out);
}

static void expect_lines_within(const char *command, unsigned columns)
{
    char *out = test_cli_output(command, 0);
    unsigned lines = 0;
    for (const char *line = out, *end; (end = strchr(line, '\n')); line = end + 1, lines++)
        if (characters(line, end) > columns)
            fail_msg("%s: over %u columns: %.*s", command, columns, (int)(end - line), line);
    assert_true(lines > 5);
    free(out);
}

static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    static const char *const options[] = {"", "--precision I4", "--planner even-tp --ttft 0.001",
                                          "--planner single"};
    for (unsigned columns = 60; columns <= 83; columns += columns == 60 ? 20 : 3)
        for (unsigned i = 0; i < 4; i++) {
            char command[256];
            snprintf(command, sizeof command,
                     "COLUMNS=%u RUN plan --cluster docs/clusters/office.json %s", columns,
                     options[i]);
            expect_lines_within(command, columns);
        }
    expect_lines_within("COLUMNS=60 RUN plan --cluster $DIR/pruned.json", 60);
    expect_lines_within("COLUMNS=80 RUN plan --cluster $DIR/none.json || true", 80);
}

static void no_help_is_wider_than_a_terminal(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "run",      "worker", "inspect", "pack", "verify", "calibrate", "importance",
        "tokenize", "logits", "ppl",     "plan", "profile"};
    char command[64];
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(command, sizeof command, "RUN %s --help", commands[i]);
        expect_lines_within(command, 80);
    }
    char *out = test_cli_output("RUN --help", 0); /* names every command */
    unsigned named = 0;
    for (const char *at = out; (at = strstr(at, "\n  voltron-run ")); at++) named++;
    assert_int_equal(named, sizeof commands / sizeof *commands);
    free(out);
    expect_lines_within("RUN --help", 80);
}

static void what_is_not_is_not_said(void **state)
{
    (void)state;
    char *out = test_cli_output("RUN plan --cluster $DIR/none.json", 6);
    assert_null(strstr(out, "met"));
    free(out);
    out = test_cli_output("RUN plan --cluster $DIR/roomy.json --planner single", 0);
    assert_null(strstr(out, "on the wire"));
    assert_non_null(strstr(out, ": met\n"));
    free(out);
}

static void a_terminal_has_colours(void **state)
{
    (void)state;
    char arguments[256];
    snprintf(arguments, sizeof arguments, "plan --cluster %s/tight.json", test_cli_folder());
    test_pty *pty = test_pty_start(arguments);
    test_pty_expect(pty, "  tablet          \033[34m█");
    test_pty_expect(pty, "\033[0m");
    test_pty_expect(pty, "TPOT");
    assert_int_equal(test_pty_finish(pty), 0);
}

/* --- options ---------------------------------------------------------------------------------- */

static void every_planner_and_precision_works(void **state)
{
    (void)state;
    char line[256];
    for (unsigned i = 0; vt_plan_planners()[i]; i++) {
        snprintf(line, sizeof line, "RUN plan --cluster $DIR/roomy.json --planner %s",
                 vt_plan_planners()[i]);
        test_cli_expect(line, 0, "TTFT", NULL);
    }
    test_cli_expect("RUN plan --cluster $DIR/roomy.json --precision F16", 0, "FFFFFFFFFFFFF", NULL);
    test_cli_expect("RUN plan --cluster $DIR/roomy.json --precision I4", 0, "4444444444444", NULL);
    test_cli_expect("RUN plan --cluster $DIR/small.json --allocate uniform", 0, "4444444444444",
                    NULL);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --allocate enumerate", 0, "8", NULL);
    test_cli_expect("RUN plan --cluster $DIR/roomy.json --wire i8 --kv q8 -c 512 --prompt 100 "
                    "--ttft 3 --tpot 80", 0, "asked for 80.0 ms", NULL);
}

static void comparing_has_a_row_for_each_planner(void **state)
{
    (void)state;
    char *out = test_cli_output("RUN plan --cluster $DIR/tight.json --compare", 0);
    for (unsigned i = 0; vt_plan_planners()[i]; i++) {
        char row[32];
        const char *end = NULL;
        snprintf(row, sizeof row, "%s ", vt_plan_planners()[i]);
        find_line(out, row, &end);
    }
    free(out);
    /* Each at precisions that fit with it: alone, the tablet has room for lower ones only. */
    test_cli_expect("RUN plan --cluster $DIR/tight.json --compare | grep '^single .* 1    0 '", 0,
                    "yes", NULL);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --compare --precision F16 | grep '^single'",
                    0, "does not fit: ", NULL);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --compare --json", 2, NULL,
                    "--compare only prints a table");
}

static void what_does_not_fit_says_what_is_missing(void **state)
{
    (void)state;
    test_cli_expect("RUN plan --cluster $DIR/small.json --precision I8", 6, " lacks ", NULL);
    test_cli_expect("RUN plan --cluster $DIR/small.json --precision I8", 6,
                    "All in I4 it would fit", NULL);
    test_cli_expect("RUN plan --cluster $DIR/pruned.json", 0,
                    "Not even the lowest precision fits: ", NULL);
    test_cli_expect("RUN plan --cluster $DIR/none.json", 6, "more memory on ", NULL);
    test_cli_expect("RUN plan --cluster $DIR/none.json --json", 6, "\"feasible\": false", NULL);
}

/* Only what was packed is planned with. */
static void a_store_is_planned_at_what_it_has(void **state)
{
    (void)state;
    test_cli_expect("RUN pack src/assets/stories-4m-f16.gguf -o $DIR/m.vts --precision F16,I4", 0,
                    NULL, NULL);
    test_cli_expect("RUN pack src/assets/stories-4m-f16.gguf -o $DIR/8.vts --precision I8 && "
                    "RUN plan -m $DIR/8.vts --cluster $DIR/roomy.json && rm $DIR/8.vts", 0,
                    "8: as in the file (Q8_0), which has nothing higher there.", NULL);
    char *out = test_cli_output("RUN plan -m $DIR/m.vts --cluster $DIR/tight.json", 0);
    const char *end = NULL, *row = find_line(out, "precision ", &end);
    assert_null(memchr(row, '8', (size_t)(end - row)));
    assert_non_null(memchr(row, '4', (size_t)(end - row)));
    free(out);
    test_cli_expect("RUN plan -m $DIR/m.vts --cluster $DIR/tight.json --precision I8", 2, NULL,
                    "m.vts has no weights at precision I8, only at F16 I4");
    test_cli_expect("rm $DIR/m.vts", 0, NULL, NULL);
}

static void wrong_usage(void **state)
{
    (void)state;
    test_cli_expect("RUN plan", 2, NULL, "plan needs --cluster FILE");
    test_cli_expect("RUN plan --cluster $DIR/gone.json", 3, NULL, "gone.json");
    test_cli_expect("RUN plan --cluster $DIR", 3, NULL, "cannot read");
    test_cli_expect("echo '{\"devices\": 1}' >$DIR/bad.json; RUN plan --cluster $DIR/bad.json", 4,
                    NULL, "bad.json, the cluster: \"devices\" must be a list");
    test_cli_expect("RUN plan --cluster $DIR/tight.json --planner best", 2, NULL,
                    "there is no planner \"best\"");
    test_cli_expect("RUN plan --cluster $DIR/tight.json -m $DIR/tight.json", 4, NULL, "tight.json");
}

/* --- files ------------------------------------------------------------------------------------ */

static double tpot_of(const char *line, int code)
{
    char *out = test_cli_output(line, code);
    json_t *root = json_loads(out, 0, NULL);
    if (!root) fail_msg("%s: no JSON:\n%s", line, out);
    double tpot_s = json_real_value(json_object_get(root, "tpot_s"));
    json_decref(root);
    free(out);
    return tpot_s;
}

static void a_saved_plan_is_the_same_plan(void **state)
{
    (void)state;
    double before = tpot_of("RUN plan --cluster $DIR/tight.json --json -o $DIR/plan.json", 0);
    double after =
        tpot_of("RUN plan --cluster $DIR/tight.json --json --plan $DIR/plan.json", 0);
    assert_true(before > 0 && before == after);
    test_cli_expect("RUN plan --cluster $DIR/none.json --plan $DIR/plan.json", 6, " lacks ", NULL);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --plan $DIR/tight.json", 4, NULL,
                    "the plan given: ");
    /* Of a place that the plan cannot have, the unit is named. */
    test_cli_expect("sed 's/\"from\": 0/\"from\": 1/' $DIR/plan.json >$DIR/wrong.json; "
                    "RUN plan --cluster $DIR/tight.json --plan $DIR/wrong.json", 2, NULL,
                    "the plan given: the plan's unit 0: ");
    test_cli_expect("RUN plan --cluster $DIR/tight.json --plan /dev/zero", 3, NULL,
                    "/dev/zero has more than 16.0 MiB");
    /* A full disk costs neither what was there nor leaves something behind. */
    test_cli_expect("cp $DIR/plan.json $DIR/before.json; (ulimit -f 1; "
                    "RUN plan --cluster $DIR/tight.json -o $DIR/plan.json 2>&1 >/dev/null | cat >&2) "
                    "; cmp $DIR/plan.json $DIR/before.json", 0, NULL, "cannot write");
    test_cli_expect("! ls $DIR/*.tmp 2>/dev/null", 0, NULL, NULL);
    test_cli_expect("ln -s plan.json $DIR/link.json && "
                    "RUN plan --cluster $DIR/tight.json -o $DIR/link.json && test -L $DIR/link.json",
                    0, NULL, NULL);
    test_cli_expect("rm $DIR/plan.json $DIR/wrong.json $DIR/before.json $DIR/link.json", 0, NULL,
                    NULL);
}

static void drawings_are_well_formed(void **state)
{
    (void)state;
    char *svg = test_cli_output("RUN plan --cluster $DIR/tight.json --svg $DIR/p.svg >/dev/null && "
                                "cat $DIR/p.svg", 0);
    const char *wrong = planning_check_xml(svg);
    if (wrong) fail_msg("%s", wrong);
    assert_non_null(strstr(svg, "tablet"));
    free(svg);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --svg $DIR/p.svg", 0, NULL, NULL);
    test_cli_expect("RUN plan --cluster $DIR/tight.json --svg $DIR/tight.json", 2, NULL,
                    "tight.json exists and is something else");
    test_cli_expect("RUN profile --class pixel-5 -o $DIR/off.json && "
                    "sed -i 's/\"accuracy\": 0.0/\"accuracy\": 0.25/' $DIR/off.json && "
                    "sed 's/\"compute\": *{[^}]*}/\"profile\": \"off.json\"/' $DIR/tight.json "
                    ">$DIR/off-plan.json && RUN plan --cluster $DIR/off-plan.json", 0, NULL,
                    "predictions of off.json, the profile of ");
    test_cli_expect("RUN profile --class pixel-5 -o $DIR/pixel && "
                    "RUN plan --cluster $DIR/tight.json -o $DIR/pixel", 2, NULL,
                    "pixel exists and is something else");
    test_cli_expect("RUN plan --cluster $DIR/tight.json --svg $DIR/gone/p.svg", 3, NULL, "gone");
    test_cli_expect("RUN plan --cluster $DIR/tight.json --svg /dev/full", 3, NULL, "/dev/full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_map_has_a_column_for_each_unit),
        cmocka_unit_test(one_device_with_everything_has_full_blocks),
        cmocka_unit_test(the_map_is_wrapped),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(no_help_is_wider_than_a_terminal),
        cmocka_unit_test(what_is_not_is_not_said),
        cmocka_unit_test(a_terminal_has_colours),
        cmocka_unit_test(every_planner_and_precision_works),
        cmocka_unit_test(comparing_has_a_row_for_each_planner),
        cmocka_unit_test(what_does_not_fit_says_what_is_missing),
        cmocka_unit_test(a_store_is_planned_at_what_it_has),
        cmocka_unit_test(wrong_usage),
        cmocka_unit_test(a_saved_plan_is_the_same_plan),
        cmocka_unit_test(drawings_are_well_formed),
    };
    return cmocka_run_group_tests(tests, set_up, test_cli_tear_down);
}
