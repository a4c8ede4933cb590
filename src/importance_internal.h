/* importance_internal.h: an importance that is being measured.
 *
 * The text is cut into windows, and a run is one window without one part (or, exact, without one
 * channel). Runs have the numbers of parts (channels). A run begins with the residual stream before
 * its part's unit, so only that unit and later ones are computed. For each run the sum of -ln p
 * over all windows so far is kept. */
#ifndef VTI_IMPORTANCE_INTERNAL_H
#define VTI_IMPORTANCE_INTERNAL_H

#include "head.h"
#include "importance.h"
#include "stage.h"

typedef struct vti_window {
    size_t first;   /* of its tokens */
    uint32_t count; /* the last one is predicted, but not computed */
} vti_window;

/* How far it is: `run` is the next one of window number `window`, whose squares were counted. */
typedef struct vti_importance_place {
    uint32_t window;
    bool counted;
    uint64_t run;
} vti_importance_place;

struct vt_importance {
    vt_model *model;
    const vti_geometry *g;
    vti_importance *data; /* the scores come at the end */
    vt_importance_params p;
    bool *wanted;         /* units that are measured */
    uint32_t context, batch;
    /* The text. */
    vt_token *tokens;
    size_t token_count, token_room;
    vti_window *windows;
    uint32_t window_count, window_room;
    /* Computing. */
    vti_stage *stage;
    vti_head head;
    float *h;           /* tokens × d of the longest window: before the unit whose runs are made */
    float *work;        /* the same, of one run */
    float *logits;      /* VTI_HEAD_ROWS × vocab */
    uint64_t scratch_bytes;
    /* What came out so far. */
    vti_importance_place place;
    uint64_t runs;      /* of a window, wanted or not */
    double *nll;        /* runs */
    double whole_nll;   /* of the whole model */
    double *squares;    /* channels: sums of squares of what is multiplied with the column … */
    double *fresh;      /* … and of the window that the whole model goes through; NULL: exact */
    uint64_t resumed;   /* runs that were there already */
    uint64_t done_work, total_work; /* thousands of multiply-accumulates */
    uint64_t saved_ns;
};

/* Runs of a unit: [first, end). */
typedef struct vti_run_range {
    uint64_t first, end;
} vti_run_range;
vti_run_range vti_importance_runs_of(const vt_importance *m, uint32_t unit);

/* Stage, head and buffers. */
vt_status vti_importance_open_compute(vt_importance *m, vt_error *err);
void vti_importance_close_compute(vt_importance *m);

/* Makes the runs that are left. ERR_CANCELLED: the place is where to go on. */
vt_status vti_importance_run(vt_importance *m, const char *path, vt_error *err);

/* Fills m->data. */
vt_status vti_importance_finish(vt_importance *m, vt_error *err);

/* --- how far it is, in a file beside the one that is wanted ----------------------------------- */

/* Goes on where that file says, if there is one. ERR_ARGUMENT: it is of another measurement. */
vt_status vti_importance_resume(vt_importance *m, const char *path, vt_error *err);
vt_status vti_importance_save_progress(vt_importance *m, const char *path, vt_error *err);
void vti_importance_remove_progress(const char *path);

#endif
