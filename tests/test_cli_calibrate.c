/* voltron-run calibrate, and pack with what it wrote. */
#include "cli_support.h"
#include "support.h"

#include <jansson.h>
#include <stdlib.h>

#define MODEL "src/assets/stories-4m-f16.gguf"
#define STORY "Once upon a time there was a little fox. She had a red ball and a big friend.\n"
#define TEXT "printf '" STORY "<|endoftext|>\n" STORY "' > $DIR/text; "

static void calibrate_and_pack(void **state)
{
    (void)state;
    char *said = test_cli_output(TEXT "RUN calibrate -m " MODEL
                                 " --text $DIR/text -o $DIR/im --json", 0);
    json_t *a = json_loads(said, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(a, "inputs")), 25);
    assert_int_equal(json_integer_value(json_object_get(a, "unseen")), 0);
    assert_in_range(json_integer_value(json_object_get(a, "tokens")), 30, 60);
    assert_true(json_real_value(json_object_get(a, "perplexity")) > 1);
    json_decref(a);
    free(said);
    test_cli_expect("RUN calibrate --text - -o $DIR/again <$DIR/text && cmp $DIR/im $DIR/again", 0,
                    "25 inputs of matrices", NULL);
    test_cli_expect("RUN pack -o $DIR/a.vts --precision I4", 0, NULL, NULL);
    test_cli_expect("RUN pack -o $DIR/b.vts --precision I4 --calibration $DIR/im && "
                    "RUN verify $DIR/b.vts && ! cmp -s $DIR/a.vts $DIR/b.vts", 0, NULL, NULL);
    /* A store is the same model. */
    test_cli_expect("RUN calibrate -m $DIR/a.vts --text $DIR/text -o $DIR/of-store && "
                    "RUN pack -o $DIR/c.vts --precision I4 --calibration $DIR/of-store", 0, NULL,
                    NULL);
    test_cli_expect("RUN pack $DIR/a.vts -o $DIR/c.vts --calibration $DIR/im", 2, NULL,
                    "nothing of it is rounded");
    test_cli_expect("RUN pack -o $DIR/x.vts --calibration $DIR/text; "
                    "[ $? = 4 ] && ! ls $DIR/x.vts*", 0, NULL, "this is not a calibration file");
    test_cli_expect("head -c 500 $DIR/im >$DIR/cut; "
                    "RUN pack -o $DIR/x.vts --calibration $DIR/cut", 4, NULL, "damaged");
    test_cli_expect("rm $DIR/text $DIR/im $DIR/again $DIR/of-store $DIR/cut $DIR/*.vts", 0, NULL,
                    NULL);
}

static void wrong_usage(void **state)
{
    (void)state;
    test_cli_expect("RUN calibrate -o $DIR/im", 2, NULL, "needs --text FILE and -o FILE");
    test_cli_expect("RUN calibrate --text x", 2, NULL, "needs --text FILE and -o FILE");
    test_cli_expect("RUN calibrate --text x -o $DIR/im --local 2", 2, NULL,
                    "unknown option --local");
    test_cli_expect("RUN calibrate --text x -o $DIR/none/im", 3, NULL, "none/");
    test_cli_expect("echo a b c >$DIR/t; RUN calibrate --text $DIR/t -o $DIR/t", 2, NULL,
                    "t exists and is not a calibration file");
    test_cli_expect("grep -q 'a b c' $DIR/t && rm $DIR/t", 0, NULL, NULL);
    test_cli_expect("RUN calibrate --text $DIR/none -o $DIR/im", 3, NULL, "none");
    test_cli_expect("RUN calibrate --text /dev/null -o $DIR/im; [ $? = 4 ] && ! ls $DIR/im", 0,
                    NULL, "no token");
    test_cli_expect("echo a b c | RUN calibrate --text - -o $DIR/im --context 1", 2, NULL,
                    "at least 2 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibrate_and_pack),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
