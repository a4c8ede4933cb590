/* Runs the fuzz target over its corpus.
 *   test_fuzz_session FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_session --write-seeds FOLDER   writes sessions of the default model there */
#define FUZZ_NAME "session"
#include "fuzz/fuzz_session.c"
#include "fuzz/replay.h"

/* A session of `fed` tokens and `drawn` more, as it is and as its inside. */
static int write_seeds_of(const char *folder, const char *name, int fed, int drawn,
                          const char *blob)
{
    static const vt_token ids[] = {3, 70, 500};
    char path[4096], inside[64];
    vt_token token;
    size_t bytes, body_bytes;
    vt_session *s = open_session();
    vt_session_rewind(s, 0, NULL);
    require(vt_session_feed(s, ids, (size_t)fed, NULL) == VT_OK, "tokens are computed");
    for (int i = 0; i < drawn; i++) require(vt_session_next(s, &token, NULL) == VT_OK, "drawn");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    require(vt_session_save(s, path, blob, strlen(blob), NULL) == VT_OK, "it is saved");
    uint8_t *file = test_read_file(path, &bytes);
    uint8_t *body = session_body_unpack(file, bytes, &body_bytes);
    snprintf(inside, sizeof inside, "%s-inside", name);
    int failures = fuzz_write_seed(folder, name, 0, file, bytes) +
                   fuzz_write_seed(folder, inside, 1, body, body_bytes);
    free(file);
    free(body);
    return failures;
}

static int write_seeds(const char *folder)
{
    return write_seeds_of(folder, "empty", 0, 0, "") + write_seeds_of(folder, "fed", 2, 0, "x") +
           write_seeds_of(folder, "drawn", 1, 1, "{\"messages\":[]}");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
