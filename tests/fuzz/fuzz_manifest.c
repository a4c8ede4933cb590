/* fuzz_manifest.c: any bytes as the list of shards that a main device sends. Byte 0 chooses the
 * model; the rest is the message. What is accepted must be exactly what it says, and must be safe
 * to take memory for. */
#include "../../src/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { FUZZ_MODELS = 3 };

static vti_hparams fuzz_hparams(unsigned which)
{
    vti_hparams p = {.arch = VTI_ARCH_QWEN2, .layers = 3, .d = 64, .heads = 4, .kv_heads = 2,
                     .head_dim = 16, .ff = 192, .vocab = 300, .context = 99, .rope_dims = 16,
                     .rms_eps = 1e-6f, .attention_scale = 0.25f, .rope = {.base = 1e4f}};
    if (which == 1) {
        p.arch = VTI_ARCH_QWEN2MOE;
        p.experts = 4;
        p.experts_used = 2;
        p.expert_ff = 32;
    }
    if (which == 2) {
        p.arch = VTI_ARCH_GEMMA3;
        p.d = 96;
        p.window = 8;
        p.window_period = 6;
    }
    return p;
}

static void fuzz_geometry(unsigned which, vti_geometry *out)
{
    vti_hparams hparams = fuzz_hparams(which);
    vti_geometry_init(out, &hparams, which == 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static vti_kernels kernels;
    vti_geometry geometry;
    vti_manifest manifest;
    vt_error err;
    if (bytes < 1) return 0;
    if (!kernels.matmul[VTI_F16].packed_bytes) vti_kernels_init(&kernels, 0);
    fuzz_geometry(data[0] % FUZZ_MODELS, &geometry);
    if (vti_manifest_new(&geometry, &kernels, 1, 2, &manifest, &err) != VT_OK) abort();
    manifest.same_file = data[0] & 0x80;
    uint8_t *message = malloc(bytes); /* exact, so that ASan sees a read past it */
    memcpy(message, data + 1, bytes - 1);
    if (vti_manifest_decode(&manifest, message, bytes - 1, &err) == VT_OK) {
        uint8_t *again = malloc(bytes);
        vti_manifest_encode(&manifest, again);
        if (memcmp(again, message, bytes - 1) != 0) abort();
        free(again);
        for (uint32_t i = 0; i < manifest.count; i++) {
            vti_shard_layout layout;
            if (manifest.entries[i].left_out && manifest.entries[i].bytes == 0) continue;
            if (!vti_manifest_lay_out(&manifest, i, &layout)) abort();
            if (layout.bytes == 0 || layout.bytes != manifest.entries[i].bytes) abort();
        }
    } else if (err.status != VT_ERR_PROTOCOL || !err.message[0]) {
        abort();
    }
    free(message);
    vti_manifest_free(&manifest);
    return 0;
}
