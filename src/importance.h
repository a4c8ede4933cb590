/* importance.h: how much worse a model predicts a text without one of its parts.
 *
 * Parts of ATTN and FFN units are their shards. HEAD's shards are words, which cannot be missed;
 * its parts are blocks of the columns of its matrix, as wide as shards of an FFN with d hidden
 * channels. A part's score is by how much the perplexity rises without it, a unit's the sum over
 * its parts. A score that is not above zero means no more than that the text does not tell. EMBED
 * has none.
 *
 * A file has what was measured for one task on one text; docs/importance.md describes measurement
 * and format. */
#ifndef VTI_IMPORTANCE_H
#define VTI_IMPORTANCE_H

#include "../planner/planner.h"
#include "geometry.h"
#include "model_identity.h"

enum { VTI_TASK_BYTES_MAX = 64, VTI_TEXT_HASH_BYTES = 32 };

typedef struct vti_importance_part {
    uint32_t unit, part;    /* the geometry's unit, the part's number in it */
    uint32_t channels;      /* columns of Wo, down or the output matrix that belong to it */
    uint64_t first_channel; /* in vti_importance.channel */
} vti_importance_part;

typedef struct vti_importance {
    /* What is measured follows from the model. */
    uint32_t units;               /* of the geometry that have parts: all but EMBED, the last */
    uint32_t parts;
    uint64_t channels;
    vti_importance_part *part_at; /* in the order of the units */
    uint32_t *first_part;         /* units + 1: of each unit, and the end */
    /* What was measured. */
    char task[VTI_TASK_BYTES_MAX + 1];
    vti_model_identity identity;
    vti_precision precision;      /* of the weights */
    uint8_t text[VTI_TEXT_HASH_BYTES]; /* of the tokens and how they were cut */
    uint64_t tokens;              /* that were predicted */
    uint32_t context_tokens;      /* of a window at most */
    bool exact;                   /* channel by channel */
    double perplexity;            /* of the whole model */
    bool *measured;               /* units; what was not is all 0 */
    double *unit, *part, *channel; /* scores */
} vti_importance;

/* All parts of a model, nothing measured. */
vt_status vti_importance_new(const vti_geometry *g, vti_importance **out, vt_error *err);
void vti_importance_free(vti_importance *importance);

/* The file, for free(); NULL: no memory. One unit per line. */
char *vti_importance_write_json(const vti_importance *importance, const vti_geometry *g);

/* Fills *out, of that geometry, from a file's text. ERR_FORMAT says what is wrong where, and leaves
 * *out half filled; ERR_ARGUMENT: it is not of this model (NULL: of any). */
vt_status vti_importance_read_json(const char *text, size_t bytes, const vti_geometry *g,
                                   const vti_model_identity *identity, vti_importance *out,
                                   vt_error *err);

/* Reads a file that was measured on this very model. ERR_FORMAT: it is damaged or something else;
 * ERR_ARGUMENT: it is of another model. */
vt_status vti_importance_load(const char *path, const vti_geometry *g,
                              const vti_model_identity *identity, vti_importance **out,
                              vt_error *err);

/* For the planner, in its numbering: *out gets the units' scores and, from `shard`, which shards
 * are pruned first; of a mixture these are the experts. `shard`: VTI_PLAN_UNITS_MAX rows, which
 * must live as long as *out is used. ERR_ARGUMENT: units of the model are not in the file, or it
 * has more of them than the planner takes. */
vt_status vti_importance_for_plan(const vti_importance *importance, const vti_geometry *g,
                                  float (*shard)[VTI_PLAN_PRUNABLE_MAX], vti_plan_importance *out,
                                  vt_error *err);

#endif
