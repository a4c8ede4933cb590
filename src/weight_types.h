/* weight_types.h: which weight types of GGUF files can be loaded, and as what. */
#ifndef VTI_WEIGHT_TYPES_H
#define VTI_WEIGHT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "../kernels/kernels.h"

/* A type without a kernel of its own, and the one that takes its place. */
typedef struct vti_conversion {
    const char *name;       /* "Q4_1" */
    uint32_t number;        /* ggml's */
    vti_weight_type target;
    uint32_t block, block_bytes;
    /* `count` weights, whole blocks, as the format defines them: bit for bit. */
    vti_dequantize_fn *dequantize;
    /* The same weights as the target has them in a file; docs/numerics.md says what is lost. `count`
     * is a multiple of both types' blocks. */
    void (*convert)(void *dst, const void *source, size_t count);
} vti_conversion;

/* Q4_1, Q5_1, Q2_K, Q3_K, IQ4_NL, IQ4_XS. */
enum { VTI_CONVERSION_COUNT = 6 };
extern const vti_conversion vti_conversions[VTI_CONVERSION_COUNT];

const char *vti_weight_type_name(vti_weight_type type);

/* ggml's number of a type with a kernel. */
uint32_t vti_weight_type_number(vti_weight_type type);

/* What kernels get for ggml's type `number`; *conversion is NULL for a type with a kernel. False for
 * one that cannot be loaded. */
bool vti_weight_type_find(uint32_t number, vti_weight_type *out,
                          const vti_conversion **conversion);

/* "F32, F16, …": all that can be loaded. */
void vti_weight_type_list(char *buffer, size_t capacity);

#endif
