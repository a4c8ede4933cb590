/* synth.h: GGUF files with random weights in the shape of a published model.
 *
 *   shape (synth_shapes.c)  → tensors with names, dimensions, types (synth_plan.c)
 *                           → metadata and tokenizer (synth_metadata.c, synth_vocabulary.c)
 *                           → the file (synth_write.c): random rows (synth_random.c), quantised
 *                             (src/quantize.c), written as they come (synth_output.c)
 */
#ifndef VTI_BENCH_SYNTH_H
#define VTI_BENCH_SYNTH_H

#include <stddef.h>

#include "../src/error.h"
#include "../src/quantize.h"

/* --- shapes ----------------------------------------------------------------------------------- */

typedef enum synth_family {
    SYNTH_QWEN2,
    SYNTH_QWEN2MOE,
    SYNTH_GEMMA3,
    SYNTH_LLAMA,
    SYNTH_QWEN3,
    SYNTH_FAMILY_COUNT
} synth_family;

typedef struct synth_shape {
    const char *name; /* "qwen2.5-0.5b" */
    synth_family family;
    uint32_t layers, d, heads, kv_heads, head_dim, ff, vocab, context;
    float rope_base, rms_eps;
    bool tied;                                 /* output matrix = embedding matrix */
    uint32_t experts, experts_used, expert_ff; /* mixture of experts; ff is the shared expert's */
    uint32_t window;                           /* sliding window, tokens */
    float rope_factor;                         /* linear or llama-3 scaling; 0: none */
} synth_shape;

/* `architecture` as in general.architecture. */
const char *synth_architecture(synth_family family);

/* All shapes; ends with one whose name is NULL. */
const synth_shape *synth_shapes(void);
const synth_shape *synth_shape_find(const char *name);

/* --- weight types ----------------------------------------------------------------------------- */

typedef struct synth_type {
    const char *name;
    uint32_t number;    /* ggml's */
    uint32_t file_type; /* general.file_type of a file that is all of it */
    uint32_t block, block_bytes;
    vti_quantize_fn *pack;
} synth_type;

extern const synth_type synth_f32, synth_f16, synth_bf16, synth_q8_0, synth_q4_0, synth_q5_0,
    synth_q5_1, synth_q4_1, synth_iq4_nl, synth_q2_k, synth_q3_k, synth_q4_k, synth_q5_k,
    synth_q6_k, synth_iq4_xs;

/* All of them; ends with NULL. */
extern const synth_type *const synth_types[];

/* `type`, or what takes its place in rows of `cols` that its blocks do not fit. */
const synth_type *synth_fitting_type(const synth_type *type, uint64_t cols);

/* --type: which type each matrix gets. */
typedef struct synth_mix {
    const char *name;       /* "q4_k_m" */
    uint32_t file_type;     /* general.file_type */
    const synth_type *base;
    bool output_q6;         /* the output matrix (or the tied embedding) is Q6_K */
    bool more_bits;         /* some attn_v and ffn_down are Q6_K */
} synth_mix;

/* All mixes; ends with one whose name is NULL. */
const synth_mix *synth_mixes(void);
const synth_mix *synth_mix_find(const char *name);

/* --- what is to be written -------------------------------------------------------------------- */

/* What a tensor's weights are like: gaussian with mean and standard deviation, or the frequency
 * factors of llama-3. */
typedef enum synth_filling { SYNTH_GAUSS, SYNTH_ROPE_FACTORS } synth_filling;

typedef struct synth_tensor {
    char name[64];
    const synth_type *type;
    const synth_type *wanted; /* the type the mix asks for; its blocks may not fit the rows */
    uint32_t dimension_count;
    uint64_t dimensions[3];   /* columns first */
    synth_filling filling;
    float mean, deviation;
    uint64_t offset_bytes;    /* in the data section */
    uint64_t size_bytes;
} synth_tensor;

typedef struct synth_plan {
    const synth_shape *shape;
    const synth_mix *mix;
    uint64_t seed;
    synth_tensor *tensors;
    size_t count, room;
    uint64_t parameters, data_bytes;
    bool failed;             /* out of memory while it was made */
} synth_plan;

/* Fills in `tensors`; shape, mix and seed are set. Free with synth_plan_free. */
vt_status synth_plan_make(synth_plan *plan, vt_error *err);
void synth_plan_free(synth_plan *plan);

/* --- bytes ------------------------------------------------------------------------------------ */

/* A growing buffer. `failed` once memory ran out; puts do nothing from then on. */
typedef struct synth_bytes {
    unsigned char *data;
    size_t count, room;
    uint64_t entries; /* metadata entries put so far */
    bool failed;
} synth_bytes;

void synth_put(synth_bytes *to, const void *data, size_t bytes);
void synth_put_u32(synth_bytes *to, uint32_t value);
void synth_put_u64(synth_bytes *to, uint64_t value);
void synth_put_f32(synth_bytes *to, float value);
void synth_put_text(synth_bytes *to, const char *text); /* length and bytes */

/* Metadata entries. `type` is a vti_gguf_type; after synth_put_key the value is put. */
void synth_put_key(synth_bytes *to, const char *key, uint32_t type);
void synth_key_u32(synth_bytes *to, const char *key, uint32_t value);
void synth_key_f32(synth_bytes *to, const char *key, float value);
void synth_key_bool(synth_bytes *to, const char *key, bool value);
void synth_key_text(synth_bytes *to, const char *key, const char *value);
/* The array's elements are put next. */
void synth_key_array(synth_bytes *to, const char *key, uint32_t type, uint64_t count);

/* Magic number, version, counts and metadata; the tensor directory comes next, then the padding up
 * to the data section. */
void synth_put_file_head(synth_bytes *to, uint64_t tensors, const synth_bytes *metadata);
void synth_put_padding(synth_bytes *to);
/* The whole header: metadata and tensor directory, padded to the data section. */
void synth_put_header(synth_bytes *to, const synth_plan *plan);
/* The tokenizer.ggml.* entries for a vocabulary of plan->shape->vocab tokens. */
void synth_put_vocabulary(synth_bytes *to, const synth_plan *plan);

enum { SYNTH_ALIGNMENT = 32, SYNTH_LEAST_VOCABULARY = 320 };

/* --- random rows ------------------------------------------------------------------------------ */

enum { SYNTH_LANES = 16 };

typedef struct synth_random {
    uint32_t a[SYNTH_LANES], b[SYNTH_LANES];
} synth_random;

/* One sequence per seed and tensor name. */
void synth_random_seed(synth_random *random, uint64_t seed, const char *name);
void synth_random_gauss(synth_random *random, float *out, size_t count, float mean,
                        float deviation);

/* --- output ----------------------------------------------------------------------------------- */

/* A file that appears under its name when it is complete, and not at all otherwise. */
typedef struct synth_output {
    const char *path;
    char *temporary;
    int descriptor;
    unsigned char *buffer;
    size_t buffered;
    uint64_t written;
} synth_output;

/* Makes the temporary file and claims `total_bytes` on the disk where the system can do that. */
vt_status synth_output_open(synth_output *out, const char *path, uint64_t total_bytes,
                            vt_error *err);
vt_status synth_output_write(synth_output *out, const void *data, size_t bytes, vt_error *err);
vt_status synth_output_finish(synth_output *out, vt_error *err); /* gives the file its name */
void synth_output_close(synth_output *out); /* removes the file unless it was finished */

/* Writes plan's file. `progress` may be NULL; *cancel (may be NULL) set ends it with
 * VT_ERR_CANCELLED. */
vt_status synth_write(const synth_plan *plan, const char *path, const vt_progress *progress,
                      const volatile int *cancel, vt_error *err);

#endif
