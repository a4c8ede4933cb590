#include "importance.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "plan_model.h"
#include "stage.h"
#include "store_format.h"

/* --- parts ------------------------------------------------------------------------------------ */

/* HEAD's blocks are those of an FFN with d hidden channels. */
static vti_geometry head_blocks(const vti_geometry *g)
{
    vti_geometry blocks;
    vti_hparams hparams = g->hparams;
    hparams.ff = hparams.d;
    hparams.experts = 0;
    vti_geometry_init(&blocks, &hparams, g->quantised);
    return blocks;
}

static uint32_t parts_of(const vti_geometry *g, const vti_geometry *blocks, uint32_t unit)
{
    return unit == vti_head_unit(g) ? vti_unit_shards(blocks, vti_ffn_unit(0))
                                    : vti_unit_shards(g, unit);
}

static void list_parts(vti_importance *im, const vti_geometry *g, const vti_geometry *blocks)
{
    vti_importance_part *at = im->part_at;
    for (uint32_t unit = 0; unit < im->units; unit++) {
        bool head = unit == vti_head_unit(g);
        im->first_part[unit] = (uint32_t)(at - im->part_at);
        for (uint32_t i = 0; i < parts_of(g, blocks, unit); i++) {
            uint32_t channels = head ? vti_shard_channels(blocks, vti_ffn_unit(0), i)
                                     : vti_shard_channels(g, unit, i);
            *at++ = (vti_importance_part){unit, i, channels, im->channels};
            im->channels += channels;
        }
    }
    im->first_part[im->units] = im->parts;
}

static bool allocate_scores(vti_importance *im)
{
    im->measured = calloc(im->units, sizeof *im->measured);
    im->unit = calloc(im->units, sizeof *im->unit);
    im->part = calloc(im->parts, sizeof *im->part);
    im->channel = calloc((size_t)im->channels, sizeof *im->channel);
    return im->measured && im->unit && im->part && im->channel;
}

vt_status vti_importance_new(const vti_geometry *g, vti_importance **out, vt_error *err)
{
    *out = NULL;
    vti_importance *im = calloc(1, sizeof *im);
    if (!im) return vti_fail(err, VT_ERR_MEMORY, "no memory for importances");
    vti_geometry blocks = head_blocks(g);
    im->units = vti_embed_unit(g);
    for (uint32_t unit = 0; unit < im->units; unit++) im->parts += parts_of(g, &blocks, unit);
    im->part_at = calloc(im->parts, sizeof *im->part_at);
    im->first_part = calloc(im->units + 1, sizeof *im->first_part);
    if (im->part_at && im->first_part) list_parts(im, g, &blocks);
    if (!im->part_at || !im->first_part || !allocate_scores(im)) {
        vti_importance_free(im);
        return vti_fail(err, VT_ERR_MEMORY, "no memory for importances");
    }
    *out = im;
    return VT_OK;
}

void vti_importance_free(vti_importance *im)
{
    if (!im) return;
    free(im->part_at);
    free(im->first_part);
    free(im->measured);
    free(im->unit);
    free(im->part);
    free(im->channel);
    free(im);
}

/* --- for the planner -------------------------------------------------------------------------- */

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static float as_float(double x)
{
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

vt_status vti_importance_for_plan(const vti_importance *im, const vti_geometry *g,
                                  float (*shard)[VTI_PLAN_PRUNABLE_MAX], vti_plan_importance *out,
                                  vt_error *err)
{
    memset(out, 0, sizeof *out);
    if (g->units > VTI_PLAN_UNITS_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT, "plans are made for models of at most %d units",
                        (int)VTI_PLAN_UNITS_MAX);
    memset(shard, 0, VTI_PLAN_UNITS_MAX * sizeof *shard);
    for (uint32_t unit = 0; unit < im->units; unit++) {
        char name[24];
        vti_unit_name(g, unit, name, sizeof name);
        if (!im->measured[unit])
            return vti_fail(err, VT_ERR_ARGUMENT,
                            "the importance of %s was not measured; without --units "
                            "\"voltron-run importance\" measures all units", name);
        unsigned u = vti_plan_unit_of(g, unit);
        const double *scores = im->part + im->first_part[unit];
        uint32_t parts = im->first_part[unit + 1] - im->first_part[unit];
        out->unit[u] = im->unit[unit];
        for (uint32_t i = 0; i < smaller(parts, VTI_PLAN_PRUNABLE_MAX); i++)
            shard[u][i] = as_float(scores[i]);
    }
    out->shard = (const float(*)[VTI_PLAN_PRUNABLE_MAX])shard;
    return VT_OK;
}
