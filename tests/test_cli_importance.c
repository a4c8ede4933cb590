/* voltron-run importance: files, interruption, going on; what plan takes of them. */
#include "cli_support.h"
#include "support.h"

#include <jansson.h>
#include <stdlib.h>

#define STORY "Once upon a time there was a little fox. She had a red ball and a big friend."
#define TEXT "printf '" STORY "\\n<|endoftext|>\\nA cat sat.\\n' > $DIR/text; "
#define MEASURE "RUN importance --threads 1 --text $DIR/text --task stories "

static void measures(void **state)
{
    (void)state;
    char *said = test_cli_output(TEXT MEASURE "-o $DIR/im --json", 0);
    json_t *a = json_loads(said, 0, NULL), *unit;
    size_t i;
    assert_int_equal(json_integer_value(json_object_get(a, "windows")), 2);
    assert_int_equal(json_integer_value(json_object_get(a, "runs")), 2 * (6 * (4 + 8) + 8));
    assert_int_equal(json_integer_value(json_object_get(a, "resumed_runs")), 0);
    assert_in_range(json_integer_value(json_object_get(a, "tokens")), 20, 40);
    assert_true(json_real_value(json_object_get(a, "perplexity")) > 1);
    assert_int_equal(json_array_size(json_object_get(a, "units")), 13);
    json_array_foreach(json_object_get(a, "units"), i, unit)
        assert_true(json_is_real(json_object_get(unit, "score")));
    json_decref(a);
    free(said);
    test_cli_expect(MEASURE "-o $DIR/again --batch 4 && ls $DIR/again.progress", 2,
                    "by how much it rises without a part", "again.progress");
    test_cli_expect(MEASURE "-o $DIR/part --units 'FFN(2),head' --tokens 9 --exact && "
                    "! grep -q ATTN $DIR/part", 0, "over 9 tokens", NULL);
    test_cli_expect("rm $DIR/text $DIR/im $DIR/again $DIR/part", 0, NULL, NULL);
}

/* The progress file is there from the beginning. */
static void interrupted(void **state)
{
    (void)state;
    test_cli_expect(TEXT "for i in 1 2 3 4 5 6 7 8; do cat $DIR/text; done >$DIR/long; "
                    MEASURE "--text $DIR/long -o $DIR/im --exact & "
                    "while ! [ -s $DIR/im.progress ]; do sleep 0.05; done; kill -INT $!; wait $!",
                    130, NULL, "the same command goes on from here");
    test_cli_expect("[ -s $DIR/im.progress ] && ! [ -e $DIR/im ]", 0, NULL, NULL);
    test_cli_expect(MEASURE "-o $DIR/im", 2, NULL, "is the progress of another measurement");
    test_cli_expect("rm $DIR/im.progress $DIR/text $DIR/long", 0, NULL, NULL);
}

static void wrong_usage(void **state)
{
    (void)state;
    test_cli_expect("RUN importance --text x -o $DIR/im", 2, NULL,
                    "needs --text FILE, --task NAME and -o FILE");
    test_cli_expect("RUN importance --text x --task t -o README.md", 2, NULL,
                    "README.md exists and is not a file of importances");
    test_cli_expect("echo hi | RUN importance --text - --task t -o $DIR; ls $DIR.progress", 2, NULL,
                    "it is not a regular file");
    test_cli_expect("RUN importance --text $DIR/none --task t -o $DIR/im", 3, NULL, "none");
    test_cli_expect("RUN importance --text /dev/null --task t -o $DIR/im", 2, NULL,
                    "no token to predict");
    test_cli_expect("echo hi | RUN importance --text - --task '' -o $DIR/im", 2, NULL,
                    "a task needs a name");
    test_cli_expect("echo hi | RUN importance --text - --task t --units EMBED -o $DIR/im", 2, NULL,
                    "no unit \"EMBED\"");
    test_cli_expect("echo hi | RUN importance --text - --task t -o $DIR/im --memory 1M", 6, NULL,
                    "importance on windows of");
    test_cli_expect("ls $DIR/im.progress", 2, NULL, "im.progress");
    test_cli_expect("echo hi | RUN importance --text - --task t -o $DIR/im --local 2", 2, NULL,
                    "unknown option --local");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
