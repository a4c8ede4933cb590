#include "model_shards.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_pace.h"

/* A unit that changes. Touched by one thread at a time: requests of a change are all made before
 * any of them is over, because the change itself holds one. */
typedef struct unit_change {
    vt_model *model;
    uint32_t unit;
    vti_precision precision;
    atomic_uint left;
    vt_status status;
    char sentence[sizeof((vt_error *)0)->message];
    vti_precision_done *done;
    void *user;
} unit_change;

vt_status vti_model_open_table(vt_model *model, vt_error *err)
{
    const vti_geometry *g = &model->geometry;
    uint32_t *slots = malloc(g->units * sizeof *slots);
    if (!slots) return vti_fail(err, VT_ERR_MEMORY, "no memory for %" PRIu32 " units", g->units);
    for (uint32_t unit = 0; unit < g->units; unit++) slots[unit] = vti_unit_shards(g, unit) + 1;
    vt_status status = vti_shard_table_open(g->units, slots, &model->table, err);
    free(slots);
    return status;
}

vt_status vti_model_open_loader(vt_model *model, vti_load_pace pace, uint64_t extra_bytes,
                                vt_error *err)
{
    vt_status status = VT_OK;
    pthread_mutex_lock(&model->lock);
    if (!model->loader) {
        model->supplier = (vti_shard_supplier){model->shards, model->memory};
        vti_shard_loader_params params = {model->table, vti_shard_supply_of(&model->supplier), pace,
                                          extra_bytes};
        status = vti_shard_loader_open(&params, &model->loader, err);
    }
    pthread_mutex_unlock(&model->lock);
    return status;
}

static void let_go(unit_change *c)
{
    if (atomic_fetch_sub(&c->left, 1) != 1) return;
    if (!c->model->store) vti_gguf_let_go(c->model->gguf);
    if (c->done) c->done(c->user, c->unit, c->precision, c->status, c->sentence);
    free(c);
}

static void on_shard(void *user, vti_shard_id id, vt_status status, const char *sentence)
{
    unit_change *c = user;
    (void)id;
    if (status != VT_OK && c->status == VT_OK) {
        c->status = status;
        snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
    }
    let_go(c);
}

static vt_status check(vt_model *model, uint32_t unit, vti_precision precision, vt_error *err)
{
    vti_shard_form form;
    vti_shard_id id = {unit, 0, precision};
    if (unit >= model->geometry.units)
        return vti_fail(err, VT_ERR_ARGUMENT, "unit %" PRIu32 " of a model of %" PRIu32 " units",
                        unit, model->geometry.units);
    if (!vti_shard_table_has(model->table, unit))
        return vti_fail(err, VT_ERR_ARGUMENT, "unit %" PRIu32 " is not loaded", unit);
    if (precision >= VTI_PRECISION_COUNT)
        return vti_fail(err, VT_ERR_ARGUMENT, "there is no precision %d", (int)precision);
    if (model->shards->form(model->shards->self, id, &form)) return VT_OK;
    return vti_fail(err, VT_ERR_ARGUMENT, "%s has no weights at precision %s",
                    model->shards->name, vti_precision_name(precision));
}

static vt_status request_all(unit_change *c, uint32_t priority, vt_error *err)
{
    uint32_t shards = vti_unit_shards(&c->model->geometry, c->unit);
    for (uint32_t shard = 0; shard < shards; shard++) {
        if (!vti_composition_has(&c->model->composition, c->unit, shard)) continue;
        vti_load_request request = {
            .id = {c->unit, shard, c->precision},
            .priority = priority,
            .group = c->unit,
            .done = on_shard,
            .user = c,
        };
        atomic_fetch_add(&c->left, 1);
        vt_status status = vti_shard_loader_request(c->model->loader, &request, NULL, err);
        if (status == VT_OK) continue;
        vti_shard_loader_cancel_group(c->model->loader, c->unit);
        c->done = NULL; /* the caller is told by us */
        let_go(c);
        return status;
    }
    return VT_OK;
}

vt_status vti_model_set_precision(vt_model *model, uint32_t unit, vti_precision precision,
                                  uint32_t priority, vti_precision_done *done, void *user,
                                  vt_error *err)
{
    VTI_TRY(check(model, unit, precision, err));
    vti_load_pace pace = vti_load_pace_beside(vti_pool_threads(model->pool));
    VTI_TRY(vti_model_open_loader(model, pace, 0, err));
    unit_change *c = calloc(1, sizeof *c);
    if (!c) return vti_fail(err, VT_ERR_MEMORY, "no memory for a change of precision");
    c->model = model;
    c->unit = unit;
    c->precision = precision;
    c->done = done;
    c->user = user;
    atomic_init(&c->left, 1);
    vt_status status = request_all(c, priority, err);
    let_go(c);
    return status;
}

void vti_model_cancel_precision(vt_model *model, uint32_t unit)
{
    if (model->loader) vti_shard_loader_cancel_group(model->loader, unit);
}

vt_status vti_model_count_precisions(const vt_model *model, uint32_t unit,
                                     uint32_t out[VTI_PRECISION_COUNT], vt_error *err)
{
    vti_shard_reader *reader;
    memset(out, 0, VTI_PRECISION_COUNT * sizeof *out);
    if (!vti_shard_table_has(model->table, unit)) return VT_OK;
    VTI_TRY(vti_shard_reader_open(model->table, &reader, err));
    vti_shard **shards = vti_shard_reader_enter(reader, unit);
    for (uint32_t i = 0; i < vti_unit_shards(&model->geometry, unit); i++)
        if (shards[i]) out[shards[i]->id.precision]++;
    vti_shard_reader_close(reader);
    return VT_OK;
}
