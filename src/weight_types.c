#include "weight_types.h"

#include <stdio.h>

#include "gguf.h"

static const uint32_t ggml_numbers[VTI_WEIGHT_TYPE_COUNT] = {
    [VTI_F32] = 0,  [VTI_F16] = 1,   [VTI_BF16] = 30, [VTI_Q8_0] = 8,
    [VTI_Q4_0] = 2, [VTI_Q5_0] = 6,  [VTI_Q4_K] = 12, [VTI_Q5_K] = 13, [VTI_Q6_K] = 14,
};

uint32_t vti_weight_type_number(vti_weight_type type) { return ggml_numbers[type]; }

const char *vti_weight_type_name(vti_weight_type type)
{
    return (unsigned)type < VTI_WEIGHT_TYPE_COUNT ? vti_ggml_type_find(ggml_numbers[type])->name
                                                  : "unknown";
}

bool vti_weight_type_find(uint32_t number, vti_weight_type *out, const vti_conversion **conversion)
{
    *conversion = NULL;
    for (unsigned type = 0; type < VTI_WEIGHT_TYPE_COUNT; type++) {
        *out = (vti_weight_type)type;
        if (ggml_numbers[type] == number) return true;
    }
    for (unsigned i = 0; i < VTI_CONVERSION_COUNT; i++) {
        if (vti_conversions[i].number != number) continue;
        *conversion = &vti_conversions[i];
        *out = vti_conversions[i].target;
        return true;
    }
    return false;
}

void vti_weight_type_list(char *buffer, size_t capacity)
{
    size_t at = 0;
    for (unsigned i = 0; i < VTI_WEIGHT_TYPE_COUNT + VTI_CONVERSION_COUNT && at < capacity; i++) {
        const char *name = i < VTI_WEIGHT_TYPE_COUNT
                               ? vti_weight_type_name((vti_weight_type)i)
                               : vti_conversions[i - VTI_WEIGHT_TYPE_COUNT].name;
        at += (size_t)snprintf(buffer + at, capacity - at, "%s%s", i ? ", " : "", name);
    }
}
