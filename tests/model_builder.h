/* model_builder.h: tiny models of every family with random weights, whole or wrong in one place. */
#ifndef VTI_TEST_MODEL_BUILDER_H
#define VTI_TEST_MODEL_BUILDER_H

#include "../src/quantize.h"
#include "gguf_builder.h"

enum { TEST_MODEL_TOKENS = 256, TEST_EDITS_MAX = 4 };

typedef enum test_edit_kind {
    TEST_EDIT_END, /* of a list */
    TEST_KEY_DROP,
    TEST_KEY_U32,  /* changed or added */
    TEST_KEY_F32,
    TEST_KEY_BOOL,
    TEST_KEY_TEXT,
    TEST_TENSOR_DROP,
    TEST_TENSOR_SHAPE, /* changed or added: F32 of these dimensions */
    TEST_TENSOR_TYPE,  /* ggml type number; zeros of that many bytes as F32 would take */
    TEST_TENSOR_FILL,  /* all elements the same */
} test_edit_kind;

typedef struct test_edit {
    test_edit_kind kind;
    const char *name;   /* of a key without the architecture, or of a tensor */
    double number;
    const char *text;
    uint64_t dimensions[4];
} test_edit;

typedef struct test_model {
    const char *arch;
    uint32_t layers, d, heads, kv_heads, head_dim, ff, context;
    uint32_t window;                           /* gemma3 */
    uint32_t experts, experts_used, expert_ff; /* qwen2moe */
    /* Matrices are of this ggml type, made of random floats; NULL: F32. Rows are whole blocks. */
    uint32_t matrix_type;
    vti_quantize_fn *quantize;
    uint64_t seed;
    test_edit edits[TEST_EDITS_MAX];
} test_model;

/* A model of that family: 6 layers, 64 wide, 4 heads on 2 KV heads, window 8, 8 experts of which 3
 * are used. */
test_model test_model_of(const char *arch);

/* The file; for free(). */
unsigned char *test_model_build(const test_model *model, size_t *bytes);
void test_model_write(const test_model *model, const char *path);

#endif
