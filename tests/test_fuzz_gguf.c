/* Runs the fuzz target over its corpus.
 *   test_fuzz_gguf FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_gguf --write-seeds FOLDER   writes the builder's sample files there */
#define FUZZ_NAME "gguf"
#include "fuzz/fuzz_gguf.c"
#include "fuzz/replay.h"
#include "gguf_samples.h"

static int write_seed(const char *folder, const char *name, unsigned char *data, size_t bytes)
{
    int failed = fuzz_write_seed(folder, name, -1, data, bytes);
    free(data);
    return failed;
}

static int write_seeds(const char *folder)
{
    size_t bytes;
    unsigned char *data = gguf_sample_complete(3, &bytes);
    int failures = write_seed(folder, "complete-v3.gguf", data, bytes);
    data = gguf_sample_complete(2, &bytes);
    failures += write_seed(folder, "complete-v2.gguf", data, bytes);
    data = gguf_sample_vocabulary(&bytes);
    failures += write_seed(folder, "vocabulary.gguf", data, bytes);
    data = gguf_sample_empty(&bytes);
    failures += write_seed(folder, "empty.gguf", data, bytes);
    data = gguf_sample_aligned(&bytes);
    return failures + write_seed(folder, "aligned.gguf", data, bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
