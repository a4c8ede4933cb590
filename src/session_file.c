/* session_file.c: a conversation into a file and back; docs/sessions.md has the format. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model_identity.h"
#include "session_kv.h"

/* Version: of everything after the prefix, KV rows included. */
enum { VERSION = 1, NAME_BYTES_MAX = 256 };
static const uint8_t prefix[VTI_SAVE_PREFIX_BYTES] = {'V', 'T', 'S', 'S', VERSION, 0, 0, 0};
static const char what[] = "session file";

enum { HAS_LOGITS = 1 };

/* What stands before the token ids. */
typedef struct file_head {
    vti_model_identity identity;
    char name[NAME_BYTES_MAX + 1]; /* of the model, for messages */
    uint32_t kv_type, vocab, history_count, computed, flags;
    uint64_t random[4];
    uint64_t blob_bytes;
} file_head;

static const char *kv_type_name(uint32_t type)
{
    static const char *const names[] = {
        [VT_KV_F16] = "f16", [VT_KV_F32] = "f32", [VT_KV_Q8] = "q8"};
    return type < sizeof names / sizeof names[0] ? names[type] : "an unknown type";
}

/* The newest token's logits are kept: to compute them again, alone, may round otherwise. */
static bool has_logits(const vt_session *s)
{
    return s->logits_valid && s->computed == s->history_count;
}

/* --- saving ----------------------------------------------------------------------------------- */

static void write_head(vti_save_writer *w, const vt_session *s, uint32_t flags, uint64_t blob_bytes)
{
    vti_model_identity identity;
    vti_model_get_identity(s->model, &identity);
    size_t length = strlen(s->model->name);
    if (length > NAME_BYTES_MAX) length = NAME_BYTES_MAX;
    vti_save_write(w, identity.shape, sizeof identity.shape);
    vti_save_write(w, identity.weights, sizeof identity.weights);
    vti_save_write_u32(w, (uint32_t)length);
    vti_save_write(w, s->model->name, length);
    vti_save_write_u32(w, (uint32_t)s->kv_type);
    vti_save_write_u32(w, s->model->hparams.vocab);
    vti_save_write_u32(w, s->history_count);
    vti_save_write_u32(w, s->computed);
    vti_save_write_u32(w, flags);
    for (int i = 0; i < 4; i++) vti_save_write_u64(w, s->sampler.random[i]);
    vti_save_write_u64(w, blob_bytes);
}

/* The next token will do the same: without its logits the newest token is computed again, and a
 * sliding window that has moved on makes all of it be. */
static void settle(vt_session *s)
{
    if (s->computed && s->computed == s->history_count && !has_logits(s)) s->computed--;
    s->computed = vti_stage_resume(s->stage, s->computed);
}

vt_status vt_session_save(vt_session *s, const char *path, const void *blob, size_t blob_bytes,
                          vt_error *err)
{
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_session_save: path is NULL");
    if (!blob && blob_bytes) return vti_fail(err, VT_ERR_ARGUMENT, "vt_session_save: blob is NULL");
    if (blob_bytes > VT_SESSION_BLOB_MAX)
        return vti_fail(err, VT_ERR_ARGUMENT, "a blob of %zu bytes is too large; at most %d",
                        blob_bytes, VT_SESSION_BLOB_MAX);
    settle(s);
    vti_save_writer *w;
    VTI_TRY(vti_save_writer_open(path, prefix, "a saved session", &w, err));
    uint32_t flags = has_logits(s) ? HAS_LOGITS : 0;
    write_head(w, s, flags, blob_bytes);
    vti_save_write(w, blob, blob_bytes);
    vti_save_write(w, s->history, s->history_count * sizeof *s->history);
    if (flags & HAS_LOGITS)
        vti_save_write(w, s->logits, s->model->hparams.vocab * sizeof *s->logits);
    vt_status status = vti_session_write_kv(s, w, err);
    if (status == VT_OK) return vti_save_writer_commit(w, err);
    vti_save_writer_discard(w);
    return status;
}

/* --- loading ---------------------------------------------------------------------------------- */

static vt_status read_head(vti_save_reader *r, const char *path, file_head *out, vt_error *err)
{
    uint32_t length;
    memset(out, 0, sizeof *out);
    VTI_TRY(vti_save_read(r, out->identity.shape, sizeof out->identity.shape, err));
    VTI_TRY(vti_save_read(r, out->identity.weights, sizeof out->identity.weights, err));
    VTI_TRY(vti_save_read_u32(r, &length, err));
    if (length > NAME_BYTES_MAX)
        return vti_fail(err, VT_ERR_FORMAT,
                        "%s: this session file is damaged: a model's name of %" PRIu32 " bytes",
                        path, length);
    VTI_TRY(vti_save_read(r, out->name, length, err));
    uint32_t *const numbers[] = {&out->kv_type, &out->vocab, &out->history_count, &out->computed,
                                 &out->flags};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        VTI_TRY(vti_save_read_u32(r, numbers[i], err));
    for (int i = 0; i < 4; i++) VTI_TRY(vti_save_read_u64(r, &out->random[i], err));
    return vti_save_read_u64(r, &out->blob_bytes, err);
}

static vt_status check_model(const vt_session *s, const char *path, const file_head *head,
                             vt_error *err)
{
    vti_model_identity own;
    vti_model_get_identity(s->model, &own);
    bool shape = memcmp(own.shape, head->identity.shape, sizeof own.shape) == 0;
    if (!shape || memcmp(own.weights, head->identity.weights, sizeof own.weights) != 0)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "%s: this session was saved with another model, \"%s\"; its %s differ "
                        "from those of \"%s\"",
                        path, head->name, shape ? "weights" : "hyperparameters or tokenizer",
                        s->model->name);
    if (head->kv_type != (uint32_t)s->kv_type)
        return vti_fail(err, VT_ERR_ARGUMENT,
                        "%s: this session was saved with a KV cache of %s, but this one has %s; "
                        "open it with the same",
                        path, kv_type_name(head->kv_type), kv_type_name(s->kv_type));
    if (head->history_count > s->context)
        return vti_fail(err, VT_ERR_CONTEXT_FULL,
                        "%s: this session has %" PRIu32
                        " tokens, the context only room for %" PRIu32,
                        path, head->history_count, s->context);
    return VT_OK;
}

/* Numbers that a file of this very model could not have unless it was made up. */
static vt_status check_numbers(const vt_session *s, const char *path, const file_head *h,
                               vt_error *err)
{
    const char *wrong = NULL;
    if (h->vocab != s->model->hparams.vocab) wrong = "size of the vocabulary";
    if (h->computed > h->history_count) wrong = "number of computed tokens";
    if (h->flags & ~(uint32_t)HAS_LOGITS) wrong = "flags";
    if (h->flags & HAS_LOGITS && (h->computed != h->history_count || h->computed == 0))
        wrong = "flag of the logits";
    if (!(h->random[0] | h->random[1] | h->random[2] | h->random[3])) wrong = "random state";
    if (h->blob_bytes > VT_SESSION_BLOB_MAX) wrong = "size of the caller's data";
    if (!wrong) return VT_OK;
    return vti_fail(err, VT_ERR_FORMAT, "%s: this session file is damaged: its %s is wrong", path,
                    wrong);
}

static vt_status read_tokens(vti_save_reader *r, const vt_session *s, const char *path,
                             uint32_t count, vt_token *out, vt_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token;
        VTI_TRY(vti_save_read_u32(r, &token, err));
        if (token >= s->model->hparams.vocab)
            return vti_fail(err, VT_ERR_FORMAT,
                            "%s: this session file is damaged: token %" PRIu32 " is %" PRIu32
                            ", outside the vocabulary",
                            path, i, token);
        if (out) out[i] = (vt_token)token;
    }
    return VT_OK;
}

/* First pass: nothing is changed, everything is looked at. */
static vt_status check_file(vti_save_reader *r, const vt_session *s, const char *path,
                            file_head *head, vt_error *err)
{
    VTI_TRY(read_head(r, path, head, err));
    VTI_TRY(check_model(s, path, head, err));
    VTI_TRY(check_numbers(s, path, head, err));
    VTI_TRY(vti_save_read(r, NULL, head->blob_bytes, err));
    VTI_TRY(read_tokens(r, s, path, head->history_count, NULL, err));
    if (head->flags & HAS_LOGITS)
        VTI_TRY(vti_save_read(r, NULL, head->vocab * sizeof *s->logits, err));
    VTI_TRY(vti_session_check_kv(s, r, head->computed, err));
    return vti_save_read_end(r, err);
}

/* Nothing that a damaged file says is to be believed, not even that it is of another model. */
static vt_status check_all(vti_save_reader *r, const vt_session *s, const char *path,
                           file_head *head, vt_error *err)
{
    vt_status status = check_file(r, s, path, head, err);
    if (status == VT_ERR_ARGUMENT || status == VT_ERR_CONTEXT_FULL)
        VTI_TRY(vti_save_skip_rest(r, err));
    return status;
}

static vt_status take_blob(vti_save_reader *r, vt_session *s, uint64_t bytes, vt_error *err)
{
    void *blob = NULL;
    if (bytes && !(blob = malloc(bytes)))
        return vti_fail(err, VT_ERR_MEMORY, "no memory for %" PRIu64 " bytes of a session file",
                        bytes);
    vt_status status = vti_save_read(r, blob, bytes, err);
    if (status != VT_OK) {
        free(blob);
        return status;
    }
    free(s->blob);
    s->blob = blob;
    return VT_OK;
}

/* Second pass, behind the blob: the session is empty and fills. */
static vt_status take_contents(vti_save_reader *r, vt_session *s, const char *path,
                               const file_head *head, vt_error *err)
{
    VTI_TRY(read_tokens(r, s, path, head->history_count, s->history, err));
    if (head->flags & HAS_LOGITS)
        VTI_TRY(vti_save_read(r, s->logits, head->vocab * sizeof *s->logits, err));
    VTI_TRY(vti_session_restart_devices(s, err));
    VTI_TRY(vti_session_read_kv(s, r, head->computed, err));
    VTI_TRY(vti_save_read_end(r, err)); /* the checksum: it may have changed since the first pass */
    s->history_count = head->history_count;
    s->computed = head->computed;
    s->logits_valid = head->flags & HAS_LOGITS;
    memcpy(s->sampler.random, head->random, sizeof head->random);
    return VT_OK;
}

static vt_status load(vti_save_reader *r, vt_session *s, const char *path, uint64_t *blob_bytes,
                      vt_error *err)
{
    file_head head, again;
    VTI_TRY(check_all(r, s, path, &head, err));
    VTI_TRY(vti_save_reader_restart(r, err));
    VTI_TRY(read_head(r, path, &again, err));
    /* What was checked holds for the very same numbers only. */
    if (memcmp(&head, &again, sizeof head) != 0)
        return vti_fail(err, VT_ERR_IO, "%s: the file was changed while it was read", path);
    VTI_TRY(take_blob(r, s, head.blob_bytes, err));
    *blob_bytes = head.blob_bytes;
    s->history_count = s->computed = 0;
    s->logits_valid = false;
    vt_status status = take_contents(r, s, path, &head, err);
    if (status == VT_OK) return VT_OK;
    s->history_count = s->computed = 0;
    s->logits_valid = false;
    vti_session_restart_devices(s, NULL); /* if a device is lost, the next call says so */
    return status;
}

vt_status vt_session_load(vt_session *s, const char *path, const void **blob, size_t *blob_bytes,
                          vt_error *err)
{
    uint64_t bytes = 0;
    vti_save_reader *r;
    if (blob) *blob = NULL;
    if (blob_bytes) *blob_bytes = 0;
    if (!path) return vti_fail(err, VT_ERR_ARGUMENT, "vt_session_load: path is NULL");
    VTI_TRY(vti_save_reader_open(path, what, prefix, &r, err));
    vt_status status = load(r, s, path, &bytes, err);
    vti_save_reader_close(r);
    if (status != VT_OK) return status;
    if (blob) *blob = s->blob;
    if (blob_bytes) *blob_bytes = (size_t)bytes;
    return VT_OK;
}
