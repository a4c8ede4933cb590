/* fuzz_session.c: any session file for the default model (run from the repository's root). The
 * first byte says what the rest is:
 *   0: a file
 *   1: the inside of one, which gets the right model's hashes and a right checksum
 *   2: the same with the hashes it has
 * Ends the process where loading breaks a promise. */
#include "session_body.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/model_identity.h"
#include "voltron.h"

#define DEFAULT_MODEL "src/assets/stories-4m-f16.gguf"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_session: broken promise: %s\n", what);
    abort();
}

static vt_session *open_session(void)
{
    static vt_model *model;
    static vt_session *session;
    if (session) return session;
    vt_model_params model_params = vt_model_params_default();
    model_params.threads = 1;
    require(vt_model_open(DEFAULT_MODEL, &model_params, &model, NULL) == VT_OK, "the model opens");
    vt_session_params params = vt_session_params_default();
    params.context_tokens = 16;
    require(vt_session_open(model, &params, &session, NULL) == VT_OK, "a session opens");
    return session;
}

static const vti_model_identity *identity(void)
{
    static vti_model_identity own;
    static bool known;
    vt_gguf *gguf;
    if (known) return &own;
    require(vt_gguf_open(DEFAULT_MODEL, &gguf, NULL) == VT_OK, "the model's file opens");
    vti_model_identity_of(gguf, &own);
    vt_gguf_close(gguf);
    known = true;
    return &own;
}

static void load(vt_session *s, const char *path)
{
    static const vt_token before[] = {1, 2};
    vt_error err = {.message = ""};
    const void *blob;
    size_t blob_bytes, count;
    vt_token token;
    require(vt_session_rewind(s, 0, NULL) == VT_OK, "a rewind succeeds");
    require(vt_session_feed(s, before, 2, NULL) == VT_OK, "tokens are computed");
    vt_status status = vt_session_load(s, path, &blob, &blob_bytes, &err);
    const vt_token *history = vt_session_history(s, &count);
    if (status != VT_OK) {
        require(err.message[0] != 0, "an error has a message");
        require(count == 2 && history[0] == 1 && history[1] == 2, "a refused file changes nothing");
        require(vt_session_next(s, &token, &err) == VT_OK, "the conversation goes on");
        return;
    }
    require(count <= 16 && (blob_bytes > 0) == (blob != NULL), "what is loaded is in range");
    for (size_t i = 0; i < count; i++) require(history[i] >= 0 && history[i] < 2048, "tokens too");
    status = vt_session_next(s, &token, &err);
    require(status == VT_OK || err.message[0], "it goes on, or says why not");
}

/* The file is what a path of /proc leads to: nothing goes to a disk. */
static void load_bytes(const uint8_t *file, size_t bytes)
{
    char path[64];
    int memory = memfd_create("session", MFD_CLOEXEC);
    require(memory >= 0 && write(memory, file, bytes) == (ssize_t)bytes, "memory for a file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    load(open_session(), path);
    close(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0) return 0;
    if (data[0] == 0) {
        load_bytes(data + 1, bytes - 1);
        return 0;
    }
    size_t packed_bytes, body_bytes = bytes - 1;
    uint8_t *body = malloc(body_bytes + 1);
    if (!body) abort();
    memcpy(body, data + 1, body_bytes);
    if (data[0] != 2 && body_bytes >= sizeof(vti_model_identity))
        memcpy(body, identity(), sizeof(vti_model_identity));
    uint8_t *file = session_body_pack(body, body_bytes, &packed_bytes);
    load_bytes(file, packed_bytes);
    free(file);
    free(body);
    return 0;
}
