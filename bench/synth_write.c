#include "synth.h"

#include <math.h>
#include <stdlib.h>

/* Floats that are made, quantised and written at a time: they stay in the second-level cache. */
enum { BATCH_FLOATS = 65536 };

typedef struct writer {
    const synth_plan *plan;
    synth_output out;
    synth_bytes header;
    float *floats;         /* one batch */
    unsigned char *packed; /* the same, quantised */
    uint64_t total_bytes;
    const vt_progress *progress;
    const volatile int *cancel;
} writer;

/* Frequency factors of llama-3.x: rotations that are slow for the 8192 tokens of the first training
 * are slowed down by `factor`, fast ones are left alone, in between it is blended. */
static void rope_factors(const synth_shape *s, float *out)
{
    const double low = 1, high = 4, first_context = 8192, pi = 3.14159265358979323846;
    for (uint32_t i = 0; i < s->head_dim / 2; i++) {
        double wavelength = 2 * pi * pow(s->rope_base, 2.0 * i / s->head_dim);
        double turns = first_context / wavelength;
        double blend = turns > high ? 1 : turns < low ? 0 : (turns - low) / (high - low);
        out[i] = (float)(1 / ((1 - blend) / s->rope_factor + blend));
    }
}

static vt_status write_batch(writer *w, const synth_tensor *t, size_t floats, vt_error *err)
{
    t->type->pack(w->packed, w->floats, floats);
    VTI_TRY(synth_output_write(&w->out, w->packed,
                               floats / t->type->block * t->type->block_bytes, err));
    if (w->progress && w->progress->report)
        w->progress->report(w->progress->user, w->plan->shape->name, w->out.written,
                            w->total_bytes);
    if (w->cancel && *w->cancel) return vti_fail(err, VT_ERR_CANCELLED, "interrupted");
    return VT_OK;
}

static vt_status write_tensor(writer *w, const synth_tensor *t, vt_error *err)
{
    synth_random random;
    uint64_t left = t->dimensions[0] * t->dimensions[1] * t->dimensions[2];
    synth_random_seed(&random, w->plan->seed, t->name);
    while (left) {
        size_t part = left < BATCH_FLOATS ? (size_t)left : BATCH_FLOATS;
        if (t->filling == SYNTH_ROPE_FACTORS)
            rope_factors(w->plan->shape, w->floats);
        else
            synth_random_gauss(&random, w->floats, part, t->mean, t->deviation);
        VTI_TRY(write_batch(w, t, part, err));
        left -= part;
    }
    static const unsigned char zeros[SYNTH_ALIGNMENT];
    size_t over = t->size_bytes % SYNTH_ALIGNMENT;
    return synth_output_write(&w->out, zeros, over ? SYNTH_ALIGNMENT - over : 0, err);
}

static vt_status write_all(writer *w, const char *path, vt_error *err)
{
    w->floats = malloc(BATCH_FLOATS * sizeof *w->floats);
    w->packed = malloc(BATCH_FLOATS * sizeof *w->floats);
    synth_put_header(&w->header, w->plan);
    if (!w->floats || !w->packed || w->header.failed)
        return vti_fail(err, VT_ERR_MEMORY, "no memory to write %s", path);
    w->total_bytes = w->header.count + w->plan->data_bytes;
    VTI_TRY(synth_output_open(&w->out, path, w->total_bytes, err));
    VTI_TRY(synth_output_write(&w->out, w->header.data, w->header.count, err));
    for (size_t i = 0; i < w->plan->count; i++)
        VTI_TRY(write_tensor(w, &w->plan->tensors[i], err));
    return synth_output_finish(&w->out, err);
}

vt_status synth_write(const synth_plan *plan, const char *path, const vt_progress *progress,
                      const volatile int *cancel, vt_error *err)
{
    writer w = {.plan = plan, .out = {.descriptor = -1}, .progress = progress, .cancel = cancel};
    vt_status status = write_all(&w, path, err);
    synth_output_close(&w.out);
    free(w.header.data);
    free(w.floats);
    free(w.packed);
    return status;
}
