/* Integers of one block of a K type: eight rows × four tokens, with SMMLA.
 *
 * void vti_dots32_i8mm(int32_t *dots, const int8_t *w, const unsigned char *q,
 *                      const int32_t *scales, size_t count);
 *
 * dots: [4 pairs of rows][2 pairs of tokens][2 rows][2 tokens] = Σ scale × dot product over
 * `count` × 32 columns. w is [columns / 8][16 rows][8], scales [columns / 32][8 pairs of rows][2]
 * [2 times], both from the first of the eight rows on; q is [columns / 8][4 tokens][8]. A scale
 * belongs to 32 columns; with vti_dots16_i8mm to 16. */
#include "asm.h"

        dots    .req x0
        w       .req x1
        q       .req x2
        scales  .req x3
        count   .req x4

/* Eight columns. */
.macro columns8 w0, w1, w2, w3, a0, a1
        ldp     q\w0, q\w1, [w]
        ldp     q\w2, q\w3, [w, #32]
        ldp     q\a0, q\a1, [q], #32
        add     w, w, #128
        smmla   v0.4s, v\w0\().16b, v\a0\().16b
        smmla   v1.4s, v\w0\().16b, v\a1\().16b
        smmla   v2.4s, v\w1\().16b, v\a0\().16b
        smmla   v3.4s, v\w1\().16b, v\a1\().16b
        smmla   v4.4s, v\w2\().16b, v\a0\().16b
        smmla   v5.4s, v\w2\().16b, v\a1\().16b
        smmla   v6.4s, v\w3\().16b, v\a0\().16b
        smmla   v7.4s, v\w3\().16b, v\a1\().16b
.endm

.macro columns16
        columns8 24, 25, 26, 27, 28, 29
        columns8 8, 9, 10, 11, 30, 31
.endm

.macro add_scaled
        ldp     q12, q13, [scales]
        ldp     q14, q15, [scales, #32]
        add     scales, scales, #128
        mla     v16.4s, v0.4s, v12.4s
        mla     v17.4s, v1.4s, v12.4s
        mla     v18.4s, v2.4s, v13.4s
        mla     v19.4s, v3.4s, v13.4s
        mla     v20.4s, v4.4s, v14.4s
        mla     v21.4s, v5.4s, v14.4s
        mla     v22.4s, v6.4s, v15.4s
        mla     v23.4s, v7.4s, v15.4s
.endm

.macro clear_dots
        movi    v0.2d, #0
        movi    v1.2d, #0
        movi    v2.2d, #0
        movi    v3.2d, #0
        movi    v4.2d, #0
        movi    v5.2d, #0
        movi    v6.2d, #0
        movi    v7.2d, #0
.endm

.macro block32
        clear_dots
        columns16
        columns16
        add_scaled
.endm

.macro block16
        clear_dots
        columns16
        add_scaled
        clear_dots
        columns16
        add_scaled
.endm

.macro blocks_of block
        save_vectors
        movi    v16.4s, #0
        movi    v17.4s, #0
        movi    v18.4s, #0
        movi    v19.4s, #0
        movi    v20.4s, #0
        movi    v21.4s, #0
        movi    v22.4s, #0
        movi    v23.4s, #0
1:      subs    count, count, #1
        \block
        b.ne    1b
        stp     q16, q17, [dots]
        stp     q18, q19, [dots, #32]
        stp     q20, q21, [dots, #64]
        stp     q22, q23, [dots, #96]
        restore_vectors
.endm

function SYMBOL(vti_dots32_i8mm)
        blocks_of block32
end_function SYMBOL(vti_dots32_i8mm)

function SYMBOL(vti_dots16_i8mm)
        blocks_of block16
end_function SYMBOL(vti_dots16_i8mm)
