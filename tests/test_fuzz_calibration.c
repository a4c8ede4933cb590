/* Runs the fuzz target over its corpus.
 *   test_fuzz_calibration FILE …                 runs these files instead (a crash it found)
 *   test_fuzz_calibration --write-seeds FOLDER   writes a calibration file of the default model
 */
#define FUZZ_NAME "calibration"
#include "fuzz/fuzz_calibration.c"
#include "fuzz/replay.h"

/* Few different values, so that the seed is small. */
static int write_seeds(const char *folder)
{
    char path[4096];
    size_t bytes, body_bytes;
    vti_model_identity identity;
    vti_calibration *im;
    require(vti_calibration_new(open_model(&identity), &im, NULL) == VT_OK, "there is memory");
    for (uint32_t i = 0; i < im->count; i++) im->inputs[i].tokens = i;
    for (uint64_t i = im->inputs[0].cols; i < im->value_count; i++)
        im->values[i] = (float)(i % 4) / 2;
    snprintf(path, sizeof path, "%s/file", folder);
    require(vti_calibration_save(im, path, &identity, NULL) == VT_OK, "it is written");
    vti_calibration_free(im);
    uint8_t *file = test_read_file(path, &bytes);
    uint8_t *body = calibration_file_unpack(file, bytes, &body_bytes);
    int failures = fuzz_write_seed(folder, "file", 0, file, bytes) +
                   fuzz_write_seed(folder, "other-model", 2, body, 400) +
                   fuzz_write_seed(folder, "cut-inside", 1, body, 2000);
    free(file);
    free(body);
    return failures;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_runs_through_the_target)};
    return fuzz_run_main(argc, argv, write_seeds, tests, sizeof tests / sizeof tests[0]);
}
