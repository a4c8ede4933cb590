/* fuzz_calibration.c: any calibration file for the default model (run from the repository's
 * root). The first byte says what the rest is:
 *   0: a file
 *   1: the inside of one, which gets the right model's hashes and a right checksum
 *   2: the same with the hashes it has
 * Ends the process where loading breaks a promise. */
#include "calibration_file.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/calibration.h"

#define DEFAULT_MODEL "src/assets/stories-4m-f16.gguf"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_calibration: broken promise: %s\n", what);
    abort();
}

static const vti_hparams *open_model(vti_model_identity *identity)
{
    static vt_gguf *gguf;
    static vti_hparams hparams;
    static vti_model_identity own;
    if (!gguf) {
        require(vt_gguf_open(DEFAULT_MODEL, &gguf, NULL) == VT_OK, "the model opens");
        require(vti_hparams_read(gguf, &hparams, NULL) == VT_OK, "its hyperparameters are right");
        vti_model_identity_of(gguf, &own);
    }
    *identity = own;
    return &hparams;
}

static void check(const vti_calibration *im)
{
    for (uint32_t i = 0; i < im->count; i++)
        for (uint32_t c = 0; c < im->inputs[i].cols; c++)
            require(isfinite(im->inputs[i].mean[c]) && im->inputs[i].mean[c] >= 0,
                    "importances are numbers");
}

/* The file is what a path of /proc leads to: nothing goes to a disk. */
static void load_bytes(const uint8_t *file, size_t bytes)
{
    char path[64];
    vti_model_identity identity;
    vti_calibration *im;
    vt_error err = {.message = ""};
    const vti_hparams *hparams = open_model(&identity);
    int memory = memfd_create("calibration", MFD_CLOEXEC);
    require(memory >= 0 && write(memory, file, bytes) == (ssize_t)bytes, "memory for a file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    vt_status status = vti_calibration_load(path, hparams, &identity, &im, &err);
    require(status == VT_OK || (!im && err.message[0]), "an error has a message");
    if (status == VT_OK) check(im);
    vti_calibration_free(im);
    close(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    if (data[0] == 0) {
        load_bytes(data + 1, bytes - 1);
        return 0;
    }
    size_t packed_bytes, body_bytes = bytes - 1;
    uint8_t *body = malloc(body_bytes + 1);
    if (!body) abort();
    memcpy(body, data + 1, body_bytes);
    if (data[0] != 2 && body_bytes >= sizeof(vti_model_identity)) {
        vti_model_identity own;
        open_model(&own);
        memcpy(body, &own, sizeof own);
    }
    uint8_t *file = calibration_file_pack(body, body_bytes, &packed_bytes);
    load_bytes(file, packed_bytes);
    free(file);
    free(body);
    return 0;
}
