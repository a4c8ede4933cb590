/* gguf_exercise.h: follows every pointer and calls every look-up of an opened GGUF file, and ends
 * the process where one of them contradicts another. Shared by the fuzz target and the tests. */
#ifndef VTI_FUZZ_GGUF_EXERCISE_H
#define VTI_FUZZ_GGUF_EXERCISE_H

#include "../../src/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was read is added up here, so that no read is optimised away. */
static volatile uint64_t gguf_exercise_sum;

static void gguf_exercise_require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "gguf_exercise: broken promise: %s\n", what);
    abort();
}

static void gguf_exercise_value(const vti_gguf_value *value)
{
    const unsigned char *cursor = value->data;
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->type == VTI_GGUF_STRING) {
            vti_gguf_string text = vti_gguf_next_string(&cursor);
            for (uint64_t j = 0; j < text.bytes; j++)
                gguf_exercise_sum += (unsigned char)text.data[j];
        } else {
            gguf_exercise_sum += vti_gguf_number_at(value, i) > 0;
        }
    }
    if (value->type == VTI_GGUF_STRING)
        gguf_exercise_require(cursor == value->end, "strings end where their value does");
    gguf_exercise_require(value->data <= value->end, "a value's end is behind its data");
}

/* A typed getter succeeds or says why, never something between. */
static void gguf_exercise_getters(const vt_gguf *gguf, const char *key)
{
    uint32_t u32;
    float f32;
    bool boolean;
    vti_gguf_string string;
    const vti_gguf_value *array;
    for (int getter = 0; getter < 5; getter++) {
        vt_error err = {VT_OK, ""};
        vt_status status = VT_OK;
        switch (getter) {
        case 0: status = vti_gguf_get_u32(gguf, key, true, &u32, &err); break;
        case 1: status = vti_gguf_get_f32(gguf, key, true, &f32, &err); break;
        case 2: status = vti_gguf_get_bool(gguf, key, true, &boolean, &err); break;
        case 3: status = vti_gguf_get_string(gguf, key, true, &string, &err); break;
        case 4: status = vti_gguf_get_array(gguf, key, VTI_GGUF_F32, true, &array, &err); break;
        }
        gguf_exercise_require(status == err.status, "status and error agree");
        gguf_exercise_require((status == VT_OK) == (err.message[0] == 0),
                              "a failure has a message, a success none");
    }
}

static void gguf_exercise_entries(const vt_gguf *gguf)
{
    for (uint64_t i = 0; i < vt_gguf_entry_count(gguf); i++) {
        vt_gguf_entry entry;
        gguf_exercise_require(vt_gguf_get_entry(gguf, i, &entry) == VT_OK, "entries can be read");
        const vti_gguf_value *value = vti_gguf_find(gguf, entry.key);
        gguf_exercise_require(value && value->count == entry.count, "a key is found again");
        gguf_exercise_value(value);
        gguf_exercise_getters(gguf, entry.key);
        size_t bytes = vt_gguf_entry_text(gguf, i, UINT64_MAX, NULL, 0);
        char *text = malloc(bytes + 1);
        if (!text) return;
        gguf_exercise_require(vt_gguf_entry_text(gguf, i, UINT64_MAX, text, bytes + 1) == bytes,
                              "the text's length does not change");
        gguf_exercise_require(strlen(text) == bytes, "the text has no NUL inside");
        free(text);
        char little[4];
        vt_gguf_entry_text(gguf, i, 2, little, sizeof little);
        gguf_exercise_require(strlen(little) < sizeof little, "a cut text is terminated");
    }
}

static void gguf_exercise_tensors(const vt_gguf *gguf, const void *data, size_t data_bytes)
{
    for (uint64_t i = 0; i < vt_gguf_tensor_count(gguf); i++) {
        vt_gguf_tensor shown;
        gguf_exercise_require(vt_gguf_get_tensor(gguf, i, &shown) == VT_OK, "tensors can be read");
        const vti_gguf_tensor *tensor = vti_gguf_find_tensor(gguf, shown.name);
        gguf_exercise_require(tensor && tensor->offset_bytes == shown.offset_bytes,
                              "a tensor is found again");
        gguf_exercise_require(tensor->offset_bytes <= data_bytes &&
                                  tensor->size_bytes <= data_bytes - tensor->offset_bytes,
                              "tensor data lies in the file");
        const unsigned char *first = tensor->data;
        gguf_exercise_require(first == (const unsigned char *)data + tensor->offset_bytes,
                              "tensor data is where its offset says");
        gguf_exercise_require((uintptr_t)first % 32 == 0, "tensor data is 32-byte aligned");
        gguf_exercise_require(tensor->size_bytes > 0, "tensors have data");
        gguf_exercise_sum += first[0];
        gguf_exercise_sum += first[tensor->size_bytes - 1];
    }
}

/* `data` is what the file was opened from. */
static inline void gguf_exercise(const vt_gguf *gguf, const void *data, size_t data_bytes)
{
    gguf_exercise_entries(gguf);
    gguf_exercise_tensors(gguf, data, data_bytes);
    /* Keys and names are printable, so no file can have these. */
    gguf_exercise_require(!vti_gguf_find(gguf, "\n"), "an impossible key is not found");
    gguf_exercise_require(!vti_gguf_find_tensor(gguf, ""), "an impossible tensor is not found");
}

/* Opens from memory and exercises, or checks that the failure is an orderly one. */
static inline vt_status gguf_exercise_memory(const void *data, size_t data_bytes, vt_error *err)
{
    vt_gguf *gguf = (vt_gguf *)err; /* must be overwritten */
    *err = (vt_error){VT_OK, ""};
    vt_status status = vti_gguf_open_memory(data, data_bytes, "memory", &gguf, err);
    if (status == VT_OK) {
        gguf_exercise(gguf, data, data_bytes);
        vt_gguf_close(gguf);
        return VT_OK;
    }
    gguf_exercise_require(gguf == NULL, "a failed open gives NULL");
    gguf_exercise_require(status == err->status, "status and error agree");
    gguf_exercise_require(strncmp(err->message, "memory: ", 8) == 0, "a message names the file");
    gguf_exercise_require(status == VT_ERR_FORMAT || status == VT_ERR_UNSUPPORTED,
                          "damage is ERR_FORMAT or ERR_UNSUPPORTED");
    return status;
}

#endif
