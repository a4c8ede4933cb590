/* replay.h: runs a fuzz target over files, without a fuzzer. A regression test is
 *
 *     #define FUZZ_NAME "NAME"
 *     #include "fuzz/fuzz_NAME.c"
 *     #include "fuzz/replay.h"
 *     int main(int argc, char **argv)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
 *         return fuzz_run_main(argc, argv, write_seeds, tests, 1);
 *     }
 *
 * Such a program runs files instead (crashes that the fuzzer found) if it is given some, and writes
 * the corpus anew with --write-seeds FOLDER. */
#ifndef VTI_FUZZ_REPLAY_H
#define VTI_FUZZ_REPLAY_H

#include "../support.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void fuzz_replay_file(const char *path)
{
    size_t bytes;
    unsigned char *data = test_read_file(path, &bytes);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
}

/* Every file of tests/fuzz/corpus/NAME. Returns how many. */
static inline int fuzz_replay(const char *name)
{
    char folder[256];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    DIR *listing = opendir(folder);
    if (!listing) fail_msg("cannot open %s", folder);
    int count = 0;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (item->d_name[0] == '.') continue;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
        fuzz_replay_file(path);
        count++;
    }
    closedir(listing);
    return count;
}

static void corpus_runs_through_the_target(void **state)
{
    (void)state;
    assert_true(fuzz_replay(FUZZ_NAME) > 0);
}

/* A file of the corpus: `kind`, which the target takes as its first byte (-1: none), and the data.
 * 0, or 1 after a line on stderr. */
static inline int fuzz_write_seed(const char *folder, const char *name, int kind, const void *data,
                                  size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    bool written = out && (kind < 0 || fputc(kind, out) == kind) &&
                   fwrite(data, 1, bytes, out) == bytes;
    if (out && fclose(out) != 0) written = false;
    if (!written) fprintf(stderr, "cannot write %s\n", path);
    return written ? 0 : 1;
}

typedef int fuzz_write_seeds_fn(const char *folder);

static inline int fuzz_run_main(int argc, char **argv, fuzz_write_seeds_fn *write_seeds,
                                const struct CMUnitTest *tests, size_t count)
{
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) return write_seeds(argv[2]);
    for (int i = 1; i < argc; i++) fuzz_replay_file(argv[i]);
    return argc > 1 ? 0 : _cmocka_run_group_tests(FUZZ_NAME, tests, count, NULL, NULL);
}

#endif
