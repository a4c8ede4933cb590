/* F16 weights × F16 activations (VTI_ACT_F16), added up in halves, then in floats.
 *
 * void vti_tile_f16_fp16(float sums[8][16], const unsigned char *w, const unsigned char *x0,
 *                        const unsigned char *x1, size_t columns, const float scales0[4],
 *                        const float scales1[4]);
 *
 * 16 rows × two groups of four tokens: adds columns of one block, an even number, to sums.
 * w: [columns][16] halves, x0 and x1: [columns][4] of each group.
 *
 * void vti_gemv_f16_fp16(float sums[16], const unsigned char *w, const unsigned char *x,
 *                        size_t blocks);
 *
 * 16 rows × one token: adds `blocks` whole blocks of 256 columns. Every fourth column belongs to
 * the same chain. */
#include "asm.h"

        sums    .req x0
        w       .req x1
        x0_     .req x2
        x1_     .req x3
        columns .req x4
        scales0 .req x5
        scales1 .req x6
        next    .req x7

/* --- tile: accumulators v16 + 2 × token + half of the rows ------------------------------------ */

/* One column; another one is loaded in its place. i0 … i6: what an in-order core does beside it. */
.macro column op, w0, w1, a, b, woff, xoff, i0, i1, i2, i3, i4, i5, i6
        \op     v16.8h, v\w0\().8h, v\a\().h[0]
        \i0
        \op     v17.8h, v\w1\().8h, v\a\().h[0]
        \i1
        \op     v18.8h, v\w0\().8h, v\a\().h[1]
        \i2
        \op     v19.8h, v\w1\().8h, v\a\().h[1]
        \i3
        \op     v20.8h, v\w0\().8h, v\a\().h[2]
        \i4
        \op     v21.8h, v\w1\().8h, v\a\().h[2]
        \i5
        \op     v22.8h, v\w0\().8h, v\a\().h[3]
        \i6
        \op     v23.8h, v\w1\().8h, v\a\().h[3]
        ldr     d\a, [x0_, #\xoff]
        \op     v24.8h, v\w0\().8h, v\b\().h[0]
        \op     v25.8h, v\w1\().8h, v\b\().h[0]
        \op     v26.8h, v\w0\().8h, v\b\().h[1]
        \op     v27.8h, v\w1\().8h, v\b\().h[1]
        \op     v28.8h, v\w0\().8h, v\b\().h[2]
        \op     v29.8h, v\w1\().8h, v\b\().h[2]
        \op     v30.8h, v\w0\().8h, v\b\().h[3]
        \op     v31.8h, v\w1\().8h, v\b\().h[3]
        ldr     d\b, [x1_, #\xoff]
        ldp     q\w0, q\w1, [w, #\woff]
.endm

/* Two columns, loaded before; the two after them are loaded, at the end the same ones again. w, x0_
 * and x1_ are theirs. */
.macro column_pair op
        column  \op, 8, 9, 0, 1, 0, 0, "subs columns, columns, #2", "add next, w, #64", \
                "csel w, next, w, hi", "add next, x0_, #16", "csel x0_, next, x0_, hi", \
                "add next, x1_, #16", "csel x1_, next, x1_, hi"
        column  fmla, 10, 11, 2, 3, 32, 8
.endm

.macro load_token s0, s1, s2, s3, offset
        ldp     q\s0, q\s1, [sums, #\offset]
        ldp     q\s2, q\s3, [sums, #\offset + 32]
.endm

/* A token's sums, in s0 … s3, += accumulators a, b × scale; the next token's are loaded beside. */
.macro widen a, b, scale, lane, offset, s0, s1, s2, s3, n0, n1, n2, n3
        fcvtl   v8.4s, v\a\().4h
        fcvtl2  v9.4s, v\a\().8h
        fcvtl   v10.4s, v\b\().4h
        fcvtl2  v11.4s, v\b\().8h
        fmla    v\s0\().4s, v8.4s, v\scale\().s[\lane]
        fmla    v\s1\().4s, v9.4s, v\scale\().s[\lane]
        fmla    v\s2\().4s, v10.4s, v\scale\().s[\lane]
        fmla    v\s3\().4s, v11.4s, v\scale\().s[\lane]
  .ifnb \n0
        load_token \n0, \n1, \n2, \n3, \offset + 64
  .endif
        stp     q\s0, q\s1, [sums, #\offset]
        stp     q\s2, q\s3, [sums, #\offset + 32]
.endm

.macro widen_pair a, b, c, d, scale, lane, offset
        widen   \a, \b, \scale, \lane, \offset, 4, 5, 6, 7, 0, 1, 2, 3
        widen   \c, \d, \scale, \lane + 1, \offset + 64, 0, 1, 2, 3, 4, 5, 6, 7
.endm

function SYMBOL(vti_tile_f16_fp16)
        save_vectors
        ldr     q12, [scales0]
        ldr     q13, [scales1]
        ldp     d0, d2, [x0_]
        ldp     d1, d3, [x1_]
        ldp     q8, q9, [w]
        ldp     q10, q11, [w, #32]
        column_pair fmul
        b.ls    2f
1:      column_pair fmla
        b.hi    1b
2:      load_token 4, 5, 6, 7, 0
        widen_pair 16, 17, 18, 19, 12, 0, 0
        widen_pair 20, 21, 22, 23, 12, 2, 128
        widen_pair 24, 25, 26, 27, 13, 0, 256
        widen   28, 29, 13, 2, 384, 4, 5, 6, 7, 0, 1, 2, 3
        widen   30, 31, 13, 3, 448, 0, 1, 2, 3
        restore_vectors
end_function SYMBOL(vti_tile_f16_fp16)

/* --- one token: accumulators v16 + 2 × chain + half of the rows ------------------------------- */

        x       .req x2
        blocks  .req x3
        eights  .req x4

/* Eight columns, two of each chain; op for the first one. Counts `eights` down. */
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
        subs    eights, eights, #1
        fmla    v21.8h, v5.8h, v0.h[6]
        fmla    v22.8h, v6.8h, v0.h[7]
        fmla    v23.8h, v7.8h, v0.h[7]
.endm

function SYMBOL(vti_gemv_f16_fp16)
        ldp     q24, q25, [sums]
        ldp     q26, q27, [sums, #32]
1:      ldr     s1, [x], #4
        mov     eights, #32
        columns8 fmul
2:      columns8 fmla
        b.ne    2b
        fadd    v16.8h, v16.8h, v18.8h
        fadd    v17.8h, v17.8h, v19.8h
        fadd    v20.8h, v20.8h, v22.8h
        fadd    v21.8h, v21.8h, v23.8h
        fadd    v16.8h, v16.8h, v20.8h
        fadd    v17.8h, v17.8h, v21.8h
        fcvtl   v4.4s, v16.4h
        fcvtl2  v5.4s, v16.8h
        fcvtl   v6.4s, v17.4h
        fcvtl2  v7.4s, v17.8h
        fmla    v24.4s, v4.4s, v1.s[0]
        fmla    v25.4s, v5.4s, v1.s[0]
        fmla    v26.4s, v6.4s, v1.s[0]
        subs    blocks, blocks, #1
        fmla    v27.4s, v7.4s, v1.s[0]
        b.ne    1b
        stp     q24, q25, [sums]
        stp     q26, q27, [sums, #32]
end_function SYMBOL(vti_gemv_f16_fp16)
