/* voltron-run pack, inspect and verify, as a user has them. */
#include "cli_support.h"
#include "support.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "src/assets/stories-4m-f16.gguf"

static void pack_inspect_verify(void **state)
{
    (void)state;
    test_cli_expect("RUN pack " MODEL " -o $DIR/m.vts", 0, "; I4 ", NULL);
    test_cli_expect("RUN verify $DIR/m.vts", 0, "are as they were written", NULL);
    test_cli_expect("RUN inspect $DIR/m.vts", 0, "EMBED", NULL);
    test_cli_expect("RUN inspect $DIR/m.vts", 0, "6 layers, width 256, 8 heads on 4 KV", NULL);
    test_cli_expect("RUN inspect $DIR/m.vts", 0, "memory on one device: 7.", NULL);
    test_cli_expect("RUN -m $DIR/m.vts --precision i4 -p 'Once upon' -n 3 -t 0", 0, " a time", NULL);
    test_cli_expect("RUN -m $DIR/m.vts --precision I7 -p x -n 3", 2, NULL, "is not one of F16");
    test_cli_expect("RUN inspect $DIR/m.vts", 0, "tokenizer.ggml.merges", NULL);
    test_cli_expect("RUN pack -o $DIR/d.vts --precision F16 --threads 3 && "
                    "RUN pack " MODEL " -o $DIR/e.vts --precision F16 --threads 1 && "
                    "cmp $DIR/d.vts $DIR/e.vts", 0, NULL, NULL);
    test_cli_expect("RUN verify " MODEL, 0, "has no checksums", NULL);
}

static void plans(void **state)
{
    (void)state;
    test_cli_expect("RUN -m " MODEL " --plan $DIR/none -p x -n 3", 3, NULL, "none");
    test_cli_expect("echo '{}' > $DIR/p && RUN -m " MODEL " --plan $DIR/p -p x -n 3", 4, NULL,
                    "the plan: \"format\"");
    test_cli_expect("RUN -m " MODEL " --plan $DIR/p --precision I8 -p x -n 3", 2, NULL,
                    "--precision and --plan exclude each other");
    /* What is planned for too little memory for F16 is what is computed with. */
    test_cli_expect("echo '{\"devices\": [{\"name\": \"one\", \"memory\": \"7M\", \"compute\":"
                    " {\"gmacs_per_s\": 10, \"gbytes_per_s\": 5}}]}' > $DIR/c && "
                    "RUN plan -m " MODEL " --cluster $DIR/c -c 256 -o $DIR/q >/dev/null && "
                    "grep -q I8 $DIR/q && "
                    "RUN -m " MODEL " --plan $DIR/q -p 'Once upon' -n 3 -t 0", 0, " a time", NULL);
}

static void what_json_says(void **state)
{
    (void)state;
    char *packed = test_cli_output("RUN pack -o $DIR/j.vts --precision i8,F16 --json", 0);
    json_t *a = json_loads(packed, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(a, "precisions")), 2);
    char *shown = test_cli_output("RUN inspect $DIR/j.vts --json", 0);
    json_t *b = json_loads(shown, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(a, "file_bytes")),
                     json_integer_value(json_object_get(b, "file_bytes")));
    assert_true(json_equal(json_object_get(a, "precisions"), json_object_get(b, "precisions")));
    json_t *unit = json_array_get(json_object_get(b, "units"), 1);
    assert_string_equal(json_string_value(json_object_get(unit, "name")), "FFN(0)");
    json_t *i8 = json_array_get(json_object_get(unit, "precisions"), 1);
    assert_string_equal(json_string_value(json_object_get(i8, "types")), "Q8_0");
    json_decref(a);
    json_decref(b);
    free(packed);
    free(shown);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    test_cli_expect("RUN pack " MODEL, 2, NULL, "pack needs -o FILE");
    test_cli_expect("RUN pack -o $DIR/x.vts --precision F32", 2, NULL, "\"F32\" is not one of");
    test_cli_expect("RUN pack -o $DIR/x.vts --precision F16,", 2, NULL, "ends with a comma");
    test_cli_expect("RUN pack $DIR/none.gguf -o $DIR/x.vts", 3, NULL, "none.gguf");
    test_cli_expect("RUN pack -o $DIR/none/x.vts", 3, NULL, "none/x.vts");
    test_cli_expect("cp " MODEL " $DIR/m.gguf; RUN pack $DIR/m.gguf -o $DIR/m.gguf", 2, NULL,
                    "is the model itself");
    test_cli_expect("echo text >$DIR/text; RUN pack $DIR/m.gguf -o $DIR/text", 2, NULL,
                    "is not a shard store");
    test_cli_expect("cmp " MODEL " $DIR/m.gguf", 0, NULL, NULL);
    test_cli_expect("RUN logits -m $DIR/m.gguf --ids /dev/null -o $DIR/m.gguf", 2, NULL,
                    "is a model; it is not replaced");
    test_cli_expect("RUN pack -o $DIR/s.vts --precision F16,I4 && cp $DIR/s.vts $DIR/t.vts && "
                    "! RUN pack $DIR/s.vts -o $DIR/s.vts --precision I4 && "
                    "cmp $DIR/s.vts $DIR/t.vts", 0, NULL, "s.vts is the model itself");
    test_cli_expect("RUN verify", 2, NULL, "verify needs a file");
    test_cli_expect("RUN verify $DIR/none.vts", 3, NULL, "none.vts");
    test_cli_expect("RUN pack -o $DIR/x.vts --precision F16 && ! ls $DIR/*.part*", 0, NULL, NULL);
}

static void damage_is_found(void **state)
{
    (void)state;
    test_cli_expect("RUN pack -o $DIR/b.vts --precision F16 && "
                    "printf X | dd of=$DIR/b.vts bs=1 seek=900000 conv=notrunc status=none && "
                    "RUN verify $DIR/b.vts", 4, NULL, "b.vts: this shard store is damaged: ");
    test_cli_expect("RUN -m $DIR/b.vts -p hi -n 1", 4, NULL,
                    "b.vts: this shard store is damaged: ");
    test_cli_expect("head -c 300000 $DIR/b.vts >$DIR/c.vts; RUN inspect $DIR/c.vts", 4, NULL,
                    "it has 300000 bytes");
}

static void interrupted_or_full_leaves_nothing(void **state)
{
    (void)state;
    test_cli_expect("ulimit -f 2000; RUN pack -o $DIR/full.vts --precision F16", 3, NULL,
                    "MiB of at most");
    test_cli_expect("! ls $DIR/full.vts*", 0, NULL, NULL);
    /* Whether the signal comes before the end or not: a whole store or none. */
    test_cli_expect("for s in 0.01 0.02 0.05; do "
                    "timeout --preserve-status -s INT $s "
                    "RUN pack -o $DIR/i.vts --precision F16,I8; code=$?; "
                    "[ $code = 0 ] || [ $code = 130 ] || exit 1; "
                    "[ ! -e $DIR/i.vts ] || RUN verify $DIR/i.vts || exit 1; "
                    "rm -f $DIR/i.vts; ! ls $DIR/i.vts* || exit 1; done", 0, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack_inspect_verify),
        cmocka_unit_test(plans),
        cmocka_unit_test(what_json_says),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(interrupted_or_full_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, test_cli_set_up, test_cli_tear_down);
}
