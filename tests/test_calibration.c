/* Calibration: what a calibration counts, against an oracle; its files, whole and damaged. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/gguf.h"
#include "../src/calibration.h"
#include "../src/model_identity.h"
#include "fuzz/calibration_file.h"
#include "model_builder.h"
#include "voltron.h"

static char folder[] = "/tmp/voltron-calibration-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][96];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* --- models ----------------------------------------------------------------------------------- */

/* One layer whose two parts add nothing to the residual stream, and whose values are the bias of V:
 * everything that meets a matrix follows from the embedding of one token. No width is a multiple of
 * 32. */
static test_model still_model(bool experts)
{
    test_model m = test_model_of(experts ? "qwen2moe" : "qwen2");
    m.layers = 1;
    m.d = 40;
    m.head_dim = 6;
    m.ff = 72;
    m.expert_ff = 24;
    m.edits[0] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.attn_v.weight"};
    m.edits[1] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.attn_output.weight"};
    m.edits[2] = (test_edit){.kind = TEST_TENSOR_FILL,
                             .name = experts ? "blk.0.ffn_down_shexp.weight"
                                             : "blk.0.ffn_down.weight"};
    if (experts)
        m.edits[3] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.0.ffn_down_exps.weight"};
    return m;
}

typedef struct opened {
    vt_model *model;
    vt_session *session;
    vt_gguf *gguf;
    vti_hparams hparams;
    vti_model_identity identity;
} opened;

static opened open_file(const char *path, uint32_t batch, uint32_t threads)
{
    opened o;
    vt_error err = {0};
    vt_model_params model_params = vt_model_params_default();
    vt_session_params params = vt_session_params_default();
    model_params.threads = threads;
    params.batch_tokens = batch;
    params.kv_type = VT_KV_F32;
    if (vt_model_open(path, &model_params, &o.model, &err) != VT_OK ||
        vt_session_open(o.model, &params, &o.session, &err) != VT_OK ||
        vt_gguf_open(path, &o.gguf, &err) != VT_OK ||
        vti_hparams_read(o.gguf, &o.hparams, &err) != VT_OK)
        fail_msg("%s", err.message);
    vti_model_identity_of(o.gguf, &o.identity);
    return o;
}

static void close_file(opened *o)
{
    vt_session_close(o->session);
    vt_model_close(o->model);
    vt_gguf_close(o->gguf);
}

static bool go_on(void *user, uint32_t position, const float *logits)
{
    (void)user;
    (void)position;
    (void)logits;
    return true;
}

enum { TOKENS = 37 };

static vt_token token_at(int i) { return (i * 29 + 3) % TEST_MODEL_TOKENS; }

/* Feeds TOKENS tokens and writes what was counted to `path`. */
static void calibrate(opened *o, const char *path)
{
    vt_token tokens[TOKENS];
    vt_calibration *c;
    vt_calibration_stats stats;
    vt_error err;
    for (int i = 0; i < TOKENS; i++) tokens[i] = token_at(i);
    if (vt_calibration_open(o->session, &c, &err) != VT_OK ||
        vt_session_feed_logits(o->session, tokens, TOKENS, go_on, NULL, &err) != VT_OK ||
        vt_calibration_save(c, path, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_calibration_get_stats(c, &stats);
    assert_int_equal(stats.tokens, TOKENS);
    vt_calibration_close(c);
}

static vti_calibration *load(const opened *o, const char *path)
{
    vti_calibration *im;
    vt_error err;
    if (vti_calibration_load(path, &o->hparams, &o->identity, &im, &err) != VT_OK)
        fail_msg("%s", err.message);
    return im;
}

/* --- oracle ----------------------------------------------------------------------------------- */

static const float *tensor(const opened *o, const char *name)
{
    const vti_gguf_tensor *t = vti_gguf_find_tensor(o->gguf, name);
    if (!t) fail_msg("no tensor %s", name);
    return (const float *)t->data;
}

static void norm(const opened *o, double *y, vt_token token, const char *weight)
{
    uint32_t d = o->hparams.d;
    const float *x = tensor(o, "token_embd.weight") + (size_t)token * d, *w = tensor(o, weight);
    double square = 0;
    for (uint32_t i = 0; i < d; i++) square += (double)x[i] * x[i];
    for (uint32_t i = 0; i < d; i++) y[i] = x[i] / sqrt(square / d + o->hparams.rms_eps) * w[i];
}

static double dot(const float *w, const double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += w[i] * x[i];
    return sum;
}

/* SiLU(gate x) × up x, of expert `slice`. */
static void hidden(const opened *o, double *y, const double *x, const char *suffix, uint32_t slice,
                   uint32_t width)
{
    char gate_name[64], up_name[64];
    uint32_t d = o->hparams.d;
    snprintf(gate_name, sizeof gate_name, "blk.0.ffn_gate%s.weight", suffix);
    snprintf(up_name, sizeof up_name, "blk.0.ffn_up%s.weight", suffix);
    const float *gate = tensor(o, gate_name) + (size_t)slice * width * d;
    const float *up = tensor(o, up_name) + (size_t)slice * width * d;
    for (uint32_t i = 0; i < width; i++) {
        double g = dot(gate + (size_t)i * d, x, d);
        y[i] = g / (1 + exp(-g)) * dot(up + (size_t)i * d, x, d);
    }
}

/* Has the router chosen expert `e` for x: are fewer than `experts_used` scores larger? */
static bool is_chosen(const opened *o, const double *x, uint32_t e)
{
    const float *router = tensor(o, "blk.0.ffn_gate_inp.weight");
    uint32_t d = o->hparams.d, larger = 0;
    double own = dot(router + (size_t)e * d, x, d);
    for (uint32_t i = 0; i < o->hparams.experts; i++)
        larger += dot(router + (size_t)i * d, x, d) > own;
    return larger < o->hparams.experts_used;
}

/* One token's input of `in`; false if it does not get there. */
static bool oracle(const opened *o, double *x, vt_token token, const vti_calibration_input *in)
{
    double normed[64];
    const vti_hparams *p = &o->hparams;
    uint32_t group = p->heads / p->kv_heads;
    norm(o, normed, token, "blk.0.ffn_norm.weight");
    bool chosen = !p->experts || is_chosen(o, normed, in->slice);
    switch (in->role) {
    case VTI_ATTN_Q: norm(o, x, token, "blk.0.attn_norm.weight"); return true;
    case VTI_OUTPUT: norm(o, x, token, "output_norm.weight"); return true;
    case VTI_FFN_GATE: case VTI_SHARED_GATE: memcpy(x, normed, p->d * sizeof *x); return true;
    case VTI_EXPERTS_GATE: memcpy(x, normed, p->d * sizeof *x); return chosen;
    case VTI_FFN_DOWN: hidden(o, x, normed, "", 0, p->ff); return true;
    case VTI_SHARED_DOWN: hidden(o, x, normed, "_shexp", 0, p->ff); return true;
    case VTI_EXPERTS_DOWN: hidden(o, x, normed, "_exps", in->slice, p->expert_ff); return chosen;
    case VTI_ATTN_OUT:
        for (uint32_t i = 0; i < in->cols; i++)
            x[i] = tensor(o, "blk.0.attn_v.bias")[i / p->head_dim / group * p->head_dim +
                                                  i % p->head_dim];
        return true;
    default: fail_msg("no input of role %d", (int)in->role); return false;
    }
}

static void check_input(const opened *o, const vti_calibration_input *in)
{
    double sums[128] = {0}, x[128];
    uint64_t tokens = 0;
    for (int t = 0; t < TOKENS; t++) {
        if (!oracle(o, x, token_at(t), in)) continue;
        tokens++;
        for (uint32_t i = 0; i < in->cols; i++) sums[i] += x[i] * x[i];
    }
    assert_int_equal(in->tokens, tokens);
    for (uint32_t i = 0; i < in->cols; i++) {
        double wanted = tokens ? sums[i] / (double)tokens : 0;
        if (!(fabs(in->mean[i] - wanted) <= 1e-5 * wanted + 1e-9))
            fail_msg("role %d, slice %u, column %u: %g, right is %g", (int)in->role, in->slice, i,
                     (double)in->mean[i], wanted);
    }
}

static void counts_what_matrices_meet(void **state)
{
    (void)state;
    for (int experts = 0; experts < 2; experts++) {
        const char *path = in_folder("still.gguf"), *file = in_folder("still.calibration");
        test_model m = still_model(experts);
        test_model_write(&m, path);
        opened o = open_file(path, 16, 2);
        calibrate(&o, file);
        vti_calibration *im = load(&o, file);
        assert_int_equal(im->count, experts ? 5 + 2 * m.experts : 5);
        for (uint32_t i = 0; i < im->count; i++) check_input(&o, &im->inputs[i]);
        vti_calibration_free(im);
        close_file(&o);
        unlink(path);
        unlink(file);
    }
}

/* --- batches, lookups ------------------------------------------------------------------------- */

static void batches_and_threads_do_not_matter(void **state)
{
    (void)state;
    static const char *const archs[] = {"qwen2", "llama", "qwen3", "gemma3", "qwen2moe"};
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        const char *path = in_folder("m.gguf"), *first = in_folder("1"), *second = in_folder("2");
        test_model m = test_model_of(archs[a]);
        test_model_write(&m, path);
        opened o = open_file(path, 1, 1), other = open_file(path, 24, 3);
        calibrate(&o, first);
        calibrate(&other, second);
        vti_calibration *x = load(&o, first), *y = load(&other, second);
        for (uint64_t i = 0; i < x->value_count; i++)
            if (!(fabsf(x->values[i] - y->values[i]) <= 1e-3f * x->values[i] + 1e-12f))
                fail_msg("%s, value %d: %g, %g", archs[a], (int)i, (double)x->values[i],
                         (double)y->values[i]);
        vti_calibration_free(x);
        vti_calibration_free(y);
        close_file(&o);
        close_file(&other);
        unlink(path);
        unlink(first);
        unlink(second);
    }
}

static void matrices_find_their_input(void **state)
{
    (void)state;
    vti_hparams p = {.arch = VTI_ARCH_QWEN2MOE, .layers = 3, .d = 64, .heads = 4, .kv_heads = 2,
                     .head_dim = 16, .ff = 96, .experts = 4, .expert_ff = 32, .vocab = 10};
    vti_calibration *im;
    assert_int_equal(vti_calibration_new(&p, &im, NULL), VT_OK);
    for (uint32_t i = 0; i < im->count; i++) {
        vti_calibration_input *in = &im->inputs[i];
        assert_ptr_equal(vti_calibration_input_of(im, in->layer, in->role, in->slice), in);
        assert_null(vti_calibration_of(im, in->layer, in->role, in->slice)); /* not seen */
        in->tokens = 1;
        assert_ptr_equal(vti_calibration_of(im, in->layer, in->role, in->slice), in->mean);
    }
    for (uint32_t layer = 0; layer < 3; layer++) {
        const float *normed = vti_calibration_of(im, layer, VTI_SHARED_GATE, 0);
        assert_ptr_equal(vti_calibration_of(im, layer, VTI_ATTN_V, 0),
                         vti_calibration_of(im, layer, VTI_ATTN_Q, 0));
        assert_ptr_equal(vti_calibration_of(im, layer, VTI_SHARED_UP, 0), normed);
        assert_ptr_equal(vti_calibration_of(im, layer, VTI_ROUTER, 0), normed);
        assert_ptr_equal(vti_calibration_of(im, layer, VTI_EXPERTS_UP, 2),
                         vti_calibration_of(im, layer, VTI_EXPERTS_GATE, 2));
    }
    assert_null(vti_calibration_of(im, 0, VTI_EXPERTS_UP, 4));
    assert_null(vti_calibration_of(im, 3, VTI_ATTN_Q, 0));
    assert_null(vti_calibration_of(im, 0, VTI_ATTN_NORM, 0));
    assert_null(vti_calibration_of(im, 3, VTI_TOKEN_EMBD, 0));
    vti_calibration_free(im);
}

/* --- wrong use -------------------------------------------------------------------------------- */

static void wrong_use(void **state)
{
    (void)state;
    const char *path = in_folder("m.gguf"), *file = in_folder("none/file");
    test_model m = test_model_of("qwen2");
    vt_calibration *c, *again;
    vt_error err;
    vt_token token = 5;
    test_model_write(&m, path);
    opened o = open_file(path, 8, 1);
    assert_int_equal(vt_calibration_open(NULL, &c, &err), VT_ERR_ARGUMENT);
    assert_int_equal(vt_calibration_open(o.session, NULL, &err), VT_ERR_ARGUMENT);
    assert_int_equal(vt_calibration_open(o.session, &c, &err), VT_OK);
    assert_int_equal(vt_calibration_open(o.session, &again, &err), VT_ERR_BUSY);
    assert_null(again);
    assert_int_equal(vt_calibration_save(c, file, &err), VT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nothing was computed"));
    assert_int_equal(vt_session_feed(o.session, &token, 1, &err), VT_OK);
    assert_int_equal(vt_calibration_save(c, NULL, &err), VT_ERR_ARGUMENT);
    assert_int_equal(vt_calibration_save(c, file, &err), VT_ERR_IO);
    assert_non_null(strstr(err.message, "none/file"));
    vt_calibration_close(c);
    /* Nobody looks any more, and it can begin anew. */
    assert_int_equal(vt_session_feed(o.session, &token, 1, &err), VT_OK);
    assert_int_equal(vt_calibration_open(o.session, &c, &err), VT_OK);
    vt_calibration_close(c);
    vt_calibration_close(NULL);
    close_file(&o);
    unlink(path);
}

static void damaged_model(void **state)
{
    (void)state;
    const char *path = in_folder("m.gguf"), *file = in_folder("file");
    test_model m = test_model_of("qwen2");
    vt_calibration *c;
    vt_error err;
    vt_token token = 5;
    m.edits[0] = (test_edit){.kind = TEST_TENSOR_FILL, .name = "blk.1.ffn_up.weight",
                             .number = (double)NAN};
    test_model_write(&m, path);
    opened o = open_file(path, 8, 1);
    assert_int_equal(vt_calibration_open(o.session, &c, &err), VT_OK);
    assert_int_equal(vt_session_feed(o.session, &token, 1, &err), VT_OK);
    assert_int_equal(vt_calibration_save(c, file, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "not finite"));
    assert_int_not_equal(access(file, F_OK), 0);
    vt_calibration_close(c);
    close_file(&o);
    unlink(path);
}

/* --- files ------------------------------------------------------------------------------------ */

static struct {
    opened o;
    unsigned char *bytes, *body;
    size_t count, body_count;
} whole;

static int make_file(void **state)
{
    (void)state;
    const char *path = in_folder("w.gguf"), *file = in_folder("w.calibration");
    test_model m = test_model_of("qwen2");
    m.layers = 2;
    m.d = m.ff = 32;
    m.head_dim = 8;
    test_model_write(&m, path);
    whole.o = open_file(path, 8, 1);
    calibrate(&whole.o, file);
    whole.bytes = test_read_file(file, &whole.count);
    whole.body = calibration_file_unpack(whole.bytes, whole.count, &whole.body_count);
    unlink(path);
    unlink(file);
    return whole.body ? 0 : -1;
}

static int free_file(void **state)
{
    (void)state;
    close_file(&whole.o);
    free(whole.bytes);
    free(whole.body);
    return 0;
}

static vt_status load_bytes(const unsigned char *bytes, size_t count, vti_calibration **im,
                            vt_error *err)
{
    char name[64];
    int memory = memfd_create("calibration", MFD_CLOEXEC);
    assert_true(memory >= 0 && write(memory, bytes, count) == (ssize_t)count);
    snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
    *err = (vt_error){0};
    vt_status status = vti_calibration_load(name, &whole.o.hparams, &whole.o.identity, im, err);
    close(memory);
    assert_true((status == VT_OK) == (*im != NULL));
    assert_true(status == VT_OK || err->message[0]);
    return status;
}

static vt_status load_body(const unsigned char *body, size_t count, vt_error *err)
{
    size_t bytes;
    vti_calibration *im;
    unsigned char *file = calibration_file_pack(body, count, &bytes);
    vt_status status = load_bytes(file, bytes, &im, err);
    vti_calibration_free(im);
    free(file);
    return status;
}

static void every_truncation_and_flip(void **state)
{
    (void)state;
    vt_error err;
    vti_calibration *im, *right;
    int accepted = 0;
    assert_int_equal(load_bytes(whole.bytes, whole.count, &right, &err), VT_OK);
    for (size_t at = 0; at < whole.count; at++) {
        if (load_bytes(whole.bytes, at, &im, &err) != VT_ERR_FORMAT)
            fail_msg("%zu bytes: %s", at, err.message);
        whole.bytes[at] ^= (unsigned char)(1u << at % 8);
        vt_status status = load_bytes(whole.bytes, whole.count, &im, &err);
        whole.bytes[at] ^= (unsigned char)(1u << at % 8);
        if (status == VT_ERR_FORMAT) continue;
        /* zstd has a bit without meaning */
        if (status != VT_OK) fail_msg("byte %zu: %s", at, err.message);
        assert_memory_equal(im->values, right->values, right->value_count * sizeof(float));
        vti_calibration_free(im);
        accepted++;
    }
    assert_true(accepted < 3);
    vti_calibration_free(right);
}

/* Writes a number over the body at `at` and expects a refusal that says `text`. */
static void refuse(size_t at, uint32_t number, vt_status wanted, const char *text)
{
    vt_error err;
    unsigned char old[4];
    memcpy(old, whole.body + at, 4);
    memcpy(whole.body + at, &number, 4);
    vt_status status = load_body(whole.body, whole.body_count, &err);
    memcpy(whole.body + at, old, 4);
    if (status != wanted || !strstr(err.message, text))
        fail_msg("byte %zu: %s, not \"%s\"", at, err.message, text);
}

static void made_up_contents(void **state)
{
    (void)state;
    enum { SHAPE = 0, WEIGHTS = 32, COUNT = 64, FIRST = 68, TOKENS_AT = FIRST + 16,
           MEANS = FIRST + 24 };
    vt_error err;
    assert_int_equal(load_body(whole.body, whole.body_count, &err), VT_OK);
    refuse(SHAPE, 0x12345678, VT_ERR_ARGUMENT, "hyperparameters");
    refuse(WEIGHTS, 0x12345678, VT_ERR_ARGUMENT, "another model");
    refuse(COUNT, 8, VT_ERR_FORMAT, "number of inputs");
    refuse(COUNT, 0xffffffff, VT_ERR_FORMAT, "number of inputs");
    for (size_t field = 0; field < 4; field++)
        refuse(FIRST + 4 * field, 0x7fffffff, VT_ERR_FORMAT, "an input that the model does not");
    refuse(TOKENS_AT, 0, VT_ERR_FORMAT, "never seen");
    refuse(MEANS, 0x7fc00000, VT_ERR_FORMAT, "no number");
    refuse(MEANS + 8, 0x7f800000, VT_ERR_FORMAT, "no number");
    refuse(MEANS + 12, 0xbf800000, VT_ERR_FORMAT, "negative");
    assert_int_equal(load_body(whole.body, whole.body_count - 4, &err), VT_ERR_FORMAT);
    unsigned char *longer = calloc(1, whole.body_count + 4);
    memcpy(longer, whole.body, whole.body_count);
    assert_int_equal(load_body(longer, whole.body_count + 4, &err), VT_ERR_FORMAT);
    free(longer);
    vti_calibration *im;
    assert_int_equal(vti_calibration_load(in_folder("none"), &whole.o.hparams, &whole.o.identity,
                                          &im, &err),
                     VT_ERR_IO);
    assert_null(im);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_matrices_meet),
        cmocka_unit_test(batches_and_threads_do_not_matter),
        cmocka_unit_test(matrices_find_their_input),
        cmocka_unit_test(wrong_use),
        cmocka_unit_test(damaged_model),
        cmocka_unit_test_setup_teardown(every_truncation_and_flip, make_file, free_file),
        cmocka_unit_test_setup_teardown(made_up_contents, make_file, free_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
