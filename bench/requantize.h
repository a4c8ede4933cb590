/* requantize.h: a GGUF file with its matrices in another weight type. */
#ifndef VTI_BENCH_REQUANTIZE_H
#define VTI_BENCH_REQUANTIZE_H

#include "../src/gguf.h"
#include "synth.h"

/* What became of a file's matrices. */
typedef struct requantize_report {
    uint64_t tensors, changed;
    uint64_t fallen_back; /* of the changed ones: the type's blocks do not fit their rows */
    uint64_t source_bytes, data_bytes;
} requantize_report;

/* Writes `gguf` to `path` with its matrices as `type`, rounded from what their present type says
 * they are: Q8_0 and Q4_K with a search for scales, the others to the nearest step. Vectors and the
 * routers of mixtures of experts stay as they are, and so does all metadata but general.file_type.
 * ERR_UNSUPPORTED names a tensor whose type cannot be read. */
vt_status requantize(const vt_gguf *gguf, const synth_type *type, const char *path,
                     const vt_progress *progress, const volatile int *cancel,
                     requantize_report *report, vt_error *err);

#endif
