/* Eight rows of a panel × four tokens of VTI_ACT_Q8, with SDOT.
 *
 * void vti_tile_q8_0_dotprod(float *y, size_t y_stride_bytes, const float *scales, const int8_t *w,
 *                            const unsigned char *x, size_t blocks, size_t w_bytes);
 * void vti_tile_q4_0_dotprod(float *y, size_t y_stride_bytes, const float *scales,
 *                            const unsigned char *w, const unsigned char *x, size_t blocks,
 *                            const unsigned char *lower);
 *
 * Add to y. A lane is a row. From one block of 32 columns to the next: scales 64 bytes, x 160,
 * w w_bytes (Q4_0: 288). Q8_0, or anything unpacked to INT8: rows 0…7 from w on. Q4_0: four rows,
 * the lower halves of the bytes from w on, and, eight rows further in y and scales, the four of the
 * upper halves; `lower` are the lower halves alone, [8 groups][4 rows][4], 256 bytes from block to
 * block.
 *
 * The order suits an in-order core: activations are loaded beside an SDOT, and everything eight
 * columns ahead. */
#include "asm.h"

        y       .req x0
        stride  .req x1
        scales  .req x2
        w       .req x3
        x       .req x4
        blocks  .req x5
        lower   .req x6
        start   .req x7
        w_bytes .req x8
        y1      .req x9
        y2      .req x10
        y3      .req x11

/* Eight columns with the weights w0…w3 and activations a0…a3. With `xoff`, the activations of
 * another eight columns are loaded to b0…b3, and \load_w does so with the weights to n0…n3.
 * Accumulators: v0, v1 token 0, … v6, v7 token 3. */
.macro columns8 load_w, w0, w1, w2, w3, a0, a1, a2, a3, n0, n1, n2, n3, b0, b1, b2, b3, woff, xoff
  .ifnb \xoff
        sdot    v0.4s, v\w0\().16b, v\a0\().4b[0]
        ldr     d\b0, [x, #\xoff]
        sdot    v1.4s, v\w1\().16b, v\a0\().4b[0]
        ldr     d\b1, [x, #\xoff + 8]
        sdot    v2.4s, v\w0\().16b, v\a1\().4b[0]
        ldr     d\b2, [x, #\xoff + 16]
        sdot    v3.4s, v\w1\().16b, v\a1\().4b[0]
        ldr     d\b3, [x, #\xoff + 24]
        \load_w \n0, \n1, \n2, \n3, \woff
  .else
        sdot    v0.4s, v\w0\().16b, v\a0\().4b[0]
        sdot    v1.4s, v\w1\().16b, v\a0\().4b[0]
        sdot    v2.4s, v\w0\().16b, v\a1\().4b[0]
        sdot    v3.4s, v\w1\().16b, v\a1\().4b[0]
  .endif
        sdot    v4.4s, v\w0\().16b, v\a2\().4b[0]
        sdot    v5.4s, v\w1\().16b, v\a2\().4b[0]
        sdot    v6.4s, v\w0\().16b, v\a3\().4b[0]
        sdot    v7.4s, v\w1\().16b, v\a3\().4b[0]
        sdot    v0.4s, v\w2\().16b, v\a0\().4b[1]
        sdot    v1.4s, v\w3\().16b, v\a0\().4b[1]
        sdot    v2.4s, v\w2\().16b, v\a1\().4b[1]
        sdot    v3.4s, v\w3\().16b, v\a1\().4b[1]
        sdot    v4.4s, v\w2\().16b, v\a2\().4b[1]
        sdot    v5.4s, v\w3\().16b, v\a2\().4b[1]
        sdot    v6.4s, v\w2\().16b, v\a3\().4b[1]
        sdot    v7.4s, v\w3\().16b, v\a3\().4b[1]
.endm

.macro even_columns load_w, woff, xoff
        columns8 \load_w, 24, 25, 26, 27, 28, 29, 30, 31, 12, 13, 14, 15, 8, 9, 10, 11, \woff, \xoff
.endm

.macro odd_columns load_w, woff, xoff
        columns8 \load_w, 12, 13, 14, 15, 8, 9, 10, 11, 24, 25, 26, 27, 28, 29, 30, 31, \woff, \xoff
.endm

/* Two groups of four columns; offsets in units of 16 columns × 16 rows … 64 columns × 4 entries. */
.macro load_q8_0 n0, n1, n2, n3, offset
        ldp     q\n0, q\n1, [w, #\offset * 4]
        ldp     q\n2, q\n3, [w, #\offset * 4 + 64]
.endm

.macro load_q4_0 n0, n1, n2, n3, offset
        ldp     q\n0, q\n2, [lower, #\offset]
        ldr     q\n1, [w, #\offset * 2]
        ldr     q\n3, [w, #\offset * 2 + 32]
.endm

.macro scale_sums
        fmul    v0.4s, v0.4s, v12.4s
        fmul    v1.4s, v1.4s, v13.4s
        fmul    v2.4s, v2.4s, v12.4s
        fmul    v3.4s, v3.4s, v13.4s
        fmul    v4.4s, v4.4s, v12.4s
        fmul    v5.4s, v5.4s, v13.4s
        fmul    v6.4s, v6.4s, v12.4s
        fmul    v7.4s, v7.4s, v13.4s
        fmla    v16.4s, v0.4s, v14.s[0]
        fmla    v17.4s, v1.4s, v14.s[0]
        fmla    v18.4s, v2.4s, v14.s[1]
        fmla    v19.4s, v3.4s, v14.s[1]
        fmla    v20.4s, v4.4s, v14.s[2]
        fmla    v21.4s, v5.4s, v14.s[2]
        fmla    v22.4s, v6.4s, v14.s[3]
        fmla    v23.4s, v7.4s, v14.s[3]
.endm

/* x is at the next block; with `more` its first columns are loaded. */
.macro dots load_w, more
        even_columns \load_w, 32, -96
        odd_columns  \load_w, 64, -64
        even_columns \load_w, 96, -32
  .if \more
        add     w, w, w_bytes
    .ifc \load_w, load_q4_0
        add     lower, lower, #256
    .endif
        odd_columns  \load_w, 0, 32
  .else
        odd_columns  \load_w
  .endif
.endm

.macro block_q8_0 more
        dots    load_q8_0, \more
        ldr     q15, [start]
        ldp     q12, q13, [scales], #64
        ldur    q14, [x, #-160]
        fsub    v0.4s, v0.4s, v15.4s
        fsub    v1.4s, v1.4s, v15.4s
        fsub    v2.4s, v2.4s, v15.4s
        fsub    v3.4s, v3.4s, v15.4s
        fsub    v4.4s, v4.4s, v15.4s
        fsub    v5.4s, v5.4s, v15.4s
        fsub    v6.4s, v6.4s, v15.4s
        fsub    v7.4s, v7.4s, v15.4s
        scale_sums
.endm

/* upper × 16 = whole bytes - lower; lower - 8 × the sum of the activations. */
.macro block_q4_0 more
        dots    load_q4_0, \more
        ldr     q8, [start]
        ldur    q15, [x, #-144]
        fmov    v9.4s, #1.0
        fsub    v1.4s, v1.4s, v0.4s
        fsub    v3.4s, v3.4s, v2.4s
        sshr    v15.4s, v15.4s, #4
        fsub    v5.4s, v5.4s, v4.4s
        fsub    v7.4s, v7.4s, v6.4s
        sub     v15.4s, v8.4s, v15.4s
        ldr     q13, [scales, #32]
        ldr     q12, [scales], #64
        ldur    q14, [x, #-160]
        fmls    v0.4s, v9.4s, v15.s[0]
        fmls    v2.4s, v9.4s, v15.s[1]
        fmls    v4.4s, v9.4s, v15.s[2]
        fmls    v6.4s, v9.4s, v15.s[3]
        scale_sums
.endm

.macro load_start
        ldp     q0, q1, [start]
        ldp     q2, q3, [start]
        ldp     q4, q5, [start]
        ldp     q6, q7, [start]
.endm

/* The rest of a function, its sums loaded. */
.macro blocks_of block, load_w, bytes
        save_vectors
        mov     w_bytes, \bytes
        mov     w12, #0x4b400000
        dup     v15.4s, w12
        stp     q15, q15, [sp, #-32]!
        mov     start, sp
        ldp     d28, d29, [x, #32]
        ldp     d30, d31, [x, #48]
        \load_w 24, 25, 26, 27, 0
        add     x, x, #160
        load_start
        subs    blocks, blocks, #1
        b.eq    2f
1:      \block 1
        subs    blocks, blocks, #1
        load_start
        add     x, x, #160
        b.ne    1b
2:      \block 0
        add     sp, sp, #32
        restore_vectors
.endm

.macro find_tokens
        add     y1, y, stride
        add     y2, y1, stride
        add     y3, y2, stride
.endm

function SYMBOL(vti_tile_q8_0_dotprod)
        find_tokens
        ldp     q16, q17, [y]
        ldp     q18, q19, [y1]
        ldp     q20, q21, [y2]
        ldp     q22, q23, [y3]
        blocks_of block_q8_0, load_q8_0, x6
        stp     q16, q17, [y]
        stp     q18, q19, [y1]
        stp     q20, q21, [y2]
        stp     q22, q23, [y3]
end_function SYMBOL(vti_tile_q8_0_dotprod)

function SYMBOL(vti_tile_q4_0_dotprod)
        find_tokens
        ldr     q16, [y]
        ldr     q17, [y, #32]
        ldr     q18, [y1]
        ldr     q19, [y1, #32]
        ldr     q20, [y2]
        ldr     q21, [y2, #32]
        ldr     q22, [y3]
        ldr     q23, [y3, #32]
        blocks_of block_q4_0, load_q4_0, #288
        str     q16, [y]
        str     q17, [y, #32]
        str     q18, [y1]
        str     q19, [y1, #32]
        str     q20, [y2]
        str     q21, [y2, #32]
        str     q22, [y3]
        str     q23, [y3, #32]
end_function SYMBOL(vti_tile_q4_0_dotprod)
