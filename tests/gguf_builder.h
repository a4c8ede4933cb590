/* gguf_builder.h: GGUF files for tests, built in memory.
 *
 *     gguf_builder *builder = gguf_builder_new(3);
 *     gguf_put_string(builder, "general.architecture", "qwen2");
 *     gguf_put_tensor(builder, "token_embd.weight", 0, 2, (uint64_t[]){64, 8}, weights, 2048);
 *     size_t bytes;
 *     unsigned char *file = gguf_builder_finish(builder, &bytes);   frees the builder
 *     ... free(file);
 *
 * The builder checks nothing: files it makes may be as wrong as a test needs them. It ends the
 * process if memory runs out. */
#ifndef VTI_TEST_GGUF_BUILDER_H
#define VTI_TEST_GGUF_BUILDER_H

#include "../src/gguf.h"

typedef struct gguf_builder gguf_builder;

gguf_builder *gguf_builder_new(uint32_t version);

/* Metadata, in the order of the calls. */
void gguf_put_u32(gguf_builder *builder, const char *key, uint32_t value);
void gguf_put_i32(gguf_builder *builder, const char *key, int32_t value);
void gguf_put_f32(gguf_builder *builder, const char *key, float value);
void gguf_put_bool(gguf_builder *builder, const char *key, bool value);
void gguf_put_string(gguf_builder *builder, const char *key, const char *value);
/* A number of any type: the type's bytes at `value`. */
void gguf_put_number(gguf_builder *builder, const char *key, vti_gguf_type type, const void *value);
/* `elements`: `count` numbers of `type`, one behind the other. */
void gguf_put_array(gguf_builder *builder, const char *key, vti_gguf_type type, uint64_t count,
                    const void *elements);
void gguf_put_strings(gguf_builder *builder, const char *key, uint64_t count,
                      const char *const *strings);
/* Any bytes as key, any number as type, any bytes behind it. */
void gguf_put_raw(gguf_builder *builder, const void *key, size_t key_bytes, uint32_t type,
                  const void *value, size_t value_bytes);
/* general.alignment, which the data section then has; 32 without this call. */
void gguf_put_alignment(gguf_builder *builder, uint32_t alignment);

/* A tensor with ggml type number `type`. Its data lies behind the tensors before it, padded to the
 * alignment. `data` NULL: zeros. */
void gguf_put_tensor(gguf_builder *builder, const char *name, uint32_t type, uint32_t dimensions,
                     const uint64_t *dimension, const void *data, size_t data_bytes);
void gguf_put_f32_tensor(gguf_builder *builder, const char *name, uint32_t dimensions,
                         const uint64_t *dimension, const float *data);

/* The file: exactly *bytes, 32-byte aligned, for free(). Frees the builder. */
unsigned char *gguf_builder_finish(gguf_builder *builder, size_t *bytes);
/* The same into a file at `path`. */
void gguf_builder_write(gguf_builder *builder, const char *path);

/* An exactly sized, 32-byte aligned copy for free(): ASan sees each byte read past its end. */
unsigned char *gguf_copy_exact(const void *data, size_t bytes);

#endif
