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
 * block, or NULL.
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

/* Eight columns with the weights w0…w3 and the activations v8…v11 of the tokens. With `xoff`, the
 * activations of another eight columns are loaded in their place, and \load_w does so with the
 * weights to n0…n3. Accumulators: v0, v1 token 0, … v6, v7 token 3. */
.macro columns8 load_w, w0, w1, w2, w3, n0, n1, n2, n3, woff, xoff
        sdot    v0.4s, v\w0\().16b, v8.4b[0]
        sdot    v1.4s, v\w1\().16b, v8.4b[0]
        sdot    v2.4s, v\w0\().16b, v9.4b[0]
        sdot    v3.4s, v\w1\().16b, v9.4b[0]
  .ifnb \xoff
        \load_w \n0, \n1, \n2, \n3, \woff
  .endif
        sdot    v0.4s, v\w2\().16b, v8.4b[1]
        sdot    v1.4s, v\w3\().16b, v8.4b[1]
  .ifnb \xoff
        ldr     d8, [x, #\xoff]
  .endif
        sdot    v2.4s, v\w2\().16b, v9.4b[1]
        sdot    v3.4s, v\w3\().16b, v9.4b[1]
  .ifnb \xoff
        ldr     d9, [x, #\xoff + 8]
  .endif
        sdot    v4.4s, v\w0\().16b, v10.4b[0]
        sdot    v5.4s, v\w1\().16b, v10.4b[0]
        sdot    v6.4s, v\w0\().16b, v11.4b[0]
        sdot    v7.4s, v\w1\().16b, v11.4b[0]
  .ifnb \xoff
        \load_w\()_lower \n0, \n1, \n2, \n3
  .endif
        sdot    v4.4s, v\w2\().16b, v10.4b[1]
        sdot    v5.4s, v\w3\().16b, v10.4b[1]
  .ifnb \xoff
        ldr     d10, [x, #\xoff + 16]
  .endif
        sdot    v6.4s, v\w2\().16b, v11.4b[1]
        sdot    v7.4s, v\w3\().16b, v11.4b[1]
  .ifnb \xoff
        ldr     d11, [x, #\xoff + 24]
  .endif
.endm

.macro even_columns load_w, woff, xoff
        columns8 \load_w, 24, 25, 26, 27, 28, 29, 30, 31, \woff, \xoff
.endm

.macro odd_columns load_w, woff, xoff
        columns8 \load_w, 28, 29, 30, 31, 24, 25, 26, 27, \woff, \xoff
.endm

/* Two groups of four columns, `offset` bytes of one row's columns further (4 each). Of Q4_0 n1 and n3
 * are whole bytes, n0 and n2 the lower halves: unpacked ones, or made from them a little later. */
.macro load_q8_0 n0, n1, n2, n3, offset
        ldp     q\n0, q\n1, [w, #\offset * 4]
        ldp     q\n2, q\n3, [w, #\offset * 4 + 64]
.endm

.macro load_q8_0_lower n0, n1, n2, n3
.endm

.macro load_q4_0 n0, n1, n2, n3, offset
        ldr     q\n1, [w, #\offset * 2]
        ldr     q\n3, [w, #\offset * 2 + 32]
.endm

.macro load_q4_0_lower n0, n1, n2, n3
        and     v\n0\().16b, v\n1\().16b, v14.16b
        and     v\n2\().16b, v\n3\().16b, v14.16b
.endm

.macro load_unpacked n0, n1, n2, n3, offset
        ldp     q\n0, q\n2, [lower, #\offset]
        ldr     q\n1, [w, #\offset * 2]
        ldr     q\n3, [w, #\offset * 2 + 32]
.endm

.macro load_unpacked_lower n0, n1, n2, n3
.endm

.macro scale_sums xs=14
        fmul    v0.4s, v0.4s, v12.4s
        fmul    v1.4s, v1.4s, v13.4s
        fmul    v2.4s, v2.4s, v12.4s
        fmul    v3.4s, v3.4s, v13.4s
        fmul    v4.4s, v4.4s, v12.4s
        fmul    v5.4s, v5.4s, v13.4s
        fmul    v6.4s, v6.4s, v12.4s
        fmul    v7.4s, v7.4s, v13.4s
        fmla    v16.4s, v0.4s, v\xs\().s[0]
        fmla    v17.4s, v1.4s, v\xs\().s[0]
        fmla    v18.4s, v2.4s, v\xs\().s[1]
        fmla    v19.4s, v3.4s, v\xs\().s[1]
        fmla    v20.4s, v4.4s, v\xs\().s[2]
        fmla    v21.4s, v5.4s, v\xs\().s[2]
        fmla    v22.4s, v6.4s, v\xs\().s[3]
        fmla    v23.4s, v7.4s, v\xs\().s[3]
.endm

/* x is at the next block; with `more` its first columns are loaded. */
.macro dots load_w, more
        even_columns \load_w, 32, -96
        odd_columns  \load_w, 64, -64
        even_columns \load_w, 96, -32
  .if \more
        add     w, w, w_bytes
    .ifc \load_w, load_unpacked
        add     lower, lower, #256
    .endif
        odd_columns  \load_w, 0, 32
  .else
        odd_columns  \load_w
  .endif
.endm

/* v15: the accumulators' start. */
.macro block_q8_0 load_w, more
        dots    \load_w, \more
        ldp     q12, q13, [scales], #64
        fsub    v0.4s, v0.4s, v15.4s
        fsub    v1.4s, v1.4s, v15.4s
        fsub    v2.4s, v2.4s, v15.4s
        fsub    v3.4s, v3.4s, v15.4s
        ldur    q14, [x, #-160]
        fsub    v4.4s, v4.4s, v15.4s
        fsub    v5.4s, v5.4s, v15.4s
        fsub    v6.4s, v6.4s, v15.4s
        fsub    v7.4s, v7.4s, v15.4s
        scale_sums
.endm

/* upper × 16 = whole bytes - lower; lower - 8 × the sum of the activations. v14: 15. The
 * activations' registers are free here if there is no other block, and loaded already if there is
 * one: v24…v31 are those of the last columns' weights. */
.macro block_q4_0 load_w, more
        dots    \load_w, \more
        ldur    q28, [x, #-144]
        fsub    v1.4s, v1.4s, v0.4s
        fsub    v3.4s, v3.4s, v2.4s
        fmov    v29.4s, #1.0
        fsub    v5.4s, v5.4s, v4.4s
        sshr    v28.4s, v28.4s, #4
        fsub    v7.4s, v7.4s, v6.4s
        ldr     q13, [scales, #32]
        ldr     q12, [scales], #64
        sub     v28.4s, v15.4s, v28.4s
        ldur    q30, [x, #-160]
        fmls    v0.4s, v29.4s, v28.s[0]
        fmls    v2.4s, v29.4s, v28.s[1]
        fmls    v4.4s, v29.4s, v28.s[2]
        fmls    v6.4s, v29.4s, v28.s[3]
        scale_sums 30
.endm

.macro load_start
        ldp     q0, q1, [start]
        ldp     q2, q3, [start]
        ldp     q4, q5, [start]
        ldp     q6, q7, [start]
.endm

/* The rest of a function, its sums loaded. */
.macro blocks_of block, load_w, bytes
        mov     w_bytes, \bytes
        mov     w12, #0x4b400000
        dup     v15.4s, w12
        stp     q15, q15, [sp, #-32]!
        mov     start, sp
        movi    v14.16b, #15
        ldp     d8, d9, [x, #32]
        ldp     d10, d11, [x, #48]
        \load_w 24, 25, 26, 27, 0
        \load_w\()_lower 24, 25, 26, 27
        add     x, x, #160
        load_start
        subs    blocks, blocks, #1
        b.eq    2f
1:      \block \load_w, 1
        subs    blocks, blocks, #1
        load_start
        add     x, x, #160
        b.ne    1b
2:      \block \load_w, 0
        add     sp, sp, #32
.endm

.macro find_tokens
        add     y1, y, stride
        add     y2, y1, stride
        add     y3, y2, stride
.endm

function SYMBOL(vti_tile_q8_0_dotprod)
        save_vectors
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
        restore_vectors
end_function SYMBOL(vti_tile_q8_0_dotprod)

function SYMBOL(vti_tile_q4_0_dotprod)
        save_vectors
        find_tokens
        ldr     q16, [y]
        ldr     q17, [y, #32]
        ldr     q18, [y1]
        ldr     q19, [y1, #32]
        ldr     q20, [y2]
        ldr     q21, [y2, #32]
        ldr     q22, [y3]
        ldr     q23, [y3, #32]
        cbz     lower, 3f
        blocks_of block_q4_0, load_unpacked, #288
        b       4f
3:      blocks_of block_q4_0, load_q4_0, #288
4:      str     q16, [y]
        str     q17, [y, #32]
        str     q18, [y1]
        str     q19, [y1, #32]
        str     q20, [y2]
        str     q21, [y2, #32]
        str     q22, [y3]
        str     q23, [y3, #32]
        restore_vectors
end_function SYMBOL(vti_tile_q4_0_dotprod)
