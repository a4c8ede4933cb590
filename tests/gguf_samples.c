#include "gguf_samples.h"

static void put_scalars(gguf_builder *builder)
{
    gguf_put_string(builder, "general.architecture", "sample");
    gguf_put_number(builder, "scalar.u8", VTI_GGUF_U8, &(uint8_t){200});
    gguf_put_number(builder, "scalar.i8", VTI_GGUF_I8, &(int8_t){-100});
    gguf_put_number(builder, "scalar.u16", VTI_GGUF_U16, &(uint16_t){60000});
    gguf_put_number(builder, "scalar.i16", VTI_GGUF_I16, &(int16_t){-30000});
    gguf_put_u32(builder, "scalar.u32", 4000000000u);
    gguf_put_i32(builder, "scalar.i32", -2000000000);
    gguf_put_f32(builder, "scalar.f32", 0.1f);
    gguf_put_bool(builder, "scalar.bool", true);
    gguf_put_string(builder, "scalar.str", "line\n\"quoted\" \\ \x1b[31m \xc3\xa9 \xff");
    gguf_put_number(builder, "scalar.u64", VTI_GGUF_U64, &(uint64_t){UINT64_MAX});
    gguf_put_number(builder, "scalar.i64", VTI_GGUF_I64, &(int64_t){INT64_MIN});
    gguf_put_number(builder, "scalar.f64", VTI_GGUF_F64, &(double){-2.5e300});
}

static void put_arrays(gguf_builder *builder)
{
    const char *strings[] = {"a", "", "longer"};
    gguf_put_strings(builder, "array.str", 3, strings);
    gguf_put_array(builder, "array.i32", VTI_GGUF_I32, 3, (int32_t[]){1, -2, 3});
    gguf_put_array(builder, "array.f32", VTI_GGUF_F32, 2, (float[]){0.5f, -1e-6f});
    gguf_put_array(builder, "array.bool", VTI_GGUF_BOOL, 2, (unsigned char[]){1, 0});
    gguf_put_array(builder, "array.u64", VTI_GGUF_U64, 1, (uint64_t[]){7});
    gguf_put_array(builder, "array.empty", VTI_GGUF_U16, 0, NULL);
}

unsigned char *gguf_sample_complete(uint32_t version, size_t *bytes)
{
    gguf_builder *builder = gguf_builder_new(version);
    put_scalars(builder);
    put_arrays(builder);
    const float ramp[6] = {0, 1, 2, 3, 4, 5};
    gguf_put_f32_tensor(builder, "matrix", 2, (uint64_t[]){3, 2}, ramp);
    gguf_put_tensor(builder, "blocks", 8, 1, (uint64_t[]){64}, NULL, 2 * 34);
    gguf_put_tensor(builder, "cube", 1, 4, (uint64_t[]){2, 1, 3, 2}, NULL, 24);
    gguf_put_tensor(builder, "scalar", 0, 0, NULL, NULL, 4);
    return gguf_builder_finish(builder, bytes);
}

unsigned char *gguf_sample_vocabulary(size_t *bytes)
{
    const char *tokens[] = {"<s>", "a", "b", "ab"};
    gguf_builder *builder = gguf_builder_new(3);
    gguf_put_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_put_strings(builder, "tokenizer.ggml.tokens", 4, tokens);
    gguf_put_array(builder, "tokenizer.ggml.token_type", VTI_GGUF_I32, 4, (int32_t[]){3, 1, 1, 1});
    return gguf_builder_finish(builder, bytes);
}

unsigned char *gguf_sample_empty(size_t *bytes)
{
    return gguf_builder_finish(gguf_builder_new(3), bytes);
}

unsigned char *gguf_sample_aligned(size_t *bytes)
{
    gguf_builder *builder = gguf_builder_new(2);
    gguf_put_alignment(builder, 64);
    gguf_put_tensor(builder, "k", 12, 2, (uint64_t[]){256, 1}, NULL, 144);
    gguf_put_tensor(builder, "i", 24, 1, (uint64_t[]){5}, "hello", 5);
    gguf_put_tensor(builder, "d", 28, 3, (uint64_t[]){1, 2, 1}, NULL, 16);
    return gguf_builder_finish(builder, bytes);
}
