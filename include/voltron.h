/* voltron.h: the public interface of libvoltron.
 *
 * Voltron runs a GGUF language model on one device or on several nearby ones.
 *
 *   vt_model    an opened model file: weights (memory-mapped), tokenizer, facts. Immutable once
 *               open; may be shared by any number of sessions and threads.
 *   vt_cluster  worker devices that hold a part of a model's layers. Optional.
 *   vt_session  one conversation: token history, KV cache, sampler. One thread at a time.
 *   vt_worker   the other side of a cluster: lends this process's memory and cores.
 *
 * Rules that hold for every function here:
 *   - The library never prints, exits, aborts or reads the environment. What went wrong comes back
 *     as a vt_status and, where the caller passes one, a sentence in a vt_error. `err` may be NULL.
 *   - On failure nothing is allocated: out-parameters hold NULL (or are untouched, where stated).
 *   - Sizes say their unit: _bytes, _tokens, _ns. Strings are UTF-8, NUL-terminated unless a length
 *     is passed along. Pointers returned by a getter belong to the object they were asked of.
 *   - Threads: calls on a vt_model (but its close), and on different sessions, may run at the same
 *     time. A session, a cluster with its session, a chat and a worker are each for one thread at a
 *     time, which may be another one for every call; only vt_session_cancel and vt_worker_stop may
 *     come from anywhere at any time before the close, signal handlers included. A callback runs in
 *     the thread whose call causes it and must not call what it was called from.
 *   - Parameter structs come from their vt_…_params_default() and are changed field by field.
 *
 * docs/example.c is a complete program; docs/library.md explains the parts.
 */
#ifndef VOLTRON_H
#define VOLTRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VT_VERSION "0.1.0"

/* Version of the library that was linked, e.g. "0.1.0". */
const char *vt_version(void);

/* ---------------------------------------------------------------------------------------------
 * Status codes
 * ------------------------------------------------------------------------------------------- */

/* One line per code: name, number, text. vt_status, vt_status_name and vt_status_text are made of
 * it. Numbers are stable: they also are voltron-run's exit codes. */
#define VT_STATUS_MAP(X)                                                                           \
    X(OK, 0, "success")                                                                            \
    X(ERR_INTERNAL, 1, "internal error (a bug in Voltron)")                                        \
    X(ERR_ARGUMENT, 2, "invalid argument")                                                         \
    X(ERR_IO, 3, "file could not be read or written")                                              \
    X(ERR_FORMAT, 4, "malformed input")                                                            \
    X(ERR_UNSUPPORTED, 5, "not supported")                                                         \
    X(ERR_MEMORY, 6, "not enough memory")                                                          \
    X(ERR_CONTEXT_FULL, 7, "the context is full")                                                  \
    X(ERR_NETWORK, 8, "a device could not be reached or was lost")                                 \
    X(ERR_PROTOCOL, 9, "a device sent something that was not expected")                            \
    X(ERR_TIMEOUT, 10, "a deadline passed")                                                        \
    X(ERR_BUSY, 11, "in use")                                                                      \
    X(ERR_CANCELLED, 12, "cancelled")                                                              \
    X(ERR_REMOTE, 13, "a device reported an error")

typedef enum vt_status {
#define X(name, number, text) VT_##name = (number),
    VT_STATUS_MAP(X)
#undef X
} vt_status;

/* "VT_ERR_IO" and "file could not be read or written"; for an unknown number "VT_UNKNOWN" and
 * "unknown status". Never NULL. */
const char *vt_status_name(vt_status status);
const char *vt_status_text(vt_status status);

/* What went wrong, for a person: names the offender (file, key, tensor, device, flag), what was
 * found and what would be right. Filled only by a call that fails. */
typedef struct vt_error {
    vt_status status;
    char message[512];
} vt_error;

/* ---------------------------------------------------------------------------------------------
 * Log and progress
 * ------------------------------------------------------------------------------------------- */

typedef enum vt_log_level { VT_LOG_DEBUG, VT_LOG_INFO, VT_LOG_WARNING, VT_LOG_ERROR } vt_log_level;

/* Receives one line without newline, in the thread whose call causes it: sessions of one model in
 * several threads use its log at the same time. `write` NULL: no log. */
typedef struct vt_log {
    void (*write)(void *user, vt_log_level level, const char *message);
    void *user;
} vt_log;

/* Receives how far a long operation is, in bytes. Called from the thread that started it. */
typedef struct vt_progress {
    void (*report)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} vt_progress;

/* ---------------------------------------------------------------------------------------------
 * GGUF files, as they are
 * ------------------------------------------------------------------------------------------- */

/* A GGUF file's metadata and tensor directory, of any architecture. */
typedef struct vt_gguf vt_gguf;

typedef struct vt_gguf_entry {
    const char *key;
    const char *type;   /* "u32", "str", "f32[2048]", … */
    uint64_t count;     /* elements; 1 for a scalar */
} vt_gguf_entry;

typedef struct vt_gguf_tensor {
    const char *name;
    const char *type;        /* "F16", "Q8_0", … */
    const char *loads_as;    /* what a model's weights of that type become: `type` itself, another
                                one where that has no kernel, or NULL: they cannot be loaded */
    uint32_t dimension_count;
    uint64_t dimensions[4];  /* innermost (contiguous) first, as in the file; unused ones are 1 */
    uint32_t part;           /* the file of a split model that holds it, from 0 */
    uint64_t offset_bytes;   /* from the start of that file */
    uint64_t size_bytes;
} vt_gguf_tensor;

/* Of a model in several files (NAME-00001-of-00003.gguf …) `path` is any one; all are opened. */
vt_status vt_gguf_open(const char *path, vt_gguf **out, vt_error *err);
void vt_gguf_close(vt_gguf *gguf);
uint32_t vt_gguf_version(const vt_gguf *gguf);
uint32_t vt_gguf_part_count(const vt_gguf *gguf); /* files; 1 if it is not split */
const char *vt_gguf_part_name(const vt_gguf *gguf, uint32_t index); /* its path; NULL past the end */
uint64_t vt_gguf_entry_count(const vt_gguf *gguf);
uint64_t vt_gguf_tensor_count(const vt_gguf *gguf);

/* Entry or tensor `index` (< count). VT_ERR_ARGUMENT past the end. */
vt_status vt_gguf_get_entry(const vt_gguf *gguf, uint64_t index, vt_gguf_entry *out);
vt_status vt_gguf_get_tensor(const vt_gguf *gguf, uint64_t index, vt_gguf_tensor *out);

/* Text of an entry's value: numbers in decimal, strings escaped and quoted, of an array its first
 * `max_elements`. Writes at most `capacity` bytes with the NUL; returns the bytes the whole text
 * needs without it, as snprintf does. */
size_t vt_gguf_entry_text(const vt_gguf *gguf, uint64_t index, uint64_t max_elements, char *buffer,
                          size_t capacity);

/* ---------------------------------------------------------------------------------------------
 * Models
 * ------------------------------------------------------------------------------------------- */

typedef struct vt_model vt_model;

typedef struct vt_model_params {
    bool vocabulary_only; /* read the tokenizer, expect no weights */
    uint32_t threads;     /* that compute, the caller's included; 0: one per big core */
    const char *pre_tokenizer; /* how byte-level BPE splits text into words, such as "qwen2", instead
                                  of the file's tokenizer.ggml.pre; NULL: as the file says */
    const char *precision;     /* "F16", "I8" or "I4": what sessions compute with. NULL: the highest
                                  that the file has; smaller ones are made of a GGUF file's own as
                                  they load, a shard store has what was packed */
    const char *plan_json;     /* instead of it: a plan as text, as voltron-run plan writes it; every
                                  unit is computed at its precision there, without the shards that
                                  are pruned; NULL: none. Where units run is not taken from it */
    uint64_t memory_bytes; /* most that weights, KV caches, scratch and queues of this model's
                              sessions and cluster take on this device; 0: what the system has to
                              spare, looked at again whenever a session or cluster is opened */
    vt_log log;
    vt_progress progress; /* of weights that are loaded when the first session or cluster is opened */
} vt_model_params;

typedef struct vt_model_info {
    const char *architecture; /* "qwen2", "qwen2moe", "qwen3", "gemma3", "llama" */
    const char *name;         /* general.name, fit for a terminal, or "" */
    uint32_t layers;
    uint32_t embedding_length; /* d */
    uint32_t heads, kv_heads, head_dim;
    uint32_t feed_forward_length;
    uint32_t vocabulary_tokens;
    uint32_t context_tokens;   /* what the model was trained for */
    uint64_t parameters;
    uint64_t weight_bytes;     /* as stored in the file */
    uint64_t kv_bytes_per_token_f16;
} vt_model_info;

vt_model_params vt_model_params_default(void);

/* Opens a GGUF file (v2 or v3), all files of a split model of which `path` is any one, or a shard
 * store. Files are mapped read-only and must not change while open.
 * ERR_IO, ERR_FORMAT (which key or tensor is wrong), ERR_UNSUPPORTED (architecture, weight type,
 * tokenizer), ERR_MEMORY. */
vt_status vt_model_open(const char *path, const vt_model_params *params, vt_model **out,
                        vt_error *err);

/* The same from memory (an asset of an app). `data` is 32-byte aligned, is not copied and must
 * stay valid and unchanged until the model is closed. */
vt_status vt_model_open_memory(const void *data, size_t data_bytes, const vt_model_params *params,
                               vt_model **out, vt_error *err);

/* Closes a model that no session or cluster uses any more. NULL is fine. */
void vt_model_close(vt_model *model);

void vt_model_get_info(const vt_model *model, vt_model_info *out);

/* ---------------------------------------------------------------------------------------------
 * Shard stores
 * ------------------------------------------------------------------------------------------- */

/* A model in one file, cut into the pieces that devices hold, each at several precisions, ready for
 * the kernels, compressed and checksummed. docs/store.md has the format. */
typedef struct vt_store vt_store;

/* From the largest to the smallest. */
typedef enum vt_precision { VT_PRECISION_F16, VT_PRECISION_I8, VT_PRECISION_I4 } vt_precision;

enum { VT_PRECISION_COUNT = 3 };

/* "F16", "I8", "I4"; "unknown" for another number. */
const char *vt_precision_name(vt_precision precision);

typedef struct vt_pack_params {
    uint32_t threads;     /* that quantise and compress, 0: one per big core */
    uint32_t precisions;  /* bits 1 << VT_PRECISION_…; 0: all that the model offers */
    const char *calibration_path; /* what calibration wrote, for better rounding; or NULL */
    bool (*cancelled)(void *user); /* asked often, in the calling thread; or NULL */
    void *user;
    vt_log log;
    vt_progress progress; /* in bytes of shards */
} vt_pack_params;

vt_pack_params vt_pack_params_default(void);

/* Writes the model as a shard store, whole or not at all; a store of that name is replaced at the
 * end, any other file never. The same model and parameters give the same bytes. ERR_ARGUMENT: the
 * model does not offer such a precision; ERR_IO says how much room was needed; ERR_CANCELLED. */
vt_status vt_pack(const vt_model *model, const char *path, const vt_pack_params *params,
                  vt_error *err);

/* Does the file begin as a shard store does? */
bool vt_store_is(const char *path);

/* Opens a store for reading; its directory and index are checked. The file must not change while
 * open. ERR_FORMAT says what is wrong where. */
vt_status vt_store_open(const char *path, vt_store **out, vt_error *err);
void vt_store_close(vt_store *store);

/* Pieces (shards and what the shards of a unit share), their bytes for the kernels and in the
 * file. */
typedef struct vt_store_sum {
    uint64_t count, bytes, stored_bytes;
} vt_store_sum;

typedef struct vt_store_info {
    uint32_t version;
    uint32_t layout_version; /* of the bytes that kernels read */
    uint32_t units;
    uint64_t file_bytes;
    uint64_t directory_bytes; /* metadata and tokenizer */
    vt_store_sum precision[VT_PRECISION_COUNT]; /* count 0: not offered */
    vt_store_sum shared;     /* by the shards of each unit, at any precision */
    vt_store_sum embedding;
} vt_store_info;

typedef struct vt_store_unit {
    char name[24];           /* "ATTN(3)", "FFN(0)", "HEAD", "EMBED" */
    uint32_t shards;
    vt_store_sum precision[VT_PRECISION_COUNT], shared;
    char types[VT_PRECISION_COUNT][48]; /* of the matrices: "Q8_0", "Q4_K Q6_K" */
} vt_store_unit;

void vt_store_get_info(const vt_store *store, vt_store_info *out);

/* Unit `index` (< units). VT_ERR_ARGUMENT past the end. */
vt_status vt_store_get_unit(const vt_store *store, uint32_t index, vt_store_unit *out);

/* The metadata and the tensors of the file that the store was made of; they have no data here. */
const vt_gguf *vt_store_gguf(const vt_store *store);

/* Reads and checks every byte of the file. Of `params` only `threads`, `cancelled` and `progress`
 * matter; NULL: the defaults. */
vt_status vt_store_verify(const vt_store *store, const vt_pack_params *params, vt_error *err);

/* ---------------------------------------------------------------------------------------------
 * Text and tokens
 * ------------------------------------------------------------------------------------------- */

typedef int32_t vt_token;

#define VT_TOKEN_NONE (-1)

typedef enum vt_tokenize_flags {
    VT_TOKENIZE_BOS = 1,     /* put the BOS token first if the model asks for one */
    VT_TOKENIZE_SPECIAL = 2, /* recognise control tokens such as <|im_start|> in the text; without
                                it they are ordinary characters, which is what user text needs */
} vt_tokenize_flags;

vt_token vt_model_bos(const vt_model *model); /* VT_TOKEN_NONE if there is none */
vt_token vt_model_eos(const vt_model *model);
bool vt_model_is_stop(const vt_model *model, vt_token token); /* eos, eot, eom or end of turn */

/* Tokens that `text_bytes` of text need at most, BOS included. */
size_t vt_tokenize_bound(const vt_model *model, size_t text_bytes);

/* Writes the token ids of `text` into `tokens` (room for `capacity`) and their number into *count.
 * Bytes that are not UTF-8 are kept, as byte tokens. ERR_ARGUMENT if the room does not suffice
 * (*count then is what is needed), ERR_FORMAT if the vocabulary cannot spell a byte, ERR_MEMORY. */
vt_status vt_tokenize(const vt_model *model, const char *text, size_t text_bytes, unsigned flags,
                      vt_token *tokens, size_t capacity, size_t *count, vt_error *err);

/* Bytes of one token, not NUL-terminated; may be a part of a UTF-8 sequence. Control tokens give
 * their name. NULL and 0 bytes for an id outside the vocabulary. */
const char *vt_token_bytes(const vt_model *model, vt_token token, size_t *bytes);
bool vt_token_is_control(const vt_model *model, vt_token token);

/* ---------------------------------------------------------------------------------------------
 * Device profiles
 * ------------------------------------------------------------------------------------------- */

/* What computing costs on one device: coefficients by kind of unit, precision and phase, fitted to
 * measurements of this very library's code (docs/profile.md). Planning needs one of each device. */
typedef struct vt_profile vt_profile;

typedef struct vt_profile_params {
    uint32_t threads;              /* that sessions will have; 0: one per big core */
    bool trial;                    /* everything once, in a moment: only to see that it works */
    bool (*cancelled)(void *user); /* asked often, in the calling thread; or NULL */
    void *user;
    vt_progress progress;          /* in thousandths */
} vt_profile_params;

vt_profile_params vt_profile_params_default(void);

/* Measures this device, for some seconds and with all of its threads; what other programs disturbed,
 * a second time (`disturbance` of the info tells whether that helped). `params` NULL: the defaults.
 * ERR_MEMORY, ERR_CANCELLED. */
vt_status vt_profile_measure(const vt_profile_params *params, vt_profile **out, vt_error *err);

/* Measures shapes that the profile was not fitted to, and notes in it how well it predicts them.
 * Of `params`, `threads` does not matter. ERR_ARGUMENT: it is not this device's. */
vt_status vt_profile_check(vt_profile *profile, const vt_profile_params *params, vt_error *err);

/* Was it measured on such a processor, with as many threads (0: the default), by this version? */
bool vt_profile_is_current(const vt_profile *profile, uint32_t threads);

/* The same; ERR_ARGUMENT says what is different. */
vt_status vt_profile_compare(const vt_profile *profile, uint32_t threads, vt_error *err);

/* A file name for it in a cache folder, as snprintf does. */
size_t vt_profile_cache_name(uint32_t threads, char *buffer, size_t capacity);

typedef struct vt_profile_info {
    const char *name;    /* of the processor, or the class of devices */
    const char *version; /* of Voltron that measured it; "": worked out from published figures */
    uint32_t threads;
    uint64_t cache_bytes; /* of the last level: smaller models stay in it */
    double bytes_per_s;   /* reading memory */
    double accuracy;      /* the mean of those that are known; 0: none is */
    double disturbance;   /* just measured while other programs ran: predictions may be off by so
                           * much; such a profile is not worth keeping. 0: none known */
} vt_profile_info;

void vt_profile_get_info(const vt_profile *profile, vt_profile_info *out);

/* Classes of devices that are known from published figures, for planning without having them. */
typedef struct vt_device_class {
    char name[32];  /* "pixel-5" */
    char title[64]; /* "Pixel 5 (Snapdragon 765G)" */
    char group[16]; /* "phone", "tablet", "automotive", "watch", "board", "iot", "laptop" */
    uint64_t memory_bytes;
} vt_device_class;

size_t vt_device_class_count(void);

/* Class `index` (< count). VT_ERR_ARGUMENT past the end. */
vt_status vt_device_class_get(size_t index, vt_device_class *out);

/* What a device of that class would be measured as, worked out. ERR_ARGUMENT names all classes. */
vt_status vt_profile_of_class(const char *name, vt_profile **out, vt_error *err);

typedef enum vt_unit_kind {
    VT_UNIT_ATTN, VT_UNIT_FFN, VT_UNIT_MOE, VT_UNIT_HEAD,
    VT_UNIT_KIND_COUNT
} vt_unit_kind;

/* Seconds, each to be multiplied with what its name says; docs/profile.md has the formula. */
typedef struct vt_profile_cost {
    double fixed_s, mac_s, weight_byte_s, cached_byte_s, kv_byte_s, cached_kv_byte_s, kv_mac_s,
        shard_s, value_s;
    double accuracy; /* 1 less the mean relative error on shapes not fitted; 0: not checked */
} vt_profile_cost;

/* ERR_ARGUMENT for a kind or precision that does not exist. */
vt_status vt_profile_get_cost(const vt_profile *profile, vt_unit_kind kind, vt_precision precision,
                              bool decode, vt_profile_cost *out);

/* Reads a profile that was saved. ERR_IO; ERR_FORMAT says what is wrong. */
vt_status vt_profile_load(const char *path, vt_profile **out, vt_error *err);

/* Writes JSON, whole or not at all; a profile of that name is replaced at the end, any other file
 * never (ERR_ARGUMENT). */
vt_status vt_profile_save(const vt_profile *profile, const char *path, vt_error *err);

void vt_profile_close(vt_profile *profile); /* NULL is fine */

/* The JSON text, as snprintf does: returns the bytes it needs without the NUL, which may be more
 * than `capacity`; 0 without memory. */
size_t vt_profile_text(const vt_profile *profile, char *buffer, size_t capacity);

/* ---------------------------------------------------------------------------------------------
 * Clusters: the main device's side
 * ------------------------------------------------------------------------------------------- */

typedef struct vt_cluster vt_cluster;

/* Precision of the KV cache: halves; floats (for verification); INT8 with an F16 scale per 32. */
typedef enum vt_kv_type { VT_KV_F16, VT_KV_F32, VT_KV_Q8 } vt_kv_type;

typedef struct vt_cluster_params {
    const char *const *devices; /* device_count strings "HOST:PORT" */
    size_t device_count;
    /* Who runs which layers. Unless said otherwise it is planned: the fastest answers by what the
     * devices offer of memory and speed and by the links to them; a device that would only slow
     * things down is left out. Of more than 7 devices all get even shares. */
    const uint32_t *split;      /* layers per device in a row: device_count + 1 numbers, the main
                                   device first, or device_count numbers (the main device then runs
                                   no layer, only embedding and output). NULL: none given */
    size_t split_count;
    bool split_evenly;          /* even shares, in the order of `devices` */
    const char *plan_json;      /* a plan as text (vt_cluster_plan_text, voltron-run plan): device 0
                                   is the main one, 1 the first of `devices`. The model has to be
                                   opened with it, too. Carried out so far: whole layers in a row on
                                   each device. NULL: none given */
    uint32_t ttft_ms, tpot_ms;  /* time to the first token, and per token after it, that is wanted;
                                   a plan that misses it is a warning. 0: 10 s and 400 ms */
    const vt_profile *profile;  /* how fast this device is; NULL: not known, then all devices are
                                   taken to be alike, and a plan goes by memory and links only */
    const char *key_path;       /* file with the cluster key; NULL: none, loopback only */
    /* What sessions will ask for, so that memory is checked before weights travel; 0: the
     * defaults of vt_session_params. */
    uint32_t context_tokens, batch_tokens;
    vt_kv_type kv_type;
    uint32_t connect_timeout_ms;
    uint32_t step_timeout_ms;   /* longest wait for a result while all devices show life */
    const char *cache_path;     /* folder for weights that were prepared for devices, so that the next
                                   start need not prepare them again; NULL: none */
    uint64_t cache_max_bytes;   /* 0: a tenth of what is free on its disk, at most 20 GiB */
    vt_log log;
    vt_progress progress;
} vt_cluster_params;

typedef struct vt_device_info {
    const char *address;   /* "main" or HOST:PORT */
    uint32_t first_layer, layer_count;
    uint64_t memory_bytes; /* its budget; 0: not limited */
    uint64_t weight_bytes; /* weights it holds for this model */
    uint64_t sent_bytes;   /* what of them had to be sent when the cluster was opened, compressed */
    uint64_t busy_ns;      /* time spent computing since the cluster was opened */
    const char *left_out;  /* why a plan gives it no layers; or NULL */
} vt_device_info;

/* What a plan says about speed, at a full context. */
typedef struct vt_cluster_prediction {
    bool is_known;         /* false: layers were split by hand or evenly, all else is zero */
    bool meets_qos;        /* both are as short as wanted: */
    double ttft_s, tpot_s; /* to the first token of such a prompt; per token after it */
    uint32_t prompt_tokens, context_tokens;
} vt_cluster_prediction;

vt_cluster_params vt_cluster_params_default(void);

/* Connects to the devices, decides who runs which layers and gives each the weights that it does
 * not have yet, to all at the same time. ERR_NETWORK names the device that could not be reached,
 * ERR_MEMORY each device's shortfall and what would help, ERR_BUSY a device that serves another main device,
 * ERR_UNSUPPORTED what of a plan cannot be carried out. */
vt_status vt_cluster_open(const vt_model *model, const vt_cluster_params *params, vt_cluster **out,
                          vt_error *err);

/* After the session that uses it was closed. NULL is fine. */
void vt_cluster_close(vt_cluster *cluster);

/* Devices including the main one, which is index 0. */
size_t vt_cluster_device_count(const vt_cluster *cluster);
vt_status vt_cluster_get_device(const vt_cluster *cluster, size_t index, vt_device_info *out);

void vt_cluster_get_prediction(const vt_cluster *cluster, vt_cluster_prediction *out);

/* What runs where, as text for vt_cluster_params.plan_json. Writes at most `capacity` bytes with
 * the NUL; returns the bytes the whole text needs without it, as snprintf does. 0: there is none, as
 * there are too many devices, or no memory. */
size_t vt_cluster_plan_text(const vt_cluster *cluster, char *buffer, size_t capacity);

/* ---------------------------------------------------------------------------------------------
 * Sessions
 * ------------------------------------------------------------------------------------------- */

typedef struct vt_session vt_session;

/* Added to a token's logit before anything else; -INFINITY: never drawn. */
typedef struct vt_logit_bias {
    vt_token token;
    float bias;
} vt_logit_bias;

/* How the next token is drawn, applied in this order; docs/sampling.md has the formulas. A session
 * copies it, the list of biases included. A value out of range is ERR_ARGUMENT naming the field. */
typedef struct vt_sampling {
    const vt_logit_bias *logit_bias; /* logit_bias_count of them, in any order */
    size_t logit_bias_count;
    float repeat_penalty;        /* 1: off. Divides positive, multiplies negative logits … */
    float frequency_penalty;     /* 0: off. Subtracted once per occurrence, -100 to 100 … */
    float presence_penalty;      /* 0: off. Subtracted once … */
    uint32_t repeat_last_tokens; /* … of the tokens seen last, that many */
    uint32_t top_k;              /* 0: off */
    float typical_p;             /* 1: off. Locally typical sampling */
    float top_p;                 /* 1: off */
    float min_p;                 /* 0: off. Relative to the most likely token that is left */
    float temperature;           /* 0: always the most likely token */
    uint64_t seed;               /* same seed, same model, same text: same answer */
    uint32_t logprobs; /* 0: off; N: log probabilities of each drawn token and of the N likeliest */
} vt_sampling;

enum { VT_LOGPROBS_MAX = 100 };

typedef struct vt_session_params {
    uint32_t context_tokens; /* 0: the model's, at most 4096 */
    uint32_t batch_tokens;   /* prefill batch, 0: 128 */
    vt_kv_type kv_type;
    vt_sampling sampling;
    vt_cluster *cluster;     /* NULL: everything in this process. One session per cluster */
} vt_session_params;

typedef struct vt_session_stats {
    uint64_t prefill_tokens, prefill_ns;
    uint64_t decode_tokens, decode_ns; /* computed one by one; the newest drawn is not yet */
    uint64_t drawn_tokens;
    uint64_t weight_bytes_per_token; /* what decoding one token reads, over all devices; of experts
                                        only those that are used */
    uint32_t context_tokens, used_tokens;
    uint64_t kv_bytes;               /* on this device */
} vt_session_stats;

typedef enum vt_stop_reason {
    VT_STOP_LENGTH,  /* max_tokens were produced */
    VT_STOP_TOKEN,   /* the model ended its text */
    VT_STOP_CONTEXT, /* no room left in the context */
    VT_STOP_CALLER,  /* the callback said stop, or vt_session_cancel was called */
    VT_STOP_STRING,  /* a stop string appeared */
} vt_stop_reason;

/* A piece of text that may be shown now: whole UTF-8 sequences. Return false to stop. */
typedef bool (*vt_text_fn)(void *user, const char *text, size_t text_bytes);

/* A token and the natural logarithm of its probability. */
typedef struct vt_logprob {
    vt_token token;
    float logprob;
} vt_logprob;

/* A token that was drawn. With vt_sampling.logprobs also its log probability as the model gave it,
 * that is before bias, penalties, filters and temperature, and those of the likeliest tokens, best
 * first; without, `logprob` is 0 and `top_count` 0. Valid during the call. */
typedef struct vt_drawn {
    vt_logprob drawn;
    const vt_logprob *top;
    size_t top_count;
} vt_drawn;

/* Return false to stop. */
typedef bool (*vt_token_fn)(void *user, const vt_drawn *token);

/* Logits of one position, `vocabulary_tokens` floats, valid during the call. Return false to
 * stop. */
typedef bool (*vt_logits_fn)(void *user, uint32_t position, const float *logits);

vt_sampling vt_sampling_default(void); /* temperature 0.7, top_k 40, top_p 0.95, min_p 0.05, … */
vt_session_params vt_session_params_default(void);

/* ERR_MEMORY says what the KV cache would need; ERR_BUSY: the cluster has a session already. */
vt_status vt_session_open(const vt_model *model, const vt_session_params *params, vt_session **out,
                          vt_error *err);
void vt_session_close(vt_session *session);

/* Appends tokens to the history and computes them (prefill). Nothing is appended on
 * ERR_CONTEXT_FULL and ERR_ARGUMENT (an id outside the vocabulary). */
vt_status vt_session_feed(vt_session *session, const vt_token *tokens, size_t count, vt_error *err);

/* The same for text; flags as for vt_tokenize. */
vt_status vt_session_feed_text(vt_session *session, const char *text, size_t text_bytes,
                               unsigned flags, vt_error *err);

/* As vt_session_feed, and hands out the logits of every position. */
vt_status vt_session_feed_logits(vt_session *session, const vt_token *tokens, size_t count,
                                 vt_logits_fn on_logits, void *user, vt_error *err);

/* Draws the next token, appends it to the history and computes it when it is needed. */
vt_status vt_session_next(vt_session *session, vt_token *out, vt_error *err);

/* Draws up to max_tokens tokens and streams their text. The stop token is not shown. */
vt_status vt_session_generate(vt_session *session, uint64_t max_tokens, vt_text_fn on_text,
                              void *user, vt_stop_reason *reason, vt_error *err);

/* What happens when the context is full. */
typedef enum vt_context_policy {
    VT_CONTEXT_STOP,  /* an answer ends, a question that does not fit is refused */
    VT_CONTEXT_SHIFT, /* generate: the older half of the history is left out (vt_session_shift);
                         chats: the oldest questions and answers, the system text stays */
} vt_context_policy;

/* The same with more choices. */
typedef struct vt_generation {
    uint64_t max_tokens;
    vt_context_policy context_policy;
    const char *const *stop; /* stop_count texts that end the answer. What stands before one is
                                delivered, the text itself and what follows is not, wherever the
                                borders of the tokens lie; the history keeps all tokens drawn */
    size_t stop_count;
    vt_text_fn on_text;      /* NULL: no text is wanted */
    vt_token_fn on_token;    /* every token drawn, the stop token too, before its text; or NULL */
    void *user;              /* of both */
} vt_generation;

enum { VT_STOP_STRINGS_MAX = 64, VT_STOP_STRING_BYTES_MAX = 1024 };

vt_generation vt_generation_default(void); /* no end but the model's own */

/* ERR_ARGUMENT for a stop string that is empty, too long or not UTF-8. */
vt_status vt_session_generate_with(vt_session *session, const vt_generation *generation,
                                   vt_stop_reason *reason, vt_error *err);

/* Draws by these parameters from now on; on failure by the old ones. The random sequence goes on,
 * unless the seed is another one. */
vt_status vt_session_set_sampling(vt_session *session, const vt_sampling *sampling, vt_error *err);

/* Log probabilities of the token drawn last; `out` belongs to the session until its next call.
 * ERR_ARGUMENT if none was drawn yet or vt_sampling.logprobs is 0. */
vt_status vt_session_get_drawn(const vt_session *session, vt_drawn *out, vt_error *err);

/* Forgets all but the first `tokens` tokens (0: everything). */
vt_status vt_session_rewind(vt_session *session, uint32_t tokens, vt_error *err);

/* Leaves out the oldest tokens, but not a BOS at the very beginning, so that at least `free_tokens`
 * more have room, and computes the rest anew. ERR_CONTEXT_FULL if the whole context is less. */
vt_status vt_session_shift(vt_session *session, uint32_t free_tokens, vt_error *err);

/* The history, `*count` ids. */
const vt_token *vt_session_history(const vt_session *session, size_t *count);

/* Logits after the newest token, or NULL before the first. Valid until the next call. */
vt_status vt_session_logits(vt_session *session, const float **out, vt_error *err);

/* Ends the running call soon, or else the next one at once, with ERR_CANCELLED (generate:
 * VT_STOP_CALLER). Callable from any thread and from signal handlers. */
void vt_session_cancel(vt_session *session);

void vt_session_get_stats(const vt_session *session, vt_session_stats *out);

/* --- session files ---
 * A file holds a conversation: history, keys and values of all layers (also those of other
 * devices), the state of the random sequence, and `blob`, anything of the caller's (may be NULL).
 * It is checksummed and bound to the model and the KV cache's precision, not to the context's size
 * nor to how the layers are spread over devices. docs/sessions.md has the format. */

enum { VT_SESSION_BLOB_MAX = 1 << 26 };

/* Writes the file whole or not at all: a file of that name is replaced at the end and is unchanged
 * on failure. ERR_IO names what the system said (such as: no space left on device), ERR_NETWORK a
 * device that was lost. */
vt_status vt_session_save(vt_session *session, const char *path, const void *blob,
                          size_t blob_bytes, vt_error *err);

/* Replaces what the session holds by what was saved; sampling parameters, context and batch stay
 * the session's own. The tokens that follow are those that would have followed the save. *blob
 * (NULL if none was saved) belongs to the session until the next load or the close; `blob` and
 * `blob_bytes` may be NULL. ERR_FORMAT: the file is damaged; ERR_ARGUMENT: it is of another model
 * or KV precision; ERR_CONTEXT_FULL: it has more tokens than this session's context. The session
 * then is as it was; only if a device or the file is lost half-way (ERR_NETWORK, ERR_IO) it may be
 * empty. */
vt_status vt_session_load(vt_session *session, const char *path, const void **blob,
                          size_t *blob_bytes, vt_error *err);

/* --- calibration ---
 * How much the input channels of each matrix matter: the mean squares of the activations that meet
 * them, counted while a session computes a text. vt_pack rounds weights better with it. */
typedef struct vt_calibration vt_calibration;

typedef struct vt_calibration_stats {
    uint64_t tokens;
    uint32_t inputs; /* of all matrices; several may have the same */
    uint32_t unseen; /* of these, experts that no token was sent to: nothing is known of them */
} vt_calibration_stats;

/* Counts what the session computes from now on, until the close, which comes before the session's.
 * For the output matrix only positions count whose logits were asked for (vt_session_feed_logits).
 * ERR_ARGUMENT for a session on a cluster; ERR_BUSY: the session has one. */
vt_status vt_calibration_open(vt_session *session, vt_calibration **out, vt_error *err);
void vt_calibration_close(vt_calibration *calibration);

void vt_calibration_get_stats(const vt_calibration *calibration, vt_calibration_stats *out);

/* Writes what was counted so far, whole or not at all. ERR_ARGUMENT: nothing was; ERR_FORMAT: the
 * model's activations are not finite. The file is bound to the model; docs/calibration.md has the
 * format. */
vt_status vt_calibration_save(const vt_calibration *calibration, const char *path, vt_error *err);

/* Whether a calibration may be saved there, to be asked before the work: a file that is something
 * else is not replaced (ERR_ARGUMENT). */
vt_status vt_calibration_check_path(const char *path, vt_error *err);

/* --- importance ---
 * How much worse a model predicts a text without one of its parts: by how much the perplexity rises
 * when a shard (of HEAD: a block of columns) is left out. Plans keep the precision of the units
 * high that matter, and prune first what does not. docs/importance.md has the file's format. */
typedef struct vt_importance vt_importance;

typedef struct vt_importance_params {
    const char *task;        /* what the text stands for, 1 to 64 bytes */
    uint32_t context_tokens; /* of a window of the text; this, batch and kv_type: as of sessions */
    uint32_t batch_tokens;
    vt_kv_type kv_type;
    uint64_t max_tokens;     /* that are predicted; 0: all of the text */
    bool exact;              /* channel by channel instead of shard by shard; for small models */
    const char *units;       /* "ATTN(0),FFN,HEAD": only these; NULL: all. Plans need all */
    bool (*cancelled)(void *user); /* asked often, in the calling thread; or NULL */
    void *user;
    vt_progress progress;    /* in units of work, not bytes */
} vt_importance_params;

typedef struct vt_importance_stats {
    uint64_t tokens;       /* that are predicted */
    uint32_t windows, units;
    uint64_t runs;         /* of a window without one part */
    uint64_t resumed_runs; /* that an earlier call had made */
    double perplexity;     /* of the whole model; 0: not measured yet */
} vt_importance_stats;

typedef struct vt_importance_unit {
    char name[24];              /* "ATTN(3)" */
    double score;               /* the sum over its parts */
    uint32_t parts;
    uint32_t least_part, most_part; /* numbers of the parts that matter least and most … */
    double least, most;         /* … and their scores */
} vt_importance_unit;

vt_importance_params vt_importance_params_default(void); /* without a task */

/* The model stays open as long. ERR_ARGUMENT: no task, no such unit; the model lacks shards. */
vt_status vt_importance_open(const vt_model *model, const vt_importance_params *params,
                             vt_importance **out, vt_error *err);
void vt_importance_close(vt_importance *importance);

/* Adds a document: it is cut into windows that begin with BOS, if the model has that. */
vt_status vt_importance_add(vt_importance *importance, const char *text, size_t text_bytes,
                            vt_error *err);

/* Measures and writes the file, whole or not at all. Now and then, and when it is cancelled, what
 * was done so far goes to a file beside it, PATH.progress; the same measurement goes on from there,
 * with the same result. ERR_ARGUMENT: that file is of another measurement, or PATH is something
 * else; ERR_MEMORY says what is needed; ERR_CANCELLED. */
vt_status vt_importance_measure(vt_importance *importance, const char *path, vt_error *err);

/* Whether importances may be written there, to be asked before the work. */
vt_status vt_importance_check_path(const char *path, vt_error *err);

void vt_importance_get_stats(const vt_importance *importance, vt_importance_stats *out);

/* Measured unit `index` (< stats.units), in the order of a token's way. ERR_ARGUMENT past the end. */
vt_status vt_importance_get_unit(const vt_importance *importance, uint32_t index,
                                 vt_importance_unit *out);

/* Memory that one device needs to run a model by itself. */
typedef struct vt_memory_need {
    uint64_t weight_bytes;  /* repacked for the kernels; embeddings are read from the file */
    uint64_t kv_bytes;      /* of a full context; layers with a sliding window keep but that */
    uint64_t scratch_bytes; /* activations of a batch, logits */
    uint32_t context_tokens;
} vt_memory_need;

/* What a session with these parameters (NULL: the defaults) takes when all layers run here. Nothing
 * is loaded for it. All zero for a model without weights. */
void vt_model_memory(const vt_model *model, const vt_session_params *params, vt_memory_need *out);

/* What of its memory a device uses, and for what. Categories are taken before they are allocated:
 * the KV cache in full although its pages are used only as tokens come, queues by their limits. */
typedef struct vt_memory_usage {
    uint64_t limit_bytes; /* 0: none */
    uint64_t used_bytes;  /* the sum of these five: */
    uint64_t weight_bytes, kv_bytes, scratch_bytes, wire_bytes, cache_bytes;
    uint64_t peak_bytes;  /* the most used_bytes was */
    /* The whole device, as the system says (at most a second ago); 0 where it does not. */
    uint64_t available_bytes; /* that could be taken in addition */
    double pressure; /* per cent of the last ten seconds in which some task waited for memory */
    bool is_short;            /* little is available or pressure is high; it is logged once */
} vt_memory_usage;

/* Of all sessions on the model and its cluster, on this device. Callable from any thread. */
void vt_model_get_memory(const vt_model *model, vt_memory_usage *out);

/* ---------------------------------------------------------------------------------------------
 * Chats
 * ------------------------------------------------------------------------------------------- */

/* The messages of a conversation, and how the model wants them written (its chat template). Belongs
 * to one thread at a time, like the session that answers. Control tokens only ever come from the
 * template: what a message says is ordinary text, whatever it looks like. */
typedef struct vt_chat vt_chat;

typedef enum vt_role { VT_ROLE_SYSTEM, VT_ROLE_USER, VT_ROLE_ASSISTANT } vt_role;

typedef struct vt_chat_params {
    const char *template_name; /* one of vt_chat_template_names(); NULL: the file's own template */
    const char *date;          /* for templates that tell the model today's date, "26 Jul 2024" */
    bool skip_thoughts;        /* ask a reasoning model that can be asked so to answer at once */
} vt_chat_params;

typedef struct vt_answer {
    vt_stop_reason reason;
    uint32_t prompt_tokens; /* the conversation before the answer … */
    uint32_t reused_tokens; /* … of which the session had computed that many already */
    uint64_t answer_tokens; /* with the one that ended it */
    size_t left_out;        /* messages that are not in the context any more */
} vt_answer;

/* Names of the templates that can be chosen, "chatml, qwen1.5, …". */
const char *vt_chat_template_names(void);

/* Does the model's file have a chat template, known or not? */
bool vt_model_has_chat_template(const vt_model *model);

vt_chat_params vt_chat_params_default(void);

/* ERR_UNSUPPORTED: the file has no template, or one that is not recognised; it is never guessed.
 * ERR_ARGUMENT: no template has this name. The model must stay open as long as the chat. */
vt_status vt_chat_open(const vt_model *model, const vt_chat_params *params, vt_chat **out,
                       vt_error *err);
void vt_chat_close(vt_chat *chat);

/* Name of the template in use: "chatml", "llama-3.1". */
const char *vt_chat_template(const vt_chat *chat);

/* Replaces the system text; NULL: back to the template's own, if it has one. ERR_UNSUPPORTED if the
 * template has no place for one. */
vt_status vt_chat_set_system(vt_chat *chat, const char *text, size_t text_bytes, vt_error *err);

/* The system text that was set, or NULL. */
const char *vt_chat_system(const vt_chat *chat, size_t *bytes);

/* Appends a message. User and assistant take turns, a user begins; anything else is ERR_ARGUMENT. */
vt_status vt_chat_add(vt_chat *chat, vt_role role, const char *text, size_t text_bytes,
                      vt_error *err);

/* Messages without the system text, and one of them (index < count). */
size_t vt_chat_count(const vt_chat *chat);
vt_status vt_chat_get(const vt_chat *chat, size_t index, vt_role *role, const char **text,
                      size_t *text_bytes);

/* Forgets all but the first `count` messages. The system text stays. */
void vt_chat_truncate(vt_chat *chat, size_t count);

/* Of the messages, the oldest that no longer are in the context (VT_CONTEXT_SHIFT), an even number.
 * They can be set for a conversation that is read back: VT_ERR_ARGUMENT if it is not so many. */
size_t vt_chat_left_out(const vt_chat *chat);
vt_status vt_chat_leave_out(vt_chat *chat, size_t messages, vt_error *err);

/* The whole conversation up to where the answer begins, as tokens (as for vt_tokenize, *count is
 * what is needed if the room does not suffice) and as text (as for snprintf; BOS and EOS by their
 * names). The last message must be a user's. */
vt_status vt_chat_tokens(const vt_chat *chat, vt_token *tokens, size_t capacity, size_t *count,
                         vt_error *err);
vt_status vt_chat_text(const vt_chat *chat, char *buffer, size_t capacity, size_t *bytes,
                       vt_error *err);

/* Answers the last message, a user's, and appends the answer. The session's history becomes exactly
 * vt_chat_tokens and the answer's tokens; what it has computed of that already is kept.
 * ERR_CONTEXT_FULL says by how much; ERR_CANCELLED: cancelled before the first token. After a
 * failure the chat is as before, after one in the middle of an answer with the part that was
 * delivered appended. `generation` NULL: the defaults; `out` may be NULL. */
vt_status vt_chat_answer(vt_chat *chat, vt_session *session, const vt_generation *generation,
                         vt_answer *out, vt_error *err);

/* ---------------------------------------------------------------------------------------------
 * Plans: what would run where
 * ------------------------------------------------------------------------------------------- */

/* A model on a cluster that a file describes (docs/cluster-file.md), and the best plan for it, or a
 * given one. No weights are loaded and no device is asked. Immutable; needs its model no longer. */
typedef struct vt_plan vt_plan;

typedef enum vt_phase { VT_PHASE_PREFILL, VT_PHASE_DECODE } vt_phase;

enum { VT_PHASE_COUNT = 2, VT_PLAN_DEVICES_MAX = 8 };

typedef struct vt_plan_params {
    uint32_t context_tokens; /* tokens in the KV cache as an answer is written; 0: the model's, at
                                most 4096 */
    uint32_t prompt_tokens;  /* of the question; 0: 256, at most the context */
    uint32_t batch_tokens;   /* of it computed at once; 0: 128 */
    vt_kv_type kv_type;
    double ttft_s, tpot_s;   /* how long the first token and each later one may take */
    const char *planner;     /* one of vt_plan_planners(); NULL: "dp" */
    const char *precision;   /* "F16", "I8" or "I4": of all units; "mixed", NULL: of each as high as
                                memory and times allow, and if nothing else fits, pruned shards */
    const char *allocation;  /* how "mixed" looks for it: "search" (NULL), "uniform", "enumerate" */
    const char *importance_path; /* which units matter most to the text; or NULL */
    const char *order;       /* units are lowered the least important first: "per-byte" that I8 saves
                                (NULL), or "plain" */
    const char *wire;        /* what travels as: "F32", "F16" (NULL), "I8" or "I4" */
    bool replicate_kv;       /* where memory is left, keys and values get a copy on another device */
    const char *plan_json;   /* look at this plan (VT_PLAN_JSON) instead of searching one; or NULL */
} vt_plan_params;

typedef struct vt_plan_info {
    const char *planner;      /* its name, or "given" */
    bool has_importance;
    uint32_t device_count, unit_count;
    uint32_t context_tokens, prompt_tokens;
    uint32_t pruned_shards;   /* of each ATTN and FFN unit */
    bool is_feasible;         /* every device has enough memory */
    bool meets_qos;           /* and both times are short enough: */
    double ttft_s, tpot_s, ttft_qos_s, tpot_qos_s;
    /* What they are made of; prefill is shorter than that by what devices compute at the same time,
     * one batch each. */
    double compute_s[VT_PHASE_COUNT], wire_s[VT_PHASE_COUNT];
    double bound_s;           /* no plan that fits has a lower TPOT; 0: not known */
} vt_plan_info;

typedef struct vt_plan_device_info {
    const char *name;         /* as in the cluster file */
    const char *kind;         /* its device class, or the profile's file */
    const char *address;      /* "HOST:PORT", or NULL */
    bool is_used;
    const char *left_out;     /* why it is not; or NULL */
    uint64_t budget_bytes, memory_bytes, shortfall_bytes; /* has, needs, lacks */
    uint64_t weight_bytes, kv_bytes, scratch_bytes; /* what it needs; with copies of others' KV */
    uint32_t units[VT_PHASE_COUNT];  /* that it runs or has a share of */
    double busy_s[VT_PHASE_COUNT];   /* computing */
    double accuracy;          /* of its profile, as in vt_profile_info; 0: not checked */
} vt_plan_device_info;

typedef struct vt_plan_unit_phase {
    uint32_t from, home;      /* devices: who sends its input, who has its output */
    bool exchange;            /* every sharer has its output */
    const char *wire;         /* precision of what travels for it, "F16" */
    uint32_t sharers;         /* 1: the unit is whole on one device */
    uint32_t shares[VT_PLAN_DEVICES_MAX]; /* shards of each device */
    double compute_s, wire_s;
} vt_plan_unit_phase;

typedef struct vt_plan_unit_info {
    char name[24];            /* "EMBED", "ATTN(0)", "FFN(0)", …, "HEAD" */
    vt_precision precision;
    uint32_t shards, pruned;  /* shards left, and left out */
    int32_t replica;          /* device with a copy of its keys and values; -1: there is none */
    vt_plan_unit_phase phase[VT_PHASE_COUNT];
} vt_plan_unit_info;

typedef enum vt_plan_form {
    VT_PLAN_REPORT, /* JSON, everything there is to know; docs/cluster-file.md names the fields */
    VT_PLAN_JSON,   /* JSON, the plan alone: what plan_json takes here and elsewhere */
    VT_PLAN_SVG,    /* a drawing */
} vt_plan_form;

vt_plan_params vt_plan_params_default(void);

/* Names of the planners, "dp", "greedy", …, and NULL at the end. */
const char *const *vt_plan_planners(void);

/* Reads the cluster file and plans. A cluster without enough memory is no failure, it has
 * is_feasible false. ERR_FORMAT and ERR_ARGUMENT name file, device and field. */
vt_status vt_plan_open(const vt_model *model, const char *cluster_path,
                       const vt_plan_params *params, vt_plan **out, vt_error *err);
void vt_plan_close(vt_plan *plan);

void vt_plan_get_info(const vt_plan *plan, vt_plan_info *out);

/* Device or unit `index`, the main device first, units in a token's order. VT_ERR_ARGUMENT past the
 * end. */
vt_status vt_plan_get_device(const vt_plan *plan, size_t index, vt_plan_device_info *out);
vt_status vt_plan_get_unit(const vt_plan *plan, size_t index, vt_plan_unit_info *out);

/* Sentences for a person: what limits the plan, what would help most, and if it is not feasible what
 * would make it so. NULL past the end. */
const char *vt_plan_remark(const vt_plan *plan, size_t index);

/* The plan as text. Writes at most `capacity` bytes with the NUL; returns the bytes the whole text
 * needs without it, as snprintf does, or 0 without memory. */
size_t vt_plan_text(const vt_plan *plan, vt_plan_form form, char *buffer, size_t capacity);

/* ---------------------------------------------------------------------------------------------
 * Workers: the other devices' side
 * ------------------------------------------------------------------------------------------- */

typedef struct vt_worker vt_worker;

typedef struct vt_worker_params {
    const char *listen;    /* "HOST:PORT"; port 0 takes a free one. Without a key: loopback only */
    uint64_t memory_bytes; /* for weights, KV cache and scratch; 0: what the system has to spare */
    uint32_t threads;      /* that compute; 0: one per big core */
    const char *key_path;  /* file with the cluster key, or NULL */
    const char *cache_path;   /* folder for weights that main devices sent; NULL: none are kept */
    uint64_t cache_max_bytes; /* 0: a tenth of what is free on its disk, at most 20 GiB */
    const char *model_path;   /* a GGUF file or a shard store on this device: what it has of a model
                                 need not be sent; or NULL */
    const vt_profile *profile; /* how fast this device is, for main devices to plan with; or NULL */
    vt_log log;
    vt_progress progress;     /* while weights arrive; done == total at the end */
} vt_worker_params;

vt_worker_params vt_worker_params_default(void);

/* Binds and listens. ERR_ARGUMENT (address), ERR_NETWORK (port in use, …); what vt_model_open and
 * vt_store_open say of the model file. A cache that cannot be used is only a warning. */
vt_status vt_worker_open(const vt_worker_params *params, vt_worker **out, vt_error *err);
void vt_worker_close(vt_worker *worker);

/* "127.0.0.1:7001", with the port that was taken. */
const char *vt_worker_address(const vt_worker *worker);

/* Callable from any thread. */
void vt_worker_get_memory(const vt_worker *worker, vt_memory_usage *out);

/* Serves one main device after the other until vt_worker_stop; then returns VT_OK. */
vt_status vt_worker_run(vt_worker *worker, vt_error *err);

/* Callable from any thread and from signal handlers. */
void vt_worker_stop(vt_worker *worker);

#ifdef __cplusplus
}
#endif

#endif
