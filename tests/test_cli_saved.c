/* Conversations with voltron-run in session files: what is loaded is what was saved. */
#include "cli_support.h"
#include "support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_saved(const char *options)
{
    char command[1024];
    snprintf(command, sizeof command, "printf 'Tell me.\\nAnd?\\nWhy?\\n' | RUN -i -n 9 -t 0 %s",
             options);
    char *whole = test_cli_output(command, 0);
    snprintf(command, sizeof command,
             "printf \"Tell me.\\nAnd?\\n/save $DIR/s\\n\" | RUN -i -n 9 -t 0 %s;"
             "printf \"/load $DIR/s\\nWhy?\\n\" | RUN -i -n 9 -t 0 %s", options, options);
    test_result parts = test_cli(command);
    assert_int_equal(parts.code, 0);
    assert_string_equal(whole, parts.out);
    assert_true(strlen(whole) > 30);
    assert_non_null(strstr(parts.err, "tokens loaded from"));
    test_result_free(&parts);
    free(whole);
}

static void test_save_and_load(void **state)
{
    (void)state;
    check_saved("");
    check_saved("--chat-template chatml --system 'Be kind.'");
    check_saved("--chat-template chatml --local 2");
    /* Of another kind: an error, and the chat is what it was. */
    test_cli_expect("printf \"/load $DIR/s\\n\" | RUN -i --chat-template zephyr", 2, NULL,
                    "chatml");
    test_cli_expect("printf \"Hi\\n/save $DIR/s\\n\" | RUN -i -n 3", 0, NULL, NULL);
    test_cli_expect("printf \"/load $DIR/s\\n\" | RUN -i " CHAT, 4, NULL, "--no-chat");
}

/* What was computed is not computed again. */
static void test_loading_keeps_the_cache(void **state)
{
    (void)state;
    test_cli_expect("printf \"Tell me.\\n/save $DIR/s\\n\" | RUN -i -n 9 " CHAT, 0, NULL, NULL);
    char *out = test_cli_output("printf \"/load $DIR/s\\nWhy?\\n\" | RUN -i -n 9 --json " CHAT, 0);
    json_t *object = json_loads(out, 0, NULL);
    json_int_t prompt = json_integer_value(json_object_get(object, "prompt_tokens"));
    json_int_t computed = json_integer_value(json_object_get(object, "computed_tokens"));
    assert_true(prompt > 0 && computed > 0 && computed < prompt - 15);
    json_decref(object);
    free(out);
}

/* The oldest turns were left out; they stay so. */
static void test_after_a_shift(void **state)
{
    (void)state;
    static const char line[] =
        "ask() { for i in 1 2 3 4 5 6; do echo question number $i please; done; };"
        "set -- -i -c 90 -n 12 --seed 7 --json --context-full shift --chat-template chatml;"
        "{ ask; %s echo and the last one; } | RUN \"$@\" | tail -n 1";
    char command[512];
    snprintf(command, sizeof command, line, "");
    test_result whole = test_cli(command);
    snprintf(command, sizeof command, line, "echo /save $DIR/s; echo /load $DIR/s;");
    test_result parts = test_cli(command);
    json_t *one = json_loads(whole.out, 0, NULL), *two = json_loads(parts.out, 0, NULL);
    assert_true(json_integer_value(json_object_get(one, "left_out_messages")) > 0);
    static const char *const same[] = {"text", "left_out_messages", "prompt_tokens"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(json_equal(json_object_get(one, same[i]), json_object_get(two, same[i])));
    json_decref(one);
    json_decref(two);
    test_result_free(&whole);
    test_result_free(&parts);
}

/* Texts that JSON has no plain form for: NUL (the model's token 0) and what is no UTF-8. */
static void test_odd_texts(void **state)
{
    (void)state;
    test_cli_expect("printf \"hi\\n/save $DIR/nul\\n/load $DIR/nul\\n\" | "
                    "RUN -i -n 3 --logit-bias 0:1000000 " CHAT, 0, NULL, "2 messages");
    char *whole = test_cli_output("printf '/system \\xFF\\nh\\xE4\\xFE\\nAnd?\\n' | "
                                  "RUN -i -n 9 " CHAT, 0);
    char *parts = test_cli_output("printf \"/system \\xFF\\nh\\xE4\\xFE\\n/save $DIR/odd\\n\" | "
                                  "RUN -i -n 9 " CHAT "; printf \"/load $DIR/odd\\nAnd?\\n\" | "
                                  "RUN -i -n 9 " CHAT, 0);
    assert_string_equal(whole, parts);
    free(whole);
    free(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save_and_load), cmocka_unit_test(test_loading_keeps_the_cache),
        cmocka_unit_test(test_after_a_shift), cmocka_unit_test(test_odd_texts),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
