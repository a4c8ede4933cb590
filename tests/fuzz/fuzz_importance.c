/* fuzz_importance.c: any text as a file of importances of a small model. What is read and written
 * must be read back the same. Ends the process where that breaks a promise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/importance.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_importance: broken promise: %s\n", what);
    abort();
}

/* 2 layers with 2 KV heads of 32 channels, 8 hidden blocks of 32. */
static const vti_geometry *small_geometry(void)
{
    static vti_geometry g;
    const vti_hparams hparams = {
        .arch = VTI_ARCH_QWEN2, .layers = 2, .d = 64, .heads = 4, .kv_heads = 2, .head_dim = 32,
        .ff = 256, .vocab = 256, .context = 64,
    };
    vti_geometry_init(&g, &hparams, false);
    return &g;
}

static void check_scores(const vti_importance *im)
{
    static float shard[VTI_PLAN_UNITS_MAX][VTI_PLAN_PRUNABLE_MAX];
    vti_plan_importance plan;
    for (uint32_t i = 0; i < im->units; i++) require(isfinite(im->unit[i]), "scores are numbers");
    for (uint32_t i = 0; i < im->parts; i++) require(isfinite(im->part[i]), "scores are numbers");
    for (uint64_t i = 0; i < im->channels; i++)
        require(isfinite(im->channel[i]), "scores are numbers");
    if (vti_importance_for_plan(im, small_geometry(), shard, &plan, NULL) != VT_OK) return;
    for (unsigned u = 0; u < 6; u++)
        for (unsigned i = 0; i < 8; i++) require(isfinite(shard[u][i]), "ranks are numbers");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const vti_geometry *g = small_geometry();
    vti_importance *im, *back;
    vt_error err = {.message = ""};
    require(vti_importance_new(g, &im, NULL) == VT_OK, "there is memory");
    require(vti_importance_new(g, &back, NULL) == VT_OK, "there is memory");
    vt_status status = vti_importance_read_json((const char *)data, bytes, g, NULL, im, &err);
    require(status == VT_OK || err.message[0], "an error has a message");
    if (status == VT_OK) {
        check_scores(im);
        char *text = vti_importance_write_json(im, g);
        require(text, "what was read is written");
        status = vti_importance_read_json(text, strlen(text), g, &im->identity, back, &err);
        require(status == VT_OK, "what was written is read");
        char *again = vti_importance_write_json(back, g);
        require(again && strcmp(again, text) == 0, "it is the same");
        free(again);
        free(text);
    }
    vti_importance_free(back);
    vti_importance_free(im);
    return 0;
}
