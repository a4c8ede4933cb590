/* Runs the fuzz target over its corpus.
 *   test_fuzz_store FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_store --write-seeds FOLDER   writes tiny stores there */
#include "fuzz/fuzz_store.c"
#include "fuzz/replay.h"

#include "store_support.h"

static void corpus_runs_through_the_target(void **state)
{
    (void)state;
    assert_true(fuzz_replay("store") > 0);
}

static int write_seed(const char *folder, const char *name, int kind, const test_model *model,
                      uint32_t offered)
{
    char path[4096];
    test_source t;
    size_t bytes;
    test_source_open_model(&t, model);
    t.offered = offered;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    test_store_write(&t, path, 1);
    test_source_close(&t);
    unsigned char *file = test_read_file(path, &bytes);
    FILE *out = fopen(path, "wb");
    bool written = out && fputc(kind, out) == kind && fwrite(file, 1, bytes, out) == bytes;
    if (out && fclose(out) != 0) written = false;
    if (!written) fprintf(stderr, "cannot write %s\n", path);
    free(file);
    return written ? 0 : 1;
}

static int write_seeds(const char *folder)
{
    test_model model = test_model_of("llama");
    model.layers = 1;
    model.d = model.ff = 32;
    model.heads = model.kv_heads = 1;
    int failures = write_seed(folder, "llama", 0, &model, 2);
    model.arch = "qwen2moe";
    model.experts = 2;
    model.experts_used = 1;
    model.expert_ff = 32;
    return failures + write_seed(folder, "qwen2moe-sealed", 1, &model, 4);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) return write_seeds(argv[2]);
    for (int i = 1; i < argc; i++) fuzz_replay_file(argv[i]);
    if (argc > 1) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
