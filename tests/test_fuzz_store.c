/* Runs the fuzz target over its corpus.
 *   test_fuzz_store FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_store --write-seeds FOLDER   writes tiny stores there */
#define FUZZ_NAME "store"
#include "fuzz/fuzz_store.c"
#include "fuzz/replay.h"

#include "store_support.h"

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
    int failed = fuzz_write_seed(folder, name, kind, file, bytes);
    free(file);
    return failed;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
