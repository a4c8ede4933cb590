/* F16 weights × F16 activations (VTI_ACT_F16), added up in halves.
 *
 * void vti_tile_f16_fp16(uint16_t sums[8][16], const unsigned char *w, const unsigned char *x0,
 *                        const unsigned char *x1, size_t columns);
 *
 * 16 rows × two groups of four tokens: columns of one block, an even number. The sums are halves.
 * w: [columns][16] halves, x0 and x1: [columns][4] of each group.
 *
 * void vti_gemv_f16_fp16(float sums[16], const unsigned char *w, const unsigned char *x,
 *                        size_t columns);
 *
 * 16 rows × one token: columns of all blocks, a multiple of 8. Every fourth column belongs to the
 * same chain.
 *
 * No chain is longer than 152 products, a seventh of a block; then it is added to those before. */
#include "asm.h"

        sums    .req x0
        w       .req x1
        x0_     .req x2
        x1_     .req x3
        columns .req x4
        left    .req x5         // columns of the chain
        next    .req x6

/* --- tile: accumulators v16 + 2 × token + half of the rows ------------------------------------ */

/* One column with the weights w0, w1 and activations a, b, loaded a column before; those of the
 * next one are loaded to n0, n1, c, d. i0 … i6: what an in-order core does beside it. */
.macro column op, w0, w1, a, b, n0, n1, c, d, woff, xoff, i0, i1, i2, i3, i4, i5, i6
        ldp     q\n0, q\n1, [w, #\woff]
        \op     v16.8h, v\w0\().8h, v\a\().h[0]
        ldr     d\c, [x0_, #\xoff]
        \op     v17.8h, v\w1\().8h, v\a\().h[0]
        ldr     d\d, [x1_, #\xoff]
        \op     v18.8h, v\w0\().8h, v\a\().h[1]
        \i0
        \op     v19.8h, v\w1\().8h, v\a\().h[1]
        \i1
        \op     v20.8h, v\w0\().8h, v\a\().h[2]
        \i2
        \op     v21.8h, v\w1\().8h, v\a\().h[2]
        \i3
        \op     v22.8h, v\w0\().8h, v\a\().h[3]
        \i4
        \op     v23.8h, v\w1\().8h, v\a\().h[3]
        \i5
        \op     v24.8h, v\w0\().8h, v\b\().h[0]
        \i6
        \op     v25.8h, v\w1\().8h, v\b\().h[0]
        \op     v26.8h, v\w0\().8h, v\b\().h[1]
        \op     v27.8h, v\w1\().8h, v\b\().h[1]
        \op     v28.8h, v\w0\().8h, v\b\().h[2]
        \op     v29.8h, v\w1\().8h, v\b\().h[2]
        \op     v30.8h, v\w0\().8h, v\b\().h[3]
        \op     v31.8h, v\w1\().8h, v\b\().h[3]
.endm

/* w, x0_ and x1_ are those of the pair, then of the next one; at the end they stay. */
.macro column_pair op
        column  \op, 8, 9, 0, 1, 10, 11, 2, 3, 32, 8, "subs columns, columns, #2", \
                "add next, w, #64", "csel w, next, w, hi", "add next, x0_, #16", \
                "csel x0_, next, x0_, hi", "add next, x1_, #16", "csel x1_, next, x1_, hi"
        column  fmla, 10, 11, 2, 3, 8, 9, 0, 1, 0, 0, "sub left, left, #2"
.endm

/* Chains of four tokens += sums, if there are any; they become the sums. */
.macro add_halves has_sums, offset, a, b, c, d, e, f, g, h
  .if \has_sums
        ldp     q4, q5, [sums, #\offset]
        ldp     q6, q7, [sums, #\offset + 32]
        ldp     q12, q13, [sums, #\offset + 64]
        ldp     q14, q15, [sums, #\offset + 96]
        fadd    v\a\().8h, v\a\().8h, v4.8h
        fadd    v\b\().8h, v\b\().8h, v5.8h
        fadd    v\c\().8h, v\c\().8h, v6.8h
        fadd    v\d\().8h, v\d\().8h, v7.8h
        fadd    v\e\().8h, v\e\().8h, v12.8h
        fadd    v\f\().8h, v\f\().8h, v13.8h
        fadd    v\g\().8h, v\g\().8h, v14.8h
        fadd    v\h\().8h, v\h\().8h, v15.8h
  .endif
        stp     q\a, q\b, [sums, #\offset]
        stp     q\c, q\d, [sums, #\offset + 32]
        stp     q\e, q\f, [sums, #\offset + 64]
        stp     q\g, q\h, [sums, #\offset + 96]
.endm

.macro chain has_sums
        mov     left, #152
        cmp     columns, left
        csel    left, columns, left, lo
        column_pair fmul
        cbz     left, 2f
1:      column_pair fmla
        cbnz    left, 1b
2:      add_halves \has_sums, 0, 16, 17, 18, 19, 20, 21, 22, 23
        add_halves \has_sums, 128, 24, 25, 26, 27, 28, 29, 30, 31
.endm

function SYMBOL(vti_tile_f16_fp16)
        save_vectors
        ldr     d0, [x0_]
        ldr     d1, [x1_]
        ldp     q8, q9, [w]
        chain   0
        b.ls    4f
3:      chain   1
        b.hi    3b
4:      restore_vectors
end_function SYMBOL(vti_tile_f16_fp16)

/* --- one token: accumulators v16 + 2 × chain + half of the rows, their sums v24, v25 ---------- */

        x       .req x2
        block   .req x7         // columns of the block

/* Eight columns, two of each chain; op for the first of a chain. Counts `left` down. */
.macro columns8 op
        ldr     q0, [x], #16
        ldp     q4, q5, [w]
        ldp     q6, q7, [w, #32]
        ldp     q2, q3, [w, #64]
        \op     v16.8h, v4.8h, v0.h[0]
        \op     v17.8h, v5.8h, v0.h[0]
        \op     v18.8h, v6.8h, v0.h[1]
        \op     v19.8h, v7.8h, v0.h[1]
        ldp     q4, q5, [w, #96]
        \op     v20.8h, v2.8h, v0.h[2]
        \op     v21.8h, v3.8h, v0.h[2]
        ldp     q6, q7, [w, #128]
        \op     v22.8h, v4.8h, v0.h[3]
        \op     v23.8h, v5.8h, v0.h[3]
        ldp     q2, q3, [w, #160]
        fmla    v16.8h, v6.8h, v0.h[4]
        add     w, w, #256
        fmla    v17.8h, v7.8h, v0.h[4]
        ldp     q4, q5, [w, #-64]
        fmla    v18.8h, v2.8h, v0.h[5]
        fmla    v19.8h, v3.8h, v0.h[5]
        ldp     q6, q7, [w, #-32]
        fmla    v20.8h, v4.8h, v0.h[6]
        subs    left, left, #8
        fmla    v21.8h, v5.8h, v0.h[6]
        fmla    v22.8h, v6.8h, v0.h[7]
        fmla    v23.8h, v7.8h, v0.h[7]
.endm

/* The least of `of` and `most`, which is taken away from `of`. */
.macro take part, of, most
        mov     \part, #\most
        cmp     \of, \part
        csel    \part, \of, \part, lo
        sub     \of, \of, \part
.endm

function SYMBOL(vti_gemv_f16_fp16)
        mov     columns, x3
        movi    v28.4s, #0
        movi    v29.4s, #0
        movi    v30.4s, #0
        movi    v31.4s, #0
1:      take    block, columns, 1024
        ldr     s1, [x], #4
        movi    v24.8h, #0
        movi    v25.8h, #0
2:      take    left, block, 512
        columns8 fmul
        b.eq    4f
3:      columns8 fmla
        b.ne    3b
4:      fadd    v16.8h, v16.8h, v18.8h
        fadd    v17.8h, v17.8h, v19.8h
        fadd    v20.8h, v20.8h, v22.8h
        fadd    v21.8h, v21.8h, v23.8h
        fadd    v24.8h, v24.8h, v16.8h
        fadd    v25.8h, v25.8h, v17.8h
        fadd    v24.8h, v24.8h, v20.8h
        fadd    v25.8h, v25.8h, v21.8h
        cbnz    block, 2b
        fcvtl   v4.4s, v24.4h
        fcvtl   v6.4s, v25.4h
        fcvtl2  v5.4s, v24.8h
        fcvtl2  v7.4s, v25.8h
        fmla    v28.4s, v4.4s, v1.s[0]
        fmla    v30.4s, v6.4s, v1.s[0]
        fmla    v29.4s, v5.4s, v1.s[0]
        fmla    v31.4s, v7.4s, v1.s[0]
        cbnz    columns, 1b
        stp     q28, q29, [sums]
        stp     q30, q31, [sums, #32]
end_function SYMBOL(vti_gemv_f16_fp16)
