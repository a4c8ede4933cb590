/* importance_progress.c: what was measured so far, beside the file that is wanted. */
#include <inttypes.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "importance_internal.h"
#include "model.h"
#include "save_stream.h"

enum { VERSION = 1, HASH_BYTES = 32 };
static const uint8_t prefix[VTI_SAVE_PREFIX_BYTES] = {'V', 'T', 'I', 'P', VERSION, 0, 0, 0};
#define KIND "an unfinished measurement"
static const char what[] = "unfinished measurement (remove it to begin anew)";

static char *path_of(const char *path)
{
    static const char suffix[] = ".progress";
    char *out = malloc(strlen(path) + sizeof suffix);
    if (out) strcat(strcpy(out, path), suffix);
    return out;
}

static void add(crypto_generichash_state *hash, const void *data, size_t bytes)
{
    crypto_generichash_update(hash, data, bytes);
}

/* Of everything that the sums depend on. */
static void fingerprint(const vt_importance *m, uint8_t out[HASH_BYTES])
{
    crypto_generichash_state hash;
    const vti_importance *im = m->data;
    uint32_t numbers[] = {m->p.exact, m->context, m->batch, (uint32_t)m->p.kv_type};
    crypto_generichash_init(&hash, NULL, 0, HASH_BYTES);
    add(&hash, im->task, sizeof im->task);
    add(&hash, &im->identity, sizeof im->identity);
    add(&hash, im->text, sizeof im->text);
    add(&hash, numbers, sizeof numbers);
    add(&hash, m->wanted, im->units * sizeof *m->wanted);
    add(&hash, m->model->composition.precision, im->units);
    crypto_generichash_final(&hash, out, HASH_BYTES);
}

static void write_numbers(vti_save_writer *w, const double *x, uint64_t count)
{
    if (x) vti_save_write(w, x, (size_t)count * sizeof *x);
}

static vt_status save(const vt_importance *m, const char *path, vt_error *err)
{
    vti_save_writer *w;
    uint8_t own[HASH_BYTES];
    fingerprint(m, own);
    VTI_TRY(vti_save_writer_open(path, prefix, KIND, &w, err));
    vti_save_write(w, own, sizeof own);
    vti_save_write_u32(w, m->place.window);
    vti_save_write_u32(w, m->place.counted);
    vti_save_write_u64(w, m->place.run);
    write_numbers(w, &m->whole_nll, 1);
    write_numbers(w, m->nll, m->runs);
    write_numbers(w, m->squares, m->data->channels);
    return vti_save_writer_commit(w, err);
}

vt_status vti_importance_save_progress(vt_importance *m, const char *path, vt_error *err)
{
    char *beside = path_of(path);
    if (!beside) return vti_fail(err, VT_ERR_MEMORY, "no memory to save the progress");
    vt_status status = save(m, beside, err);
    free(beside);
    m->saved_ns = vti_now_ns();
    return status;
}

void vti_importance_remove_progress(const char *path)
{
    char *beside = path_of(path);
    if (beside) unlink(beside);
    free(beside);
}

/* --- reading ---------------------------------------------------------------------------------- */

static vt_status read_place(vti_save_reader *r, vt_importance *m, vt_error *err)
{
    uint32_t window, counted;
    uint64_t run;
    VTI_TRY(vti_save_read_u32(r, &window, err));
    VTI_TRY(vti_save_read_u32(r, &counted, err));
    VTI_TRY(vti_save_read_u64(r, &run, err));
    if (window > m->window_count || counted > 1 || run > m->runs || (run && !counted))
        return vti_save_damaged(r, "it says what cannot be", err);
    m->place = (vti_importance_place){window, counted, run};
    return VT_OK;
}

static vt_status read_numbers(vti_save_reader *r, double *x, uint64_t count, vt_error *err)
{
    if (!x) return VT_OK;
    VTI_TRY(vti_save_read(r, x, (size_t)count * sizeof *x, err));
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(x[i]) || x[i] < 0)
            return vti_save_damaged(r, "a sum is no number, or negative", err);
    return VT_OK;
}

static vt_status read_sums(vti_save_reader *r, vt_importance *m, const char *path, vt_error *err)
{
    uint8_t own[HASH_BYTES], found[HASH_BYTES];
    fingerprint(m, own);
    VTI_TRY(vti_save_read(r, found, sizeof found, err));
    if (memcmp(own, found, sizeof own) != 0) {
        VTI_TRY(vti_save_skip_rest(r, err)); /* or is it damaged? */
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "%s is the progress of another measurement: another model, text, task or "
                        "option; remove it to begin this one, or choose another output", path);
    }
    VTI_TRY(read_place(r, m, err));
    VTI_TRY(read_numbers(r, &m->whole_nll, 1, err));
    VTI_TRY(read_numbers(r, m->nll, m->runs, err));
    VTI_TRY(read_numbers(r, m->squares, m->data->channels, err));
    return vti_save_read_end(r, err);
}

/* Runs that lie before the place. */
static uint64_t runs_before(const vt_importance *m)
{
    uint64_t of_window = 0, begun = 0;
    for (uint32_t unit = 0; unit < m->data->units; unit++) {
        vti_run_range runs = vti_importance_runs_of(m, unit);
        if (!m->wanted[unit]) continue;
        of_window += runs.end - runs.first;
        if (m->place.run > runs.first)
            begun += (m->place.run < runs.end ? m->place.run : runs.end) - runs.first;
    }
    return m->place.window * of_window + begun;
}

static vt_status load(vt_importance *m, const char *path, vt_error *err)
{
    vti_save_reader *r;
    VTI_TRY(vti_save_reader_open(path, what, prefix, &r, err));
    vt_status status = read_sums(r, m, path, err);
    vti_save_reader_close(r);
    return status;
}

vt_status vti_importance_resume(vt_importance *m, const char *path, vt_error *err)
{
    char *beside = path_of(path);
    if (!beside) return vti_fail(err, VT_ERR_MEMORY, "no memory to save the progress");
    vt_status status = VT_OK;
    if (access(beside, F_OK) == 0) status = load(m, beside, err);
    if (status == VT_OK) m->resumed = runs_before(m);
    free(beside);
    return status;
}
