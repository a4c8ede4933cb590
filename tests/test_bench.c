/* voltron-bench run, and what commands say about wrong options. */
#include "bench_support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double number_in(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

static void check_series(const json_t *place, const char *key)
{
    const json_t *series = json_object_get(place, key);
    double low = number_in(series, "min"), high = number_in(series, "max");
    double median = number_in(series, "median");
    assert_true(low > 0 && low <= median && median <= high);
}

/* Runs, checks what every report must have, returns the logits' hash. */
static char *check_report(const char *options, size_t places, const double *contexts)
{
    char line[512];
    snprintf(line, sizeof line, "BENCH run -m DIR/run.gguf -n 2 -r 1 --json %s", options);
    bench_result r = bench_run(line);
    if (r.code != 0) fail_msg("%s: exit code %d\n%s", line, r.code, r.text);
    json_t *report = json_loads(r.text, 0, NULL);
    assert_non_null(report);
    const json_t *results = json_object_get(report, "results");
    assert_int_equal(json_array_size(results), places);
    double weights = number_in(report, "weight_bytes_per_token");
    for (size_t i = 0; i < places; i++) {
        const json_t *place = json_array_get(results, i);
        double rate = number_in(place, "gb_s");
        double bandwidth = number_in(place, "bandwidth_gb_s");
        double decode = number_in(json_object_get(place, "decode_tok_s"), "median");
        /* Keys and values of one layer: 2 × 2 × 64 halves per token. */
        double bytes = weights + 512 * (contexts[i] + 1.5);
        if (strstr(options, "q8")) bytes = weights + 272 * (contexts[i] + 1.5);
        assert_true(bandwidth > 0);
        assert_true(number_in(place, "context") == contexts[i]);
        assert_true(fabs(rate / (decode * bytes * 1e-9) - 1) < 1e-3);
        assert_true(fabs(number_in(place, "percent") / (100 * rate / bandwidth) - 1) < 1e-3);
        check_series(place, "prefill_tok_s");
        check_series(place, "decode_tok_s");
    }
    char *hash = strdup(json_string_value(json_object_get(report, "logits_hash")));
    json_decref(report);
    free(r.text);
    return hash;
}

static void run_reports_what_it_measured(void **state)
{
    (void)state;
    const char *path =
        bench_synth("run.gguf", "--shape qwen2.5-0.5b --layers 1 --vocab 512 --type q4_0");
    char *hash = check_report("-p 40", 1, (double[]){40});
    char *again = check_report("-p 40 -t 1", 1, (double[]){40});
    char *other = check_report("-p 40 --seed 2", 1, (double[]){40});
    char *small = check_report("-p 1 --kv q8", 1, (double[]){1});
    char *far = check_report("--batch 16 --context-frontiers 8,9,40", 3, (double[]){8, 9, 40});
    assert_string_equal(hash, again);
    assert_string_not_equal(hash, other);
    assert_string_not_equal(hash, small);
    bench_expect("BENCH run -m DIR/run.gguf -p 5 -n 1 -r 5", 0, "GB/s");
    bench_expect("BENCH run -m DIR/run.gguf -p 5 -n 1 -r 1 --csv | tail -1", 0, "/run.gguf\",");
    free(hash);
    free(again);
    free(other);
    free(small);
    free(far);
    unlink(path);
}

static void run_refuses(void **state)
{
    (void)state;
    bench_expect("BENCH run --help", 0, "--context-frontiers");
    bench_expect("BENCH run", 2, "-m FILE");
    bench_expect("BENCH run -m /nonexistent.gguf", 3, "/nonexistent.gguf");
    bench_expect("BENCH run -m Makefile", 4, "Makefile");
    bench_expect("BENCH run -m x --kv f8", 2, "f16 f32 q8");
    bench_expect("BENCH run -m x -r 0", 2, "-r");
    bench_expect("BENCH run -m x --context-frontiers 5,3", 2, "5,3");
    bench_expect("BENCH run -m x --context-frontiers 0", 2, "ascending");
    bench_expect("BENCH run -m x --context-frontiers 5,", 2, "ascending");
    bench_expect("BENCH run -m x --context-frontiers x", 2, "ascending");
}

/* The embedded model has a token for every letter and none for runs of them. */
static void tokenize_measures(void **state)
{
    (void)state;
    static const char command[] = "BENCH tokenize -m src/assets/stories-4m-f16.gguf -k 4 -r 2 --csv";
    char line[256];
    bench_expect(command, 0, "one letter,4096,4096,");
    bench_expect(command, 0, "random bytes,4096,");
    snprintf(line, sizeof line, "%s --text README.md --pre gpt-2", command);
    bench_expect(line, 0, "the file,4096,");
    bench_expect("BENCH tokenize --help", 0, "growth");
    bench_expect("BENCH tokenize", 2, "needs -m");
    bench_expect("BENCH tokenize -m none.gguf", 3, "none.gguf");
    snprintf(line, sizeof line, "%s --text none.txt", command);
    bench_expect(line, 3, "none.txt");
    snprintf(line, sizeof line, "%s --pre none", command);
    bench_expect(line, 5, "\"none\" is not known");
}

static void link_measures(void **state)
{
    (void)state;
    bench_expect("BENCH link", 0, "| probe, at most 1 MiB |");
    bench_expect("BENCH link --help", 0, "plain sockets");
    bench_expect("BENCH link now", 2, "voltron-bench link");
}

static void wrong_commands(void **state)
{
    (void)state;
    bench_expect("BENCH", 2, "COMMAND");
    bench_expect("BENCH fly", 2, "fly");
    bench_expect("BENCH --help", 0, "synth");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_reports_what_it_measured),
        cmocka_unit_test(run_refuses),
        cmocka_unit_test(tokenize_measures),
        cmocka_unit_test(link_measures),
        cmocka_unit_test(wrong_commands),
    };
    return cmocka_run_group_tests(tests, bench_make_folder, bench_remove_folder);
}
