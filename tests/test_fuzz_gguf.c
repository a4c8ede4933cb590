/* Runs the fuzz target over its corpus.
 *   test_fuzz_gguf FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_gguf --write-seeds FOLDER   writes the builder's sample files there */
#include "fuzz/fuzz_gguf.c"
#include "fuzz/replay.h"
#include "gguf_samples.h"

static void corpus_runs_through_the_target(void **state)
{
    (void)state;
    assert_true(fuzz_replay("gguf") > 0);
}

static int write_seed(const char *folder, const char *name, unsigned char *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0;
    if (!written) fprintf(stderr, "cannot write %s\n", path);
    free(data);
    return written ? 0 : 1;
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
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) return write_seeds(argv[2]);
    for (int i = 1; i < argc; i++) fuzz_replay_file(argv[i]);
    if (argc > 1) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
