/* Runs the fuzz target over its corpus.
 *   test_fuzz_importance FILE …                 runs these files instead (a crash the fuzzer found)
 *   test_fuzz_importance --write-seeds FOLDER   writes two files of the target's model there
 */
#define FUZZ_NAME "importance"
#include "fuzz/fuzz_importance.c"
#include "fuzz/replay.h"

static int write_seeds(const char *folder)
{
    vti_importance *im;
    const vti_geometry *g = small_geometry();
    require(vti_importance_new(g, &im, NULL) == VT_OK, "there is memory");
    strcpy(im->task, "t");
    im->tokens = im->context_tokens = 1;
    im->perplexity = 1;
    im->measured[1] = true;
    im->unit[1] = im->part[3] = im->channel[130] = -0.5;
    char *text = vti_importance_write_json(im, g);
    int failures = fuzz_write_seed(folder, "one-unit", -1, text, strlen(text));
    free(text);
    for (uint32_t unit = 0; unit < im->units; unit++) im->measured[unit] = true;
    text = vti_importance_write_json(im, g);
    failures += fuzz_write_seed(folder, "all", -1, text, strlen(text));
    free(text);
    vti_importance_free(im);
    return failures;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
