/* voltron-run as a user or a script meets it: output, messages, exit codes. */
#include "cli_support.h"
#include "support.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void help(void **state)
{
    (void)state;
    static const char *const commands[] = {"run",      "worker", "inspect",
                                           "tokenize", "logits", "ppl", "calibrate"};
    test_cli_expect("RUN --help", 0, "voltron-run", NULL);
    test_cli_expect("RUN", 2, NULL, "Usage");
    test_cli_expect("RUN --version", 0, "voltron-run 0.", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "RUN %s --help", commands[i]);
        test_cli_expect(line, 0, "Usage: voltron-run", NULL);
    }
}

static void wrong_usage(void **state)
{
    (void)state;
    test_cli_expect("RUN fly", 2, NULL, "unknown command \"fly\"");
    test_cli_expect("RUN 'Once upon'", 2, NULL, "-p \"Once upon\"");
    test_cli_expect("RUN -p x --split 3,3", 2, NULL, "needs devices");
    test_cli_expect("RUN -p x --temprature 1", 2, NULL, "did you mean --temperature?");
    test_cli_expect("RUN -p x --top-k many", 2, NULL, "--top-k: \"many\"");
    test_cli_expect("RUN -p x --top-k -3", 2, NULL, "--top-k: \"-3\"");
    test_cli_expect("RUN -p x --top-p 1.5", 2, NULL, "--top-p: \"1.5\"");
    test_cli_expect("RUN -p x --temperature nan", 2, NULL, "--temperature");
    test_cli_expect("RUN -p x --typical 0", 2, NULL, "--typical: \"0\"");
    test_cli_expect("RUN -p x --frequency-penalty 200", 2, NULL, "from -100 to 100");
    test_cli_expect("RUN -p x --logit-bias 7", 2, NULL, "--logit-bias: \"7\"");
    test_cli_expect("RUN -p x --logit-bias 7:1,8:", 2, NULL, "--logit-bias: \"7:1,8:\"");
    test_cli_expect("RUN -p x --logit-bias 9999:1", 2, NULL, "9999 does not exist, expected 0 to 2047");
    test_cli_expect("RUN -p x --stop ''", 2, NULL, "--stop: \"\"");
    test_cli_expect("RUN -p x --logprobs 3", 2, NULL, "needs --json");
    test_cli_expect("RUN -p x --json --logprobs 101", 2, NULL, "from 1 to 100");
    test_cli_expect("RUN -p x --kv f8", 2, NULL, "f16, f32 or q8");
    test_cli_expect("RUN -p x -n", 2, NULL, "--tokens needs a value");
    test_cli_expect("RUN -p x -f y", 2, NULL, "exclude each other");
    test_cli_expect("RUN worker --memory lots", 2, NULL, "--memory: \"lots\"");
    test_cli_expect("RUN worker --listen nowhere", 2, NULL, "nowhere");
    test_cli_expect("RUN inspect a b", 2, NULL, "unexpected argument \"b\"");
    test_cli_expect("RUN -p x --local 2 --devices 127.0.0.1:1", 2, NULL, "exclude each other");
    test_cli_expect("RUN -p x --devices 127.0.0.1:1,,", 2, NULL, "--devices");
    test_cli_expect("RUN -p x --split 3,x", 2, NULL, "--split");
    test_cli_expect("RUN -p x --local 2 --split 3,2", 2, NULL, "5 layers");
    test_cli_expect("RUN logits --ids x", 2, NULL, "-o");
}

static void bad_files(void **state)
{
    (void)state;
    test_cli_expect("RUN -m /nonexistent.gguf -p x", 3, NULL, "/nonexistent.gguf");
    test_cli_expect("RUN inspect README.md", 4, NULL, "README.md");
    test_cli_expect("RUN -m Makefile -p x", 4, NULL, "Makefile");
    test_cli_expect("RUN -m /tmp -p x", 3, NULL, "/tmp");
    test_cli_expect("echo '[1, x]' | RUN logits --ids - -o /tmp/none", 4, NULL, "standard input");
    test_cli_expect("echo '[1, 99999]' | RUN logits --ids - -o /tmp/none", 2, NULL, "99999");
    test_cli_expect("echo '{}' | RUN logits --ids - -o /tmp/none", 4, NULL, "token id");
    test_cli_expect("echo '[1]' | RUN logits --ids - -o /nonexistent/x", 3, NULL, "/nonexistent/x");
    test_cli_expect("echo 1 2 99999 | RUN tokenize --decode", 2, NULL, "99999");
    test_cli_expect("RUN ppl --text /nonexistent", 3, NULL, "/nonexistent");
    test_cli_expect("RUN -p x --key /nonexistent --devices 127.0.0.1:1", 2, NULL, "/nonexistent");
}

/* What could not be written is an error; nothing that is not ours is touched. */
static void output_files(void **state)
{
    (void)state;
    test_cli_expect("RUN --help >/dev/full", 3, NULL, "standard output");
    test_cli_expect("RUN tokenize -p x >/dev/full", 3, NULL, "standard output");
    test_cli_expect("RUN -p x -n 2 --json >/dev/full", 3, NULL, "standard output");
    test_cli_expect("RUN -p x -n 2 --local 2 <&-", 0, NULL, NULL);
    test_cli_expect("echo '[1,2]' >$DIR/ids; RUN logits --ids $DIR/ids -o $DIR/made && "
           "RUN logits --ids $DIR/ids -o /dev/null && test -c /dev/null && test -s $DIR/made",
           0, NULL, NULL);
    /* A failure leaves an earlier result as it was. */
    test_cli_expect("cp $DIR/made $DIR/copy; echo '[1,99999]' >$DIR/ids; "
           "RUN logits --ids $DIR/ids -o $DIR/made; code=$?;"
           " cmp $DIR/made $DIR/copy && test ! -e $DIR/made.part && exit $code",
           2, NULL, "99999");
    test_cli_expect("ulimit -n 6; RUN worker --listen 127.0.0.1:0", 8, NULL, "ulimit -n");
    test_cli_expect("mkfifo $DIR/fifo; RUN -p x --devices 127.0.0.1:1 --key $DIR/fifo", 2, NULL,
                    "not a file");
    test_cli_expect("printf '1 2\\0 3' | RUN tokenize --decode", 4, NULL, "NUL");
}

static void story(void **state)
{
    (void)state;
    test_result a = test_cli("RUN -p 'Once upon a time' -n 30 --seed 5");
    test_result b = test_cli("RUN -p 'Once upon a time' -n 30 --seed 5");
    test_result c = test_cli("RUN -p 'Once upon a time' -n 30 --seed 6");
    assert_int_equal(a.code, 0);
    assert_memory_equal(a.out, "Once upon a time", 16);
    assert_true(strlen(a.out) > 60);
    assert_string_equal(a.out, b.out);
    assert_string_not_equal(a.out, c.out);
    assert_non_null(strstr(a.err, "tok/s"));
    test_result_free(&a);
    test_result_free(&b);
    test_result_free(&c);
    test_cli_expect("echo 'Once upon' | RUN -n 1 -t 0", 0, "Once upon", NULL);
    test_cli_expect("RUN -p '' -n 5 -t 0", 0, NULL, "answer 5 tokens");
    test_cli_expect("RUN -p x -n 1 -c 2000", 0, NULL, "trained for");
}

static void local_cluster(void **state)
{
    (void)state;
    test_result one = test_cli("RUN -p 'The little fox' -n 40 --temperature 0");
    test_result three = test_cli("RUN --local 3 -p 'The little fox' -n 40 --temperature 0");
    assert_int_equal(three.code, 0);
    assert_string_equal(one.out, three.out);
    assert_non_null(strstr(three.err, "this one (main)"));
    assert_non_null(strstr(three.err, "4 … 5"));
    test_result_free(&one);
    test_result_free(&three);
}

/* What a run prints as its text. */
static void expect_text(const char *options, const char *before, const char *word, bool found)
{
    char line[700];
    snprintf(line, sizeof line, "RUN -p 'Once upon a time' --no-echo -n 40 -t 0 %s", options);
    test_result r = test_cli(line);
    if (r.code != 0) fail_msg("%s: %s", line, r.err);
    if (before) assert_string_equal(r.out, before);
    if (word && (strstr(r.out, word) != NULL) != found)
        fail_msg("%s: \"%s\" in:\n%s", line, word, r.out);
    test_result_free(&r);
}

static void sampling_options(void **state)
{
    (void)state;
    char text[512], line[600];
    test_result r = test_cli("RUN -p 'Once upon a time' --no-echo -n 40 -t 0");
    snprintf(text, sizeof text, "%s", r.out);
    test_result_free(&r);
    /* Its fourth word, from the middle of it on, as a stop string. */
    char *word = text;
    for (int i = 0; i < 4; i++) word = strchr(word + 1, ' ');
    assert_non_null(word);
    snprintf(line, sizeof line, "--stop 'not there' --stop '%.3s'", word + 2);
    strcpy(word + 2, "\n");
    expect_text(line, text, NULL, false);
    expect_text("", NULL, ",", true);
    expect_text("--logit-bias 44:-inf", NULL, ",", false); /* 44 is the comma */
    expect_text("--logit-bias 5:0,44:50", NULL, ",,,,,,,,", true);
    expect_text("--logit-bias 44:50 --presence-penalty 60 --repeat-last 2", NULL, ",,", false);
}

static void json_log_probabilities(void **state)
{
    (void)state;
    test_result r = test_cli("RUN -p 'Once upon a time' -n 6 -t 0 --json --logprobs 3 --stop zzzz");
    json_t *object = json_loads(r.out, 0, NULL), *list = json_object_get(object, "logprobs");
    char text[200] = "";
    assert_int_equal(json_array_size(list), 6);
    for (size_t i = 0; i < 6; i++) {
        json_t *item = json_array_get(list, i), *top = json_object_get(item, "top");
        assert_int_equal(json_array_size(top), 3);
        double logprob = json_real_value(json_object_get(item, "logprob"));
        json_t *best = json_array_get(top, 0);
        assert_true(logprob < 0 && logprob == json_real_value(json_object_get(best, "logprob")));
        strcat(text, json_string_value(json_object_get(item, "token")));
    }
    assert_string_equal(text, json_string_value(json_object_get(object, "text")));
    json_decref(object);
    test_result_free(&r);
}

static void json_output(void **state)
{
    (void)state;
    test_result r = test_cli("RUN --local 2 -p 'The little fox' -n 10 --temperature 0 --json");
    json_t *object = json_loads(r.out, 0, NULL);
    assert_true(json_is_object(object));
    assert_int_equal(json_array_size(json_object_get(object, "devices")), 2);
    assert_true(strlen(json_string_value(json_object_get(object, "text"))) > 10);
    json_decref(object);
    test_result_free(&r);
    r = test_cli("RUN inspect src/assets/stories-4m-f16.gguf --json");
    object = json_loads(r.out, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(object, "tensors")), 74);
    json_t *entries = json_object_get(object, "metadata");
    assert_int_equal(json_array_size(entries), 25);
    json_t *first = json_object_get(json_array_get(entries, 0), "value");
    assert_string_equal(json_string_value(first), "qwen2");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(entries, 4), "value")),
                     1024);
    json_decref(object);
    test_result_free(&r);
}

static void inspect(void **state)
{
    (void)state;
    test_cli_expect("RUN inspect src/assets/stories-4m-f16.gguf", 0, "qwen2.attention.head_count_kv", NULL);
    test_cli_expect("RUN inspect src/assets/stories-4m-f16.gguf", 0, "4.07 million parameters", NULL);
}

static void tokenize_both_ways(void **state)
{
    (void)state;
    test_cli_expect("RUN tokenize -p 'Once upon a time' | RUN tokenize --decode", 0, "Once upon a time",
           NULL);
    test_cli_expect("printf 'line one\\nl\\303\\266ve' | RUN tokenize | RUN tokenize --decode", 0,
           "line one\nlöve", NULL);
    test_cli_expect("RUN tokenize -p '<|endoftext|>' --special", 0, "[2045]", NULL);
    test_cli_expect("RUN tokenize -p 'x' --bos --pieces", 0, "<|endoftext|>", NULL);
    test_result r = test_cli("RUN tokenize -p '<|endoftext|>'");
    assert_null(strstr(r.out, "2045")); /* user text makes no control token */
    test_result_free(&r);
}

/* voltron-run logits writes what the library computes; here against the golden copy. */
static void logits_file(void **state)
{
    (void)state;
    char line[512], path[256];
    snprintf(path, sizeof path, "%s/logits", test_cli_folder());
    for (int devices = 1; devices <= 3; devices += 2) {
        snprintf(line, sizeof line,
                 "RUN logits --ids tests/data/default-ids.json -o %s --kv f32 --local %d", path,
                 devices);
        test_cli_expect(line, 0, NULL, "16 x 2048 logits");
        size_t bytes, expected_bytes;
        float *got = (float *)(void *)test_read_file(path, &bytes);
        float *expected =
            (float *)(void *)test_read_file("tests/data/default.logits.f32", &expected_bytes);
        assert_int_equal(bytes, expected_bytes);
        for (size_t i = 0; i < bytes / sizeof *got; i++)
            assert_true(got[i] - expected[i] < 2e-4f && expected[i] - got[i] < 2e-4f);
        free(got);
        free(expected);
    }
}

static void perplexity(void **state)
{
    (void)state;
    const char *text = "Once upon a time there was a little girl. She liked to play.\\n"
                       "<|endoftext|>\\nThe dog was happy. The end.\\n";
    char line[512];
    snprintf(line, sizeof line, "printf '%s' | RUN ppl --text - --json", text);
    test_result r = test_cli(line);
    json_t *object = json_loads(r.out, 0, NULL);
    double value = json_number_value(json_object_get(object, "perplexity"));
    json_int_t tokens = json_integer_value(json_object_get(object, "tokens"));
    assert_true(value > 2 && value < 30);
    assert_true(tokens > 15 && tokens < 40);
    json_decref(object);
    test_result_free(&r);
    /* Windows: more tokens than the context holds. */
    snprintf(line, sizeof line, "printf '%s' | RUN ppl --text - --context 8", text);
    test_cli_expect(line, 0, "perplexity", NULL);
    test_cli_expect("printf '' | RUN ppl --text -", 4, NULL, "no token");
    test_cli_expect("echo a | RUN ppl --text - --context 1", 2, NULL, "at least 2 tokens");
    test_cli_expect("echo a b c | RUN ppl --text - --context 2", 0, "perplexity", NULL);
}

static void nobody_listens(void **state)
{
    (void)state;
    test_cli_expect("RUN -p x --devices 127.0.0.1:1", 8, NULL, "127.0.0.1:1");
    test_cli_expect("RUN -p x --devices 127.0.0.1:1", 8, NULL, "is the worker running?");
    test_cli_expect("RUN -p x --devices not-an-address", 2, NULL, "not-an-address");
}

/* A worker from the command line: serves two main devices, then ends by SIGTERM. */
static void worker_program(void **state)
{
    (void)state;
    test_cli_expect("RUN worker --listen 127.0.0.1:0 >$DIR/port 2>$DIR/log & w=$!;"
           "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do"
           "  grep -q listening $DIR/port && break; sleep 0.1; done;"
           "a=$(sed 's/listening on //' $DIR/port);"
           "RUN -p 'The fox' -n 5 -t 0 --no-echo --devices $a --split even &&"
           "RUN -p 'The fox' -n 5 -t 0 --no-echo --devices $a --split 1,5;"
           "code=$?; kill -TERM $w; wait $w || code=99; cat $DIR/log >&2; rm -f $DIR/port $DIR/log;"
           "exit $code",
           0, NULL, "layers 1..5 of 6");
}

/* Nobody says how layers are split: what is planned, kept and done again. */
static void planned_layers(void **state)
{
    (void)state;
    test_result r = test_cli(
        "for n in 1 2; do RUN worker --listen 127.0.0.1:0 --no-cache --memory $((n * 4))M "
        ">$DIR/port$n 2>/dev/null & echo $! >$DIR/pid$n; done; "
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do"
        "  grep -q listening $DIR/port1 && grep -q listening $DIR/port2 && break; sleep 0.1; done;"
        "a=$(sed 's/listening on //' $DIR/port1),$(sed 's/listening on //' $DIR/port2);"
        "X=\"-p Once -n 5 -t 0 --no-echo --memory 13M --devices $a\";"
        "RUN $X --save-plan $DIR/plan && RUN $X --plan $DIR/plan --json;"
        "code=$?; kill $(cat $DIR/pid1 $DIR/pid2); wait; rm $DIR/port? $DIR/pid? $DIR/plan; exit $code");
    if (r.code != 0) fail_msg("%s", r.err);
    assert_non_null(strstr(r.err, "left out: its memory"));
    const char *line = strchr(r.out, '{');
    json_t *object = line ? json_loads(line, 0, NULL) : NULL;
    json_t *devices = json_object_get(object, "devices");
    assert_int_equal(json_array_size(devices), 3);
    assert_non_null(json_object_get(json_array_get(devices, 1), "left_out"));
    json_int_t here = json_integer_value(json_object_get(json_array_get(devices, 0), "layers"));
    json_int_t there = json_integer_value(json_object_get(json_array_get(devices, 2), "layers"));
    assert_true(here < 6 && there > 0 && here + there == 6);
    json_t *predicted = json_object_get(object, "predicted");
    assert_true(json_real_value(json_object_get(predicted, "tpot_s")) > 0);
    json_decref(object);
    test_result_free(&r);
    test_cli_expect("RUN -p x --save-plan $DIR/plan", 2, NULL, "--save-plan needs --devices");
}

/* A worker that measures says that it listens afterwards; with what it was told about times, the
 * main device says if it cannot know them. */
static void what_is_wanted(void **state)
{
    (void)state;
    test_cli_expect("VOLTRON_NO_PROFILE= RUN worker --listen 127.0.0.1:0 --no-cache 2>$DIR/log & w=$!;"
                    "for i in $(seq 50); do grep -q measuring $DIR/log && break; sleep 0.1; done;"
                    "kill -9 $w; wait $w; cat $DIR/log >&2; rm $DIR/log",
                    0, NULL, "once, before it listens");
    test_cli_expect("RUN -p x --ttft 1", 2, NULL, "--ttft and --tpot are for plans");
    test_cli_expect("RUN -p x --tpot 100 --devices 127.0.0.1:1 --split even", 2, NULL, "--split");
    test_cli_expect("RUN -p x --tpot 0 --devices 127.0.0.1:1", 2, NULL, "--tpot");
    test_cli_expect("RUN worker --listen 127.0.0.1:0 --no-cache >$DIR/port 2>/dev/null & w=$!;"
                    "for i in $(seq 50); do grep -q listening $DIR/port && break; sleep 0.1; done;"
                    "RUN -p Once -n 1 --tpot 100 --devices $(sed 's/listening on //' $DIR/port);"
                    "code=$?; kill $w; wait $w; rm $DIR/port; exit $code",
                    0, NULL, "wanted is not known");
}

/* Ctrl-C in the middle of a long prompt and of a long measurement: a clean end, and 130. */
static void interrupted(void **state)
{
    (void)state;
    test_cli_expect("yes 'The little fox ran.' | head -n 40000 > $DIR/txt;"
           "RUN -f $DIR/txt -c 300000 --local 2 --no-echo 2>$DIR/told & p=$!;"
           "until grep -q device $DIR/told; do sleep 0.05; done; kill -INT $p; wait $p;"
           "code=$?; cat $DIR/told >&2; rm -f $DIR/txt $DIR/told; exit $code",
           130, NULL, "ended by interrupted");
    test_cli_expect("yes 'The little fox ran.' | head -n 40000 > $DIR/txt;"
           "timeout --preserve-status -s INT 1 RUN ppl --text $DIR/txt;"
           "code=$?; rm -f $DIR/txt; exit $code",
           130, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help), cmocka_unit_test(wrong_usage), cmocka_unit_test(bad_files),
        cmocka_unit_test(output_files), cmocka_unit_test(story), cmocka_unit_test(local_cluster),
        cmocka_unit_test(json_output), cmocka_unit_test(sampling_options),
        cmocka_unit_test(json_log_probabilities),
        cmocka_unit_test(inspect), cmocka_unit_test(tokenize_both_ways),
        cmocka_unit_test(logits_file), cmocka_unit_test(perplexity),
        cmocka_unit_test(nobody_listens), cmocka_unit_test(worker_program),
        cmocka_unit_test(planned_layers),
        cmocka_unit_test(what_is_wanted),
        cmocka_unit_test(interrupted),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
