#include "gguf_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct byte_buffer {
    unsigned char *data;
    size_t bytes;
    size_t capacity;
} byte_buffer;

struct gguf_builder {
    uint32_t version;
    uint32_t alignment;
    uint64_t entry_count;
    uint64_t tensor_count;
    byte_buffer entries;
    byte_buffer directory;
    byte_buffer tensor_data;
};

static void *checked(void *memory)
{
    if (!memory) {
        fprintf(stderr, "gguf_builder: out of memory\n");
        abort();
    }
    return memory;
}

/* `data` NULL: zeros. */
static void append(byte_buffer *buffer, const void *data, size_t bytes)
{
    if (buffer->bytes + bytes > buffer->capacity) {
        buffer->capacity = 2 * buffer->capacity + bytes;
        buffer->data = checked(realloc(buffer->data, buffer->capacity));
    }
    if (bytes == 0) return;
    if (data)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    else
        memset(buffer->data + buffer->bytes, 0, bytes);
    buffer->bytes += bytes;
}

static void append_number(byte_buffer *buffer, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) append(buffer, &(unsigned char){number >> 8 * i & 0xff}, 1);
}

static void append_string(byte_buffer *buffer, const void *text, size_t bytes)
{
    append_number(buffer, bytes, 8);
    append(buffer, text, bytes);
}

static void pad(byte_buffer *buffer, size_t alignment)
{
    if (alignment > 0) append(buffer, NULL, (alignment - buffer->bytes % alignment) % alignment);
}

gguf_builder *gguf_builder_new(uint32_t version)
{
    gguf_builder *builder = checked(calloc(1, sizeof *builder));
    builder->version = version;
    builder->alignment = 32;
    return builder;
}

void gguf_put_raw(gguf_builder *builder, const void *key, size_t key_bytes, uint32_t type,
                  const void *value, size_t value_bytes)
{
    append_string(&builder->entries, key, key_bytes);
    append_number(&builder->entries, type, 4);
    append(&builder->entries, value, value_bytes);
    builder->entry_count++;
}

static size_t number_bytes(vti_gguf_type type)
{
    switch (type) {
    case VTI_GGUF_U8: case VTI_GGUF_I8: case VTI_GGUF_BOOL: return 1;
    case VTI_GGUF_U16: case VTI_GGUF_I16: return 2;
    case VTI_GGUF_U64: case VTI_GGUF_I64: case VTI_GGUF_F64: return 8;
    default: return 4;
    }
}

void gguf_put_number(gguf_builder *builder, const char *key, vti_gguf_type type, const void *value)
{
    gguf_put_raw(builder, key, strlen(key), type, value, number_bytes(type));
}

void gguf_put_u32(gguf_builder *builder, const char *key, uint32_t value)
{
    gguf_put_number(builder, key, VTI_GGUF_U32, &value);
}

void gguf_put_i32(gguf_builder *builder, const char *key, int32_t value)
{
    gguf_put_number(builder, key, VTI_GGUF_I32, &value);
}

void gguf_put_f32(gguf_builder *builder, const char *key, float value)
{
    gguf_put_number(builder, key, VTI_GGUF_F32, &value);
}

void gguf_put_bool(gguf_builder *builder, const char *key, bool value)
{
    gguf_put_number(builder, key, VTI_GGUF_BOOL, &(unsigned char){value});
}

void gguf_put_string(gguf_builder *builder, const char *key, const char *value)
{
    gguf_put_raw(builder, key, strlen(key), VTI_GGUF_STRING, NULL, 0);
    append_string(&builder->entries, value, strlen(value));
}

static void put_array_head(gguf_builder *builder, const char *key, vti_gguf_type type,
                           uint64_t count)
{
    gguf_put_raw(builder, key, strlen(key), VTI_GGUF_ARRAY, NULL, 0);
    append_number(&builder->entries, type, 4);
    append_number(&builder->entries, count, 8);
}

void gguf_put_array(gguf_builder *builder, const char *key, vti_gguf_type type, uint64_t count,
                    const void *elements)
{
    put_array_head(builder, key, type, count);
    append(&builder->entries, elements, (size_t)count * number_bytes(type));
}

void gguf_put_strings(gguf_builder *builder, const char *key, uint64_t count,
                      const char *const *strings)
{
    put_array_head(builder, key, VTI_GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        append_string(&builder->entries, strings[i], strlen(strings[i]));
}

void gguf_put_alignment(gguf_builder *builder, uint32_t alignment)
{
    gguf_put_u32(builder, "general.alignment", alignment);
    builder->alignment = alignment;
}

void gguf_put_tensor(gguf_builder *builder, const char *name, uint32_t type, uint32_t dimensions,
                     const uint64_t *dimension, const void *data, size_t data_bytes)
{
    pad(&builder->tensor_data, builder->alignment);
    append_string(&builder->directory, name, strlen(name));
    append_number(&builder->directory, dimensions, 4);
    for (uint32_t i = 0; i < dimensions; i++)
        append_number(&builder->directory, dimension[i], 8);
    append_number(&builder->directory, type, 4);
    append_number(&builder->directory, builder->tensor_data.bytes, 8);
    append(&builder->tensor_data, data, data_bytes);
    builder->tensor_count++;
}

void gguf_put_f32_tensor(gguf_builder *builder, const char *name, uint32_t dimensions,
                         const uint64_t *dimension, const float *data)
{
    size_t count = 1;
    for (uint32_t i = 0; i < dimensions; i++) count *= (size_t)dimension[i];
    gguf_put_tensor(builder, name, 0, dimensions, dimension, data, count * sizeof *data);
}

unsigned char *gguf_copy_exact(const void *data, size_t bytes)
{
    void *copy = NULL;
    if (posix_memalign(&copy, 32, bytes) != 0) copy = NULL;
    checked(copy);
    if (bytes > 0) memcpy(copy, data, bytes);
    return copy;
}

unsigned char *gguf_builder_finish(gguf_builder *builder, size_t *bytes)
{
    byte_buffer file = {0};
    append(&file, "GGUF", 4);
    append_number(&file, builder->version, 4);
    append_number(&file, builder->tensor_count, 8);
    append_number(&file, builder->entry_count, 8);
    append(&file, builder->entries.data, builder->entries.bytes);
    append(&file, builder->directory.data, builder->directory.bytes);
    if (builder->tensor_count > 0) pad(&file, builder->alignment);
    append(&file, builder->tensor_data.data, builder->tensor_data.bytes);
    unsigned char *exact = gguf_copy_exact(file.data, file.bytes);
    *bytes = file.bytes;
    free(file.data);
    free(builder->entries.data);
    free(builder->directory.data);
    free(builder->tensor_data.data);
    free(builder);
    return exact;
}

void gguf_builder_write(gguf_builder *builder, const char *path)
{
    size_t bytes;
    unsigned char *data = gguf_builder_finish(builder, &bytes);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "gguf_builder: cannot write %s\n", path);
        abort();
    }
    free(data);
}
