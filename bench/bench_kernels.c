/* voltron-bench kernels: every matrix kernel and attention on the shapes of a published model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/kernels.h"
#include "bench.h"

typedef struct options {
    const char *only;  /* part of a kernel's name, or NULL */
    uint32_t mask;     /* CPU features to use */
    uint32_t threads;
    const char *csv;
    double seconds;    /* per measurement */
} options;

typedef struct context {
    options o;
    vti_kernels kernels;
    vti_pool *pool;
    FILE *csv;
    double hz, bandwidth;
} context;

/* What one call costs at least: multiply-accumulates, and bytes that must be read. */
typedef struct work {
    const char *name, *shape;
    size_t tokens;
    double macs, bytes;
} work;

typedef void call_fn(void *state);

/* Median seconds of a call. */
static double measure(const context *c, call_fn *call, void *state)
{
    enum { MOST = 201 };
    double times[MOST];
    size_t n = 0;
    call(state);
    double begin = bench_now();
    while (n < MOST && (n < 5 || bench_now() - begin < c->o.seconds)) {
        double start = bench_now();
        call(state);
        times[n++] = bench_now() - start;
    }
    return bench_median(times, n);
}

static void report(const context *c, const work *w, double seconds)
{
    double macs = w->macs / seconds / c->hz / c->o.threads, rate = w->bytes / seconds;
    printf("%-36s %-12s %5zu %10.1f µs %8.2f GB/s %5.1f %% %8.2f MAC/cycle\n", w->name, w->shape,
           w->tokens, seconds * 1e6, rate * 1e-9, 100 * rate / c->bandwidth, macs);
    fflush(stdout);
    if (c->csv)
        fprintf(c->csv, "%s,%s,%zu,%u,%.3f,%.3f,%.1f,%.3f\n", w->name, w->shape, w->tokens,
                c->o.threads, seconds * 1e6, rate * 1e-9, 100 * rate / c->bandwidth, macs);
}

static bool wanted(const context *c, const char *name)
{
    return !c->o.only || strstr(name, c->o.only);
}

/* --- products --------------------------------------------------------------------------------- */

/* With one token the matrix is repeated until no cache holds them all, as in a model. */
enum { STREAMED_BYTES = 160 << 20 };

typedef struct product {
    const context *c;
    const vti_matmul_kernel *kernel;
    size_t rows, cols, tokens, copies, next;
    size_t packed_bytes;
    unsigned char *packed;
    void *act;
    float *x, *y;
} product;

static void multiply_rows(void *state, size_t begin, size_t end)
{
    product *p = state;
    size_t first = begin * p->kernel->row_step, last = end * p->kernel->row_step;
    p->kernel->matmul(p->y, p->rows, p->packed + p->next * p->packed_bytes, p->act, p->rows,
                      p->cols, first, last < p->rows ? last : p->rows, p->tokens, false);
}

static void multiply(void *state)
{
    product *p = state;
    p->next = (p->next + 1) % p->copies;
    vti_pool_run(p->c->pool, (p->rows + p->kernel->row_step - 1) / p->kernel->row_step, 1,
                 multiply_rows, p);
}

static void convert(void *state)
{
    product *p = state;
    p->c->kernels.act[p->kernel->act].pack(p->act, p->x, p->cols, p->tokens, p->cols);
}

static bool make_product(product *p)
{
    size_t x_floats = p->tokens * p->cols, y_floats = p->tokens * p->rows;
    p->packed_bytes = (p->kernel->packed_bytes(p->rows, p->cols) + 63) / 64 * 64;
    p->copies = p->tokens > 1 ? 1 : STREAMED_BYTES / p->packed_bytes + 1;
    p->packed = aligned_alloc(64, p->packed_bytes * p->copies);
    p->x = malloc(x_floats * sizeof(float));
    p->y = malloc(y_floats * sizeof(float));
    p->act = aligned_alloc(64, (p->c->kernels.act[p->kernel->act].bytes(p->tokens, p->cols) + 63) /
                                   64 * 64);
    if (!p->packed || !p->x || !p->y || !p->act) return false;
    /* Bits that are no special numbers in any of the formats. */
    for (size_t i = 0; i < p->packed_bytes * p->copies; i++)
        p->packed[i] = (unsigned char)((i * 2654435761u >> 13) & 0x2f);
    for (size_t i = 0; i < x_floats; i++) p->x[i] = (float)(i * 40503 % 1000) * 1e-3f - 0.5f;
    return true;
}

static void free_product(product *p)
{
    free(p->packed);
    free(p->x);
    free(p->y);
    free(p->act);
}

static int bench_product(const context *c, vti_weight_type type, const char *shape, size_t rows,
                         size_t cols, size_t tokens)
{
    product p = {.c = c, .kernel = &c->kernels.matmul[type], .rows = rows, .cols = cols,
                 .tokens = tokens};
    if (!wanted(c, p.kernel->name)) return 0;
    if (!make_product(&p)) {
        free_product(&p);
        fprintf(stderr, "voltron-bench: no memory for %s %s\n", p.kernel->name, shape);
        return 1;
    }
    convert(&p);
    work w = {p.kernel->name, shape, tokens, (double)(rows * cols * tokens),
              (double)p.kernel->packed_bytes(rows, cols)};
    report(c, &w, measure(c, multiply, &p));
    free_product(&p);
    return 0;
}

static int bench_products(const context *c)
{
    /* qwen2.5-0.5b: attention, FFN up, FFN down (its 4864 columns), output */
    static const struct {
        const char *name;
        size_t rows, cols;
    } shapes[] = {{"896x896", 896, 896}, {"4864x896", 4864, 896}, {"896x4864", 896, 4864}};
    static const size_t tokens[] = {1, 2, 4, 16, 256};
    for (int type = 0; type < VTI_WEIGHT_TYPE_COUNT; type++)
        for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                if (bench_product(c, (vti_weight_type)type, shapes[s].name, shapes[s].rows,
                                  shapes[s].cols, tokens[t]))
                    return 1;
    return 0;
}

/* --- attention -------------------------------------------------------------------------------- */

typedef struct attention_state {
    const context *c;
    vti_kv_form form;
    vti_attention_args args;
} attention_state;

static void attend(void *state)
{
    attention_state *s = state;
    s->c->kernels.kv[s->form].attention(&s->args);
}

static int bench_attention(const context *c, vti_kv_form form, size_t tokens, size_t rows)
{
    static const char *names[] = {"attention_f32", "attention_f16", "attention_q8"};
    enum { HEADS = 7, HEAD_DIM = 64 };
    if (!wanted(c, names[form])) return 0;
    const vti_kv_kernel *kv = &c->kernels.kv[form];
    size_t row_bytes = kv->row_bytes(HEAD_DIM), floats = tokens * HEADS * HEAD_DIM;
    float *q = malloc(2 * floats * sizeof(float)), row[HEAD_DIM];
    unsigned char *k = malloc(2 * rows * row_bytes);
    int code = !q || !k;
    if (code) fprintf(stderr, "voltron-bench: no memory for %s\n", names[form]);
    for (size_t j = 0; !code && j < 2 * rows; j++) {
        for (size_t i = 0; i < HEAD_DIM; i++) row[i] = sinf((float)(j * 31 + i * 17));
        kv->store(k + j * row_bytes, row, HEAD_DIM);
    }
    for (size_t i = 0; !code && i < floats; i++) q[i] = cosf((float)i);
    if (!code) {
        char shape[32];
        snprintf(shape, sizeof shape, "7x64@%zu", rows);
        attention_state s = {c, form, {.out = q + floats, .out_stride = HEADS * HEAD_DIM, .q = q,
                             .q_stride = HEADS * HEAD_DIM, .tokens = tokens, .heads = HEADS,
                             .head_dim = HEAD_DIM, .k = k, .v = k + rows * row_bytes,
                             .position = rows - tokens, .kv_end = rows, .scale = 0.125f}};
        double pairs = (double)tokens * ((double)rows - (double)(tokens - 1) / 2);
        work w = {names[form], shape, tokens, 2 * pairs * HEADS * HEAD_DIM,
                  (double)(2 * rows * row_bytes)};
        report(c, &w, measure(c, attend, &s) * c->o.threads); /* runs on one thread */
    }
    free(q);
    free(k);
    return code;
}

static int bench_attentions(const context *c)
{
    for (int form = 0; form < VTI_KV_FORM_COUNT; form++) {
        if (bench_attention(c, (vti_kv_form)form, 1, 256)) return 1;
        if (bench_attention(c, (vti_kv_form)form, 1, 4096)) return 1;
        if (bench_attention(c, (vti_kv_form)form, 16, 256)) return 1;
        if (bench_attention(c, (vti_kv_form)form, 16, 4096)) return 1;
    }
    return 0;
}

/* --- the rest: rows of floats ----------------------------------------------------------------- */

typedef struct row_state {
    const context *c;
    int which;
    size_t n;
    float *a, *b, *d;
} row_state;

static const char *const row_names[] = {"rms_norm", "silu_gate", "gelu_gate",    "softmax",
                                        "argmax",   "act_q8",    "act_q8k",      "act_f32",
                                        "rope_half", "f16_from_f32", "f32_from_f16"};

static void run_row(void *state)
{
    row_state *s = state;
    const vti_kernels *k = &s->c->kernels;
    switch (s->which) {
    case 0: k->rms_norm(s->d, s->a, s->b, s->n, 1e-6f); break;
    case 1: k->silu_gate(s->d, s->a, s->b, s->n); break;
    case 2: k->gelu_gate(s->d, s->a, s->b, s->n); break;
    case 3: k->softmax(s->d, s->n); break;
    case 4: s->d[0] = (float)k->argmax(s->a, s->n); break;
    case 5: k->act[VTI_ACT_Q8].pack(s->d, s->a, s->n / 4, 4, s->n / 4); break;
    case 6: k->act[VTI_ACT_Q8K].pack(s->d, s->a, s->n / 4, 4, s->n / 4); break;
    case 7: k->act[VTI_ACT_F32].pack(s->d, s->a, s->n / 4, 4, s->n / 4); break;
    case 8: k->rope_half(s->d, s->b, s->n / 64, 64, 64); break;
    case 9: k->f16_from_f32((uint16_t *)s->d, s->a, s->n); break;
    default: k->f32_from_f16(s->d, (const uint16_t *)s->a, s->n); break;
    }
}

static int bench_rows(const context *c)
{
    enum { N = 19456, ROWS = sizeof row_names / sizeof *row_names }; /* 4 × 4864 */
    float *memory = calloc(3 * N, sizeof *memory);
    if (!memory) return 1;
    for (size_t i = 0; i < 3 * N; i++) memory[i] = (float)(i * 40503 % 1000) * 1e-2f - 5;
    for (int which = 0; which < ROWS; which++) {
        if (!wanted(c, row_names[which])) continue;
        row_state s = {c, which, N, memory, memory + N, memory + 2 * (size_t)N};
        work w = {row_names[which], "19456", 1, N, N * sizeof(float)};
        report(c, &w, measure(c, run_row, &s) * c->o.threads);
    }
    free(memory);
    return 0;
}

/* --- command ---------------------------------------------------------------------------------- */

static int usage(int code)
{
    fprintf(code ? stderr : stdout,
            "voltron-bench kernels [OPTION ...]\n"
            "  --only NAME       kernels whose name contains NAME\n"
            "  --cpu-mask MASK   CPU features to use (0: scalar)\n"
            "  --threads N       default: the big cores\n"
            "  --seconds S       per measurement, default 0.2\n"
            "  --csv FILE        also write the figures there\n"
            "GB/s counts weights (or keys and values) once per call; %% is of the read bandwidth.\n"
            "MAC/cycle is per core.\n");
    return code;
}

static bool parse(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        char *end = argv[i + 1];
        if (strcmp(argv[i], "--only") == 0) o->only = argv[i + 1], end = "";
        else if (strcmp(argv[i], "--csv") == 0) o->csv = argv[i + 1], end = "";
        else if (strcmp(argv[i], "--cpu-mask") == 0) o->mask = (uint32_t)strtoul(end, &end, 0);
        else if (strcmp(argv[i], "--threads") == 0) o->threads = (uint32_t)strtoul(end, &end, 10);
        else if (strcmp(argv[i], "--seconds") == 0) o->seconds = strtod(end, &end);
        else return false;
        if (*end) return false;
    }
    return true;
}

static void print_machine(const context *c)
{
    printf("features:");
    for (uint32_t bit = 1; bit; bit <<= 1)
        if (c->kernels.features & bit) printf(" %s", vti_cpu_feature_name(bit));
    printf("\n%u threads, %.2f GHz, read bandwidth %.1f GB/s\n\n", c->o.threads, c->hz * 1e-9,
           c->bandwidth * 1e-9);
}

int bench_kernels(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) return usage(0);
    context c = {.o = {.mask = ~0u, .seconds = 0.2}};
    if (!parse(argc, argv, &c.o)) return usage(2);
    vt_error err;
    if (vti_pool_open(c.o.threads, &c.pool, &err) != VT_OK) {
        fprintf(stderr, "voltron-bench: %s\n", err.message);
        return 1;
    }
    c.o.threads = vti_pool_threads(c.pool);
    vti_kernels_init(&c.kernels, c.o.mask);
    c.hz = bench_core_hz();
    c.bandwidth = bench_read_bandwidth(c.pool);
    c.csv = c.o.csv ? fopen(c.o.csv, "w") : NULL;
    if (c.o.csv && !c.csv) fprintf(stderr, "voltron-bench: cannot write %s\n", c.o.csv);
    if (c.csv) fprintf(c.csv, "kernel,shape,tokens,threads,us,gb_per_s,percent,mac_per_cycle\n");
    print_machine(&c);
    int code = (c.o.csv && !c.csv) || bench_products(&c) || bench_attentions(&c) || bench_rows(&c);
    if (c.csv) fclose(c.csv);
    vti_pool_close(c.pool);
    return code;
}
