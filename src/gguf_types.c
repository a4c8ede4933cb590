#include "gguf_internal.h"

static const struct {
    const char *name;
    uint32_t bytes;
} value_types[VTI_GGUF_TYPE_COUNT] = {
    [VTI_GGUF_U8] = {"u8", 1},     [VTI_GGUF_I8] = {"i8", 1},      [VTI_GGUF_U16] = {"u16", 2},
    [VTI_GGUF_I16] = {"i16", 2},   [VTI_GGUF_U32] = {"u32", 4},    [VTI_GGUF_I32] = {"i32", 4},
    [VTI_GGUF_F32] = {"f32", 4},   [VTI_GGUF_BOOL] = {"bool", 1},  [VTI_GGUF_STRING] = {"str", 0},
    [VTI_GGUF_ARRAY] = {"arr", 0}, [VTI_GGUF_U64] = {"u64", 8},    [VTI_GGUF_I64] = {"i64", 8},
    [VTI_GGUF_F64] = {"f64", 8},
};

const char *vti_gguf_type_name(uint32_t type)
{
    return type < VTI_GGUF_TYPE_COUNT ? value_types[type].name : NULL;
}

uint32_t vti_gguf_type_bytes(vti_gguf_type type) { return value_types[type].bytes; }

/* ggml's numbering; 4 and 5 (Q4_2, Q4_3) are older than GGUF, 36 to 38 exist in memory only. The
 * Q4_0_x_y types are Q4_0 with rows interleaved: withdrawn, but files with them were published. */
static const vti_ggml_type ggml_types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {31, "Q4_0_4_4", 32, 18},
    {32, "Q4_0_4_8", 32, 18}, {33, "Q4_0_8_8", 32, 18}, {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

const vti_ggml_type *vti_ggml_type_find(uint32_t number)
{
    size_t count = sizeof ggml_types / sizeof ggml_types[0];
    for (size_t i = 0; i < count; i++)
        if (ggml_types[i].number == number) return &ggml_types[i];
    return NULL;
}
