#include "session_kv.h"

static bool is_remote(const vt_session *s)
{
    return s->cluster && vti_cluster_has_remote(s->cluster);
}

/* Layers [0, layers) of the model. */
static vti_kv_shape shape_of(const vt_session *s, uint32_t layers, uint32_t end)
{
    return (vti_kv_shape){&s->model->hparams, 0, layers, end, vti_stage_cache(s->stage)->row_bytes};
}

/* This device runs the first layers. */
static vti_kv_shape own_shape(const vt_session *s, uint32_t end)
{
    return shape_of(s, vti_stage_cache(s->stage)->p.layers, end);
}

/* --- saving ----------------------------------------------------------------------------------- */

/* How far back each layer goes stands before all rows. */
static void write_shape(vti_save_writer *w, const vt_session *s, uint32_t end)
{
    const vti_hparams *p = &s->model->hparams;
    vti_save_write_u32(w, p->layers);
    vti_save_write_u32(w, p->kv_heads);
    vti_save_write_u64(w, vti_stage_cache(s->stage)->row_bytes);
    for (uint32_t layer = 0; layer < p->layers; layer++)
        vti_save_write_u32(w, vti_kv_first(p, layer, end));
}

static vt_status write_rows(void *user, const vti_kv_chunk *chunk, void *rows, size_t bytes,
                            vt_error *err)
{
    (void)chunk;
    (void)err;
    vti_save_write(user, rows, bytes); /* an error is told at the end */
    return VT_OK;
}

vt_status vti_session_write_kv(vt_session *s, vti_save_writer *w, vt_error *err)
{
    uint32_t end = s->computed;
    const vti_kv_cache *cache = vti_stage_cache(s->stage);
    vti_kv_shape own = own_shape(s, end);
    vti_kv_chunk chunk = {0};
    write_shape(w, s, end);
    while (vti_kv_next_chunk(&own, &chunk))
        vti_save_write(w, vti_kv_chunk_rows(cache, &chunk), chunk.rows * own.row_bytes);
    if (!is_remote(s) || end == 0) return VT_OK;
    vti_kv_stream stream = {write_rows, w};
    return vti_cluster_fetch_kv(s->cluster, end, own.row_bytes, &stream, err);
}

/* --- loading ---------------------------------------------------------------------------------- */

static vt_status read_shape(vti_save_reader *r, const vt_session *s, uint32_t end, vt_error *err)
{
    const vti_hparams *p = &s->model->hparams;
    uint32_t layers, heads, first = 0;
    uint64_t row_bytes;
    VTI_TRY(vti_save_read_u32(r, &layers, err));
    VTI_TRY(vti_save_read_u32(r, &heads, err));
    VTI_TRY(vti_save_read_u64(r, &row_bytes, err));
    bool fits = layers == p->layers && heads == p->kv_heads &&
                row_bytes == vti_stage_cache(s->stage)->row_bytes;
    for (uint32_t layer = 0; fits && layer < layers; layer++) {
        VTI_TRY(vti_save_read_u32(r, &first, err));
        fits = first == vti_kv_first(p, layer, end);
    }
    return fits ? VT_OK : vti_save_damaged(r, "its KV cache has another shape", err);
}

vt_status vti_session_check_kv(const vt_session *s, vti_save_reader *r, uint32_t end,
                               vt_error *err)
{
    vti_kv_shape all = shape_of(s, s->model->hparams.layers, end);
    vti_kv_chunk chunk = {0};
    VTI_TRY(read_shape(r, s, end, err));
    while (vti_kv_next_chunk(&all, &chunk))
        VTI_TRY(vti_save_read(r, NULL, chunk.rows * all.row_bytes, err));
    return VT_OK;
}

static vt_status read_rows(void *user, const vti_kv_chunk *chunk, void *rows, size_t bytes,
                           vt_error *err)
{
    (void)chunk;
    return vti_save_read(user, rows, bytes, err);
}

vt_status vti_session_read_kv(vt_session *s, vti_save_reader *r, uint32_t end, vt_error *err)
{
    vti_kv_cache *cache = vti_stage_cache(s->stage);
    vti_kv_shape own = own_shape(s, end);
    vti_kv_chunk chunk = {0};
    VTI_TRY(read_shape(r, s, end, err));
    vti_kv_cache_restore(cache, end);
    while (vti_kv_next_chunk(&own, &chunk))
        VTI_TRY(vti_save_read(r, vti_kv_chunk_rows(cache, &chunk), chunk.rows * own.row_bytes,
                              err));
    if (!is_remote(s)) return VT_OK;
    vti_kv_stream stream = {read_rows, r};
    return vti_cluster_store_kv(s->cluster, end, own.row_bytes, &stream, err);
}

vt_status vti_session_restart_devices(vt_session *s, vt_error *err)
{
    if (!is_remote(s)) return VT_OK;
    vti_cluster_end_session(s->cluster);
    s->cluster_begun = false;
    return vti_session_begin_devices(s, err);
}
