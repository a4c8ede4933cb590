/* Integers of one block of a K type: eight rows × four tokens, with SDOT.
 *
 * void vti_dots32_dotprod(int32_t *dots, const int8_t *w, const unsigned char *q,
 *                         const int32_t *scales, size_t count);
 *
 * dots[t * 16 + r] = Σ scale × dot product over `count` × 32 columns. w and scales are those of 16
 * rows: 512 bytes per 32 columns, 64 bytes per scale; q is [columns / 8][4][8]. A scale belongs to
 * 32 columns; with vti_dots16_dotprod to 16. */
#include "asm.h"

        dots    .req x0
        w       .req x1
        q       .req x2
        scales  .req x3
        count   .req x4
        zeros   .req x5

/* As in tile_q8_dotprod.S. */
.macro columns8 w0, w1, w2, w3, a0, a1, a2, a3, n0, n1, n2, n3, b0, b1, b2, b3, more
  .if \more
        sdot    v0.4s, v\w0\().16b, v\a0\().4b[0]
        ldr     d\b0, [q], #32
        sdot    v1.4s, v\w1\().16b, v\a0\().4b[0]
        ldur    d\b1, [q, #-24]
        sdot    v2.4s, v\w0\().16b, v\a1\().4b[0]
        ldur    d\b2, [q, #-16]
        sdot    v3.4s, v\w1\().16b, v\a1\().4b[0]
        ldur    d\b3, [q, #-8]
        sdot    v4.4s, v\w0\().16b, v\a2\().4b[0]
        ldp     q\n0, q\n1, [w], #64
        sdot    v5.4s, v\w1\().16b, v\a2\().4b[0]
        sdot    v6.4s, v\w0\().16b, v\a3\().4b[0]
        sdot    v7.4s, v\w1\().16b, v\a3\().4b[0]
        ldp     q\n2, q\n3, [w], #64
  .else
        sdot    v0.4s, v\w0\().16b, v\a0\().4b[0]
        sdot    v1.4s, v\w1\().16b, v\a0\().4b[0]
        sdot    v2.4s, v\w0\().16b, v\a1\().4b[0]
        sdot    v3.4s, v\w1\().16b, v\a1\().4b[0]
        sdot    v4.4s, v\w0\().16b, v\a2\().4b[0]
        sdot    v5.4s, v\w1\().16b, v\a2\().4b[0]
        sdot    v6.4s, v\w0\().16b, v\a3\().4b[0]
        sdot    v7.4s, v\w1\().16b, v\a3\().4b[0]
  .endif
        sdot    v0.4s, v\w2\().16b, v\a0\().4b[1]
        sdot    v1.4s, v\w3\().16b, v\a0\().4b[1]
        sdot    v2.4s, v\w2\().16b, v\a1\().4b[1]
        sdot    v3.4s, v\w3\().16b, v\a1\().4b[1]
        sdot    v4.4s, v\w2\().16b, v\a2\().4b[1]
        sdot    v5.4s, v\w3\().16b, v\a2\().4b[1]
        sdot    v6.4s, v\w2\().16b, v\a3\().4b[1]
        sdot    v7.4s, v\w3\().16b, v\a3\().4b[1]
.endm

.macro even_columns more
        columns8 24, 25, 26, 27, 28, 29, 30, 31, 12, 13, 14, 15, 8, 9, 10, 11, \more
.endm

.macro odd_columns more
        columns8 12, 13, 14, 15, 8, 9, 10, 11, 24, 25, 26, 27, 28, 29, 30, 31, \more
.endm

/* After odd columns: totals += dots × scales. */
.macro add_scaled
        ldp     q12, q13, [scales], #64
        mla     v16.4s, v0.4s, v12.4s
        mla     v17.4s, v1.4s, v13.4s
        mla     v18.4s, v2.4s, v12.4s
        mla     v19.4s, v3.4s, v13.4s
        mla     v20.4s, v4.4s, v12.4s
        mla     v21.4s, v5.4s, v13.4s
        mla     v22.4s, v6.4s, v12.4s
        mla     v23.4s, v7.4s, v13.4s
.endm

.macro clear_dots
        ldp     q0, q1, [zeros]
        ldp     q2, q3, [zeros]
        ldp     q4, q5, [zeros]
        ldp     q6, q7, [zeros]
.endm

.macro block32 more
        clear_dots
        even_columns 1
        odd_columns 1
        even_columns 1
        odd_columns \more
        add_scaled
.endm

.macro block16 more
        clear_dots
        even_columns 1
        odd_columns 1
        add_scaled
        clear_dots
        even_columns 1
        odd_columns \more
        add_scaled
.endm

.macro blocks_of block
        save_vectors
        movi    v16.4s, #0
        stp     q16, q16, [sp, #-32]!
        mov     zeros, sp
        ldp     q24, q25, [w], #64
        movi    v17.4s, #0
        movi    v18.4s, #0
        ldp     q26, q27, [w], #64
        movi    v19.4s, #0
        movi    v20.4s, #0
        ldp     d28, d29, [q], #16
        ldp     d30, d31, [q], #16
        movi    v21.4s, #0
        movi    v22.4s, #0
        movi    v23.4s, #0
        subs    count, count, #1
        b.eq    2f
1:      \block 1
        subs    count, count, #1
        b.ne    1b
2:      \block 0
        stp     q16, q17, [dots]
        stp     q18, q19, [dots, #64]
        stp     q20, q21, [dots, #128]
        stp     q22, q23, [dots, #192]
        add     sp, sp, #32
        restore_vectors
.endm

function SYMBOL(vti_dots32_dotprod)
        blocks_of block32
end_function SYMBOL(vti_dots32_dotprod)

function SYMBOL(vti_dots16_dotprod)
        blocks_of block16
end_function SYMBOL(vti_dots16_dotprod)
