/* Our quantiser beside llama.cpp's. Not built by make, as it needs llama.cpp's libggml-base.a;
 * bench/results/quantiser.md has the commands.
 *
 *   quantiser rows                              losses and speed on made up rows
 *   quantiser file SOURCE TYPED OUT theirs|ours|nearest [CALIBRATION [FOR-LOSSES]]
 *       SOURCE: F16 or F32; TYPED: the same with matrices in Q8_0 or Q4_K; OUT: TYPED with its
 *       matrices quantised from SOURCE anew. Prints the losses, weighted with FOR-LOSSES, too.
 *   quantiser apart SOURCE OTHER TEXT           divergence of OTHER's predictions from SOURCE's
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/gguf.h"
#include "../../src/calibration.h"
#include "../../src/quantize.h"
#include "../../src/quantize_search.h"
#include "../../src/weight_types.h"

/* Of ggml.h; numbers of types are those of GGUF files. */
struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
void *ggml_init(struct ggml_init_params params);
size_t ggml_quantize_chunk(int type, const float *source, void *out, int64_t start, int64_t rows,
                           int64_t columns, const float *importance);

enum { Q8_0 = 8, Q4_K = 12, LAYER_NAME = 4 };

static vti_kernels kernels;

static void stop(const char *message)
{
    fprintf(stderr, "quantiser: %s\n", message);
    exit(1);
}

static void need(vt_status status, const vt_error *err)
{
    if (status != VT_OK) stop(err->message);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- quantisers ------------------------------------------------------------------------------- */

typedef enum who { OURS, THEIRS, NEAREST } who;

static void quantise(who which, int type, unsigned char *out, const float *x, size_t rows,
                     size_t columns, const float *importance)
{
    size_t stride = kernels.matmul[type == Q4_K ? VTI_Q4_K : VTI_Q8_0].source_bytes(columns);
    if (which == THEIRS)
        ggml_quantize_chunk(type, x, out, 0, (int64_t)rows, (int64_t)columns, importance);
    for (size_t r = 0; which != THEIRS && r < rows; r++, out += stride, x += columns) {
        if (which == NEAREST)
            (type == Q4_K ? vti_quantize_q4_k : vti_quantize_q8_0)(out, x, columns);
        else
            (type == Q4_K ? vti_quantize_i4 : vti_quantize_i8)(out, x, columns, importance);
    }
}

typedef struct loss {
    double off, power;                   /* sums of squares */
    double weighted_off, weighted_power;
} loss;

static void add_loss(loss *l, int type, const unsigned char *bytes, const float *x, size_t rows,
                     size_t columns, const float *importance)
{
    const vti_matmul_kernel *k = &kernels.matmul[type == Q4_K ? VTI_Q4_K : VTI_Q8_0];
    float *back = malloc(columns * sizeof *back);
    for (size_t r = 0; r < rows; r++, x += columns) {
        k->dequantize(back, bytes + r * k->source_bytes(columns), columns);
        for (size_t i = 0; i < columns; i++) {
            double off = (double)back[i] - x[i], weight = importance ? importance[i] : 1;
            l->off += off * off;
            l->power += (double)x[i] * x[i];
            l->weighted_off += weight * off * off;
            l->weighted_power += weight * (double)x[i] * x[i];
        }
    }
    free(back);
}

/* --- rows ------------------------------------------------------------------------------------- */

static double uniform(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static double gaussian(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static double laplace(void) { return (uniform() < 0.5 ? -1 : 1) * log(uniform()); }

/* Student's t with 4 degrees of freedom. */
static double heavy(void)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        double g = gaussian();
        sum += g * g;
    }
    return gaussian() / sqrt(sum / 4);
}

static void compare_rows(const char *name, const float *x, size_t rows, size_t columns, int type,
                         const float *importance)
{
    unsigned char *bytes = malloc(rows * columns * 2);
    double lost[2], rate[2];
    for (int which = 0; which < 2; which++) {
        loss l = {0};
        double start = seconds();
        quantise((who)which, type, bytes, x, rows, columns, importance);
        rate[which] = (double)(rows * columns) / 1e6 / (seconds() - start);
        add_loss(&l, type, bytes, x, rows, columns, importance);
        lost[which] = l.weighted_off / l.weighted_power;
    }
    printf("| %s | %s | %s | %.5f %% | %.5f %% | %.3f | %.0f | %.0f |\n", name,
           type == Q4_K ? "Q4_K" : "Q8_0", importance ? "yes" : "no", 100 * lost[THEIRS],
           100 * lost[OURS], lost[OURS] / lost[THEIRS], rate[THEIRS], rate[OURS]);
    free(bytes);
}

static void run_rows(void)
{
    enum { ROWS = 2000, COLUMNS = 1024 };
    static const struct {
        const char *name;
        double (*draw)(void);
    } kinds[] = {{"gaussian", gaussian}, {"laplace", laplace}, {"t, 4 degrees", heavy}};
    float *x = malloc(sizeof *x * ROWS * COLUMNS), *importance = malloc(sizeof *x * COLUMNS);
    for (size_t i = 0; i < COLUMNS; i++) importance[i] = (float)exp(2 * gaussian());
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(0.02 * kinds[k].draw());
        for (int i = 0; i < 4; i++)
            compare_rows(kinds[k].name, x, ROWS, COLUMNS, i < 2 ? Q4_K : Q8_0,
                         i % 2 ? importance : NULL);
    }
    free(x);
    free(importance);
}

/* --- files ------------------------------------------------------------------------------------ */

static const float *importance_of(vti_calibration *im, const char *name, uint32_t layers)
{
    vti_role role = VTI_OUTPUT;
    bool in_layer = strncmp(name, "blk.", LAYER_NAME) == 0;
    uint32_t layer = in_layer ? (uint32_t)atoi(name + LAYER_NAME) : layers;
    if (!im || (in_layer && !vti_role_find(strchr(name + LAYER_NAME, '.') + 1, true, &role)))
        return NULL;
    return vti_calibration_of(im, layer, role, 0);
}

static vti_calibration *open_calibration(const char *path, const vt_gguf *gguf,
                                         vti_hparams *hparams)
{
    vti_calibration *im;
    vti_model_identity identity;
    vt_error err;
    need(vti_hparams_read(gguf, hparams, &err), &err);
    if (!path) return NULL;
    vti_model_identity_of(gguf, &identity);
    need(vti_calibration_load(path, hparams, &identity, &im, &err), &err);
    return im;
}

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) stop(path);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    if (!data || fread(data, 1, *bytes, file) != *bytes) stop(path);
    data[*bytes] = 0;
    fclose(file);
    return data;
}

static void run_file(char **args, who which, const char *calibration, const char *for_losses)
{
    vt_gguf *source, *typed;
    vt_error err;
    vti_hparams p;
    size_t bytes;
    loss sum = {0};
    need(vt_gguf_open(args[0], &source, &err), &err);
    need(vt_gguf_open(args[1], &typed, &err), &err);
    vti_calibration *im = open_calibration(calibration, source, &p);
    vti_calibration *judge = open_calibration(for_losses ? for_losses : calibration, source, &p);
    unsigned char *file = read_file(args[1], &bytes);
    for (uint64_t i = 0; i < vt_gguf_tensor_count(typed); i++) {
        vt_gguf_tensor entry;
        vti_weight_type type;
        const vti_conversion *conversion;
        vt_gguf_get_tensor(typed, i, &entry);
        const vti_gguf_tensor *to = vti_gguf_find_tensor(typed, entry.name);
        const vti_gguf_tensor *from = vti_gguf_find_tensor(source, entry.name);
        if (to->type != Q8_0 && to->type != Q4_K) continue;
        size_t columns = to->dimensions[0], rows = to->dimensions[1] * to->dimensions[2];
        float *x = malloc(rows * columns * sizeof *x);
        vti_weight_type_find(from->type, &type, &conversion);
        kernels.matmul[type].dequantize(x, from->data, rows * columns);
        unsigned char *at = memmem(file, bytes, to->data, to->size_bytes);
        quantise(which, (int)to->type, at, x, rows, columns,
                 importance_of(im, entry.name, p.layers));
        add_loss(&sum, (int)to->type, at, x, rows, columns,
                 importance_of(judge, entry.name, p.layers));
        free(x);
    }
    FILE *out = fopen(args[2], "wb");
    if (!out || fwrite(file, 1, bytes, out) != bytes || fclose(out) != 0) stop(args[2]);
    printf("loss %.6f %%, weighted %.6f %%\n", 100 * sum.off / sum.power,
           100 * sum.weighted_off / sum.weighted_power);
    free(file);
}

/* --- divergence ------------------------------------------------------------------------------- */

enum { WINDOW = 256 };

typedef struct runner {
    vt_model *model;
    vt_session *session;
    uint32_t vocabulary;
    float *logits; /* WINDOW × vocabulary, become log probabilities */
} runner;

static bool keep(void *user, uint32_t position, const float *logits)
{
    runner *r = user;
    float *to = r->logits + (size_t)position * r->vocabulary;
    double sum = 0, highest = logits[0];
    for (uint32_t i = 1; i < r->vocabulary; i++)
        if (logits[i] > highest) highest = logits[i];
    for (uint32_t i = 0; i < r->vocabulary; i++) sum += exp(logits[i] - highest);
    for (uint32_t i = 0; i < r->vocabulary; i++) to[i] = (float)(logits[i] - highest - log(sum));
    return true;
}

static runner open_runner(const char *path)
{
    runner r;
    vt_error err;
    vt_model_info info;
    vt_session_params params = vt_session_params_default();
    params.context_tokens = WINDOW;
    need(vt_model_open(path, NULL, &r.model, &err), &err);
    need(vt_session_open(r.model, &params, &r.session, &err), &err);
    vt_model_get_info(r.model, &info);
    r.vocabulary = info.vocabulary_tokens;
    r.logits = malloc((size_t)WINDOW * r.vocabulary * sizeof *r.logits);
    return r;
}

typedef struct mean {
    double sum, square;
    uint64_t count;
} mean;

static void add(mean *m, double value)
{
    m->sum += value;
    m->square += value * value;
    m->count++;
}

/* With the standard error of the mean. */
static void print_mean(const char *name, const mean *m)
{
    double n = (double)m->count, average = m->sum / n;
    printf("%s %.6f ± %.6f\n", name, average, sqrt((m->square / n - average * average) / n));
}

static void run_apart(const char *source_path, const char *other_path, const char *text_path)
{
    runner a = open_runner(source_path), b = open_runner(other_path);
    mean divergence = {0}, difference = {0};
    size_t bytes, count;
    vt_error err;
    char *text = (char *)read_file(text_path, &bytes);
    size_t room = vt_tokenize_bound(a.model, bytes);
    vt_token *tokens = malloc((room + 1) * sizeof *tokens);
    need(vt_tokenize(a.model, text, bytes, VT_TOKENIZE_SPECIAL, tokens, room, &count, &err), &err);
    for (size_t at = 0; at + WINDOW <= count; at += WINDOW) {
        runner *const both[] = {&a, &b};
        for (int i = 0; i < 2; i++) {
            need(vt_session_rewind(both[i]->session, 0, &err), &err);
            need(vt_session_feed_logits(both[i]->session, tokens + at, WINDOW, keep, both[i], &err),
                 &err);
        }
        for (size_t t = 0; t + 1 < WINDOW; t++) {
            const float *p = a.logits + t * a.vocabulary, *q = b.logits + t * b.vocabulary;
            double sum = 0;
            for (uint32_t i = 0; i < a.vocabulary; i++) sum += exp(p[i]) * ((double)p[i] - q[i]);
            add(&divergence, sum);
            add(&difference, (double)p[tokens[at + t + 1]] - q[tokens[at + t + 1]]);
        }
    }
    print_mean("divergence", &divergence);
    print_mean("-ln p is larger by", &difference);
    vt_session_close(a.session);
    vt_session_close(b.session);
}

int main(int argc, char **argv)
{
    ggml_init((struct ggml_init_params){1 << 20, NULL, false}); /* its table of halves */
    vti_kernels_init(&kernels, 0);
    if (argc == 2 && strcmp(argv[1], "rows") == 0)
        run_rows();
    else if (argc >= 6 && argc <= 8 && strcmp(argv[1], "file") == 0) {
        who which = argv[5][0] == 't' ? THEIRS : argv[5][0] == 'n' ? NEAREST : OURS;
        const char *calibration = argc > 6 && *argv[6] ? argv[6] : NULL;
        run_file(argv + 2, which, calibration, argc > 7 ? argv[7] : NULL);
    } else if (argc == 5 && strcmp(argv[1], "apart") == 0)
        run_apart(argv[2], argv[3], argv[4]);
    else
        stop("usage: rows | file SOURCE TYPED OUT WHO [CALIBRATION [FOR-LOSSES]] | apart A B TEXT");
    return 0;
}
