/* One kernel call between roi_start() and roi_stop(), for counting instructions and simulating
 * cycles of ARM cores (neonsim.py). Linked statically with kernels/ alone.
 *
 *   harness FEATURES TYPE ROWS COLS TOKENS          matmul of a weight type (q4_0, f16, …)
 *   harness FEATURES act FORM COLS TOKENS           conversion of activations
 *   harness FEATURES attention KV HEADS HEAD_DIM TOKENS ROWS
 *   harness FEATURES vector NAME COUNT
 *
 * FEATURES: a mask of vti_cpu_feature bits, e.g. 0x300. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/kernels.h"

void roi_start(void);
void roi_stop(void);

__attribute__((noinline)) void roi_start(void) { __asm__ volatile("nop"); }
__attribute__((noinline)) void roi_stop(void) { __asm__ volatile("nop"); }

static vti_kernels kernels;
static uint32_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float random_float(void) { return (float)random_u32() / 8388608.0f - 1.0f; }

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_float();
    return x;
}

static void *allocate(size_t bytes) { return aligned_alloc(64, (bytes + 64) / 64 * 64); }

static const char *weight_names[VTI_WEIGHT_TYPE_COUNT] = {
    [VTI_F32] = "f32",   [VTI_F16] = "f16",   [VTI_BF16] = "bf16", [VTI_Q8_0] = "q8_0",
    [VTI_Q4_0] = "q4_0", [VTI_Q5_0] = "q5_0", [VTI_Q4_K] = "q4_k", [VTI_Q5_K] = "q5_k",
    [VTI_Q6_K] = "q6_k",
};

static int find(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (names[i] && strcmp(name, names[i]) == 0) return i;
    fprintf(stderr, "harness: '%s' is not known\n", name);
    exit(1);
}

/* Random bytes are weights of every quantised type; halves are kept small. */
static unsigned char *random_weights(size_t bytes, bool halves)
{
    unsigned char *w = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) w[i] = (unsigned char)random_u32();
    for (size_t i = 1; halves && i < bytes; i += 2) w[i] = (unsigned char)(0x2c | (w[i] & 0x83));
    return w;
}

static void matmul(int type, size_t rows, size_t cols, size_t tokens)
{
    const vti_matmul_kernel *kernel = &kernels.matmul[type];
    const vti_act_kernel *act = &kernels.act[kernel->act];
    size_t stride = kernel->source_bytes(cols);
    unsigned char *source = random_weights(rows * stride, type == VTI_F16 || type == VTI_BF16);
    void *w = allocate(kernel->packed_bytes(rows, cols)), *x = allocate(act->bytes(tokens, cols));
    float *y = allocate(rows * tokens * sizeof *y), *in = random_floats(tokens * cols);
    kernel->pack(w, source, stride, rows, cols, 0, rows);
    act->pack(x, in, cols, tokens, cols);
    roi_start();
    kernel->matmul(y, rows, w, x, rows, cols, 0, rows, tokens, false);
    roi_stop();
    fprintf(stderr, "%s\n", kernel->name);
}

static void act(const char *form, size_t cols, size_t tokens)
{
    static const char *names[VTI_ACT_TYPE_COUNT] = {
        [VTI_ACT_F32] = "f32", [VTI_ACT_Q8] = "q8", [VTI_ACT_Q8K] = "q8k", [VTI_ACT_F16] = "f16"};
    const vti_act_kernel *kernel = &kernels.act[find(form, names, VTI_ACT_TYPE_COUNT)];
    void *x = allocate(kernel->bytes(tokens, cols));
    float *in = random_floats(tokens * cols);
    roi_start();
    kernel->pack(x, in, cols, tokens, cols);
    roi_stop();
}

static void attention(const char *kv, size_t heads, size_t head_dim, size_t tokens, size_t rows)
{
    static const char *names[VTI_KV_FORM_COUNT] = {
        [VTI_KV_F32] = "f32", [VTI_KV_F16] = "f16", [VTI_KV_Q8] = "q8"};
    const vti_kv_kernel *kernel = &kernels.kv[find(kv, names, VTI_KV_FORM_COUNT)];
    size_t row_bytes = kernel->row_bytes(head_dim), floats = tokens * heads * head_dim;
    unsigned char *k = allocate(rows * row_bytes), *v = allocate(rows * row_bytes);
    for (size_t i = 0; i < rows; i++) {
        kernel->store(k + i * row_bytes, random_floats(head_dim), head_dim);
        kernel->store(v + i * row_bytes, random_floats(head_dim), head_dim);
    }
    vti_attention_args args = {
        .out = allocate(floats * sizeof(float)), .out_stride = heads * head_dim,
        .q = random_floats(floats), .q_stride = heads * head_dim, .tokens = tokens,
        .heads = heads, .head_dim = head_dim, .k = k, .v = v, .position = rows - tokens,
        .kv_end = rows, .scale = 0.125f};
    roi_start();
    kernel->attention(&args);
    roi_stop();
}

static void vector(const char *name, size_t n)
{
    static const char *names[] = {"rms_norm", "rope_interleaved", "rope_half", "silu_gate",
                                  "gelu_gate", "add", "add_scaled", "softmax", "argmax",
                                  "f16_from_f32", "f32_from_f16"};
    float *x = random_floats(n), *y = random_floats(n), *z = random_floats(n);
    uint16_t *half = calloc(n, sizeof *half);
    volatile size_t sink = 0;
    int which = find(name, names, sizeof names / sizeof *names);
    roi_start();
    switch (which) {
    case 0: kernels.rms_norm(z, x, y, n, 1e-6f); break;
    case 1: kernels.rope_interleaved(x, y, n / 64, 64, 64); break;
    case 2: kernels.rope_half(x, y, n / 64, 64, 64); break;
    case 3: kernels.silu_gate(z, x, y, n); break;
    case 4: kernels.gelu_gate(z, x, y, n); break;
    case 5: kernels.add(y, x, n); break;
    case 6: kernels.add_scaled(y, x, 0.5f, n); break;
    case 7: kernels.softmax(x, n); break;
    case 8: sink = kernels.argmax(x, n); break;
    case 9: kernels.f16_from_f32(half, x, n); break;
    default: kernels.f32_from_f16(x, half, n); break;
    }
    roi_stop();
    (void)sink;
}

static size_t number(char **arguments, int i) { return strtoul(arguments[i], NULL, 0); }

int main(int count, char **arguments)
{
    if (count < 5) {
        if (count < 4 || strcmp(arguments[2], "vector") != 0) return 1;
    }
    vti_kernels_init(&kernels, (uint32_t)number(arguments, 1));
    const char *what = arguments[2];
    if (strcmp(what, "vector") == 0 && count == 5)
        vector(arguments[3], number(arguments, 4));
    else if (strcmp(what, "act") == 0 && count == 6)
        act(arguments[3], number(arguments, 4), number(arguments, 5));
    else if (strcmp(what, "attention") == 0 && count == 8)
        attention(arguments[3], number(arguments, 4), number(arguments, 5), number(arguments, 6),
                  number(arguments, 7));
    else if (count == 6)
        matmul(find(what, weight_names, VTI_WEIGHT_TYPE_COUNT), number(arguments, 3),
               number(arguments, 4), number(arguments, 5));
    else
        return 1;
    return 0;
}
