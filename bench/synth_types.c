#include "synth.h"

const synth_type synth_f32 = {"F32", 0, 0, 1, 4, vti_quantize_f32};
const synth_type synth_f16 = {"F16", 1, 1, 1, 2, vti_quantize_f16};
const synth_type synth_bf16 = {"BF16", 30, 32, 1, 2, vti_quantize_bf16};
const synth_type synth_q8_0 = {"Q8_0", 8, 7, 32, 34, vti_quantize_q8_0};
const synth_type synth_q4_0 = {"Q4_0", 2, 2, 32, 18, vti_quantize_q4_0};
const synth_type synth_q5_0 = {"Q5_0", 6, 8, 32, 22, vti_quantize_q5_0};
const synth_type synth_q5_1 = {"Q5_1", 7, 9, 32, 24, vti_quantize_q5_1};
const synth_type synth_q4_1 = {"Q4_1", 3, 3, 32, 20, vti_quantize_q4_1};
const synth_type synth_iq4_nl = {"IQ4_NL", 20, 25, 32, 18, vti_quantize_iq4_nl};
const synth_type synth_q2_k = {"Q2_K", 10, 10, 256, 84, vti_quantize_q2_k};
const synth_type synth_q3_k = {"Q3_K", 11, 11, 256, 110, vti_quantize_q3_k};
const synth_type synth_q4_k = {"Q4_K", 12, 14, 256, 144, vti_quantize_q4_k};
const synth_type synth_q5_k = {"Q5_K", 13, 16, 256, 176, vti_quantize_q5_k};
const synth_type synth_q6_k = {"Q6_K", 14, 18, 256, 210, vti_quantize_q6_k};
const synth_type synth_iq4_xs = {"IQ4_XS", 23, 30, 256, 136, vti_quantize_iq4_xs};

const synth_type *const synth_types[] = {
    &synth_f32,  &synth_f16,  &synth_bf16,   &synth_q8_0,   &synth_q5_1, &synth_q5_0,
    &synth_q4_1, &synth_q4_0, &synth_iq4_nl, &synth_q6_k,   &synth_q5_k, &synth_q4_k,
    &synth_q3_k, &synth_q2_k, &synth_iq4_xs, NULL,
};

/* Rows that are no whole number of super-blocks get a type with blocks of 32. */
const synth_type *synth_fitting_type(const synth_type *type, uint64_t cols)
{
    if (cols % type->block == 0) return type;
    if (cols % 32 != 0) return &synth_f16;
    if (type == &synth_q2_k || type == &synth_q3_k || type == &synth_iq4_xs) return &synth_iq4_nl;
    if (type == &synth_q4_k) return &synth_q5_0;
    return type == &synth_q5_k ? &synth_q5_1 : &synth_q8_0;
}
