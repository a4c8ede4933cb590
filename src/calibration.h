/* calibration.h: how much the input channels of a model's matrices matter for rounding its weights,
 * measured on a text.
 *
 * An input is what one or several matrices are multiplied with; its importance is the mean of the
 * squares of each of its channels. Quantising weighs errors with it (quantize_search.h). A file
 * holds all inputs of one model; docs/calibration.md has its format. */
#ifndef VTI_CALIBRATION_H
#define VTI_CALIBRATION_H

#include "model_identity.h"
#include "roles.h"

/* `role` is the first matrix that has this input: VTI_ATTN_Q, VTI_ATTN_OUT, VTI_FFN_GATE,
 * VTI_FFN_DOWN, VTI_EXPERTS_GATE, VTI_EXPERTS_DOWN, VTI_SHARED_GATE, VTI_SHARED_DOWN, VTI_OUTPUT */
typedef struct vti_calibration_input {
    vti_role role;
    uint32_t layer, slice; /* VTI_OUTPUT: as of a layer behind the last */
    uint32_t cols;
    uint64_t tokens;       /* that were seen; 0: nothing is known, all of `mean` is 0 */
    float *mean;           /* of squares: cols, finite and not negative */
} vti_calibration_input;

typedef struct vti_calibration {
    uint32_t layers, experts;
    uint32_t count;
    vti_calibration_input *inputs; /* in the order of layers, then as in a layer's arithmetic */
    float *values;                 /* of all inputs, one after the other */
    uint64_t value_count;
} vti_calibration;

/* All inputs of a model, nothing seen. */
vt_status vti_calibration_new(const vti_hparams *hparams, vti_calibration **out, vt_error *err);
void vti_calibration_free(vti_calibration *calibration);

/* The input of any matrix; NULL if the role is no matrix or has no input, as the embedding. */
vti_calibration_input *vti_calibration_input_of(const vti_calibration *calibration, uint32_t layer,
                                                vti_role role, uint32_t slice);

/* Importance of a matrix' columns, or NULL if nothing is known of them. `calibration`: a
 * vti_calibration. A vti_column_weights_fn. */
const float *vti_calibration_of(void *calibration, uint32_t layer, vti_role role, uint32_t slice);

/* Writes a file, whole or not at all, that is bound to the model it was measured on. */
vt_status vti_calibration_save(const vti_calibration *calibration, const char *path,
                               const vti_model_identity *identity, vt_error *err);

/* Reads the file of the model that has these hyperparameters and this identity. ERR_FORMAT: it is
 * damaged or something else; ERR_ARGUMENT: it was measured on another model. */
vt_status vti_calibration_load(const char *path, const vti_hparams *hparams,
                               const vti_model_identity *identity, vti_calibration **out,
                               vt_error *err);

#endif
