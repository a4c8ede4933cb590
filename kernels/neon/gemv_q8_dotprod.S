/* One token × one panel of Q8_0 or Q4_0, with SDOT.
 *
 * void vti_gemv_q8_0_dotprod(float sums[16], const unsigned char *panel, const unsigned char *x,
 *                            size_t blocks);
 *
 * Adds to sums; the same for q4_0. A lane is a row. lanes.h explains the numbers. The order is
 * one in which an in-order core (Cortex-A55) hardly ever waits: weights are loaded a group ahead,
 * four accumulators take turns. */
#include "asm.h"

        sums    .req x0
        panel   .req x1
        x       .req x2
        blocks  .req x3
        start   .req x4

/* The accumulators' start twice at `start`, and in v9. */
.macro store_start
        mov     w5, #0x4b400000
        dup     v9.4s, w5
        stp     q9, q9, [sp, #-32]!
        mov     start, sp
.endm

.macro load_start
        ldp     q0, q1, [start]
        ldp     q2, q3, [start]
.endm

.macro load_sums
        ldp     q16, q17, [sums]
        ldp     q18, q19, [sums, #32]
.endm

.macro store_sums
        stp     q16, q17, [sums]
        stp     q18, q19, [sums, #32]
        add     sp, sp, #32
.endm

/* v12…v15 = 16 scales as floats, of the block that begins `back` bytes before panel. */
.macro load_scales back
        ldp     q10, q11, [panel, #-\back]
.endm

.macro widen_scales
        fcvtl   v12.4s, v10.4h
        fcvtl2  v13.4s, v10.8h
        fcvtl   v14.4s, v11.4h
        fcvtl2  v15.4s, v11.8h
.endm

/* --- Q8_0 --- v0…v3 accumulators, v4, v5 activations, v20…v27 weights ------------------------- */

/* One group of four columns; w0…w3 are then loaded again from panel + offset, if there is one. */
.macro group_q8_0 w0, w1, w2, w3, a, lane, offset
        sdot    v0.4s, v\w0\().16b, v\a\().4b[\lane]
        sdot    v1.4s, v\w1\().16b, v\a\().4b[\lane]
  .ifnb \offset
        ldp     q\w0, q\w1, [panel, #\offset]
  .endif
        sdot    v2.4s, v\w2\().16b, v\a\().4b[\lane]
        sdot    v3.4s, v\w3\().16b, v\a\().4b[\lane]
  .ifnb \offset
        ldp     q\w2, q\w3, [panel, #\offset + 32]
  .endif
.endm

/* panel is the next block's beginning: the weights of this one lie before it. The first two groups
 * are in their registers; with `more` the next block's are put there. */
.macro block_q8_0 more
        group_q8_0 20, 21, 22, 23, 4, 0, -384
        group_q8_0 24, 25, 26, 27, 4, 1, -320
        group_q8_0 20, 21, 22, 23, 4, 2, -256
        group_q8_0 24, 25, 26, 27, 4, 3, -192
        load_scales 544
        group_q8_0 20, 21, 22, 23, 5, 0, -128
        group_q8_0 24, 25, 26, 27, 5, 1, -64
        widen_scales
  .if \more
        group_q8_0 20, 21, 22, 23, 5, 2, 32
        group_q8_0 24, 25, 26, 27, 5, 3, 96
        ldp     q4, q5, [x, #48]
  .else
        group_q8_0 20, 21, 22, 23, 5, 2
        group_q8_0 24, 25, 26, 27, 5, 3
  .endif
        fsub    v0.4s, v0.4s, v9.4s
        ldr     s8, [x], #40
        fsub    v1.4s, v1.4s, v9.4s
        fsub    v2.4s, v2.4s, v9.4s
        fsub    v3.4s, v3.4s, v9.4s
        fmul    v0.4s, v0.4s, v12.4s
        fmul    v1.4s, v1.4s, v13.4s
        fmul    v2.4s, v2.4s, v14.4s
        fmul    v3.4s, v3.4s, v15.4s
        fmla    v16.4s, v0.4s, v8.s[0]
        fmla    v17.4s, v1.4s, v8.s[0]
        fmla    v18.4s, v2.4s, v8.s[0]
        fmla    v19.4s, v3.4s, v8.s[0]
.endm

function SYMBOL(vti_gemv_q8_0_dotprod)
        save_vectors
        store_start
        load_sums
        ldp     q20, q21, [panel, #32]
        ldp     q22, q23, [panel, #64]
        ldp     q24, q25, [panel, #96]
        ldp     q26, q27, [panel, #128]
        ldr     q4, [x, #8]
        ldr     q5, [x, #24]
        add     panel, panel, #544
        load_start
        subs    blocks, blocks, #1
        b.eq    2f
1:      block_q8_0 1
        subs    blocks, blocks, #1
        load_start
        add     panel, panel, #544
        b.ne    1b
2:      block_q8_0 0
        store_sums
        restore_vectors
end_function SYMBOL(vti_gemv_q8_0_dotprod)

/* --- Q4_0 --- v0, v1 lower rows, v2, v3 whole bytes, v4…v7 activations ------------------------ */

/* Eight columns; the weights in w0…w3 are replaced by those at panel + offset. */
.macro groups_q4_0 w0, w1, w2, w3, a, offset
        and     v28.16b, v\w0\().16b, v31.16b
        and     v29.16b, v\w1\().16b, v31.16b
        sdot    v2.4s, v\w0\().16b, v\a\().4b[0]
        sdot    v3.4s, v\w1\().16b, v\a\().4b[0]
  .ifnb \offset
        ldp     q\w0, q\w1, [panel, #\offset]
  .endif
        sdot    v0.4s, v28.16b, v\a\().4b[0]
        and     v28.16b, v\w2\().16b, v31.16b
        sdot    v1.4s, v29.16b, v\a\().4b[0]
        and     v29.16b, v\w3\().16b, v31.16b
        sdot    v2.4s, v\w2\().16b, v\a\().4b[1]
        sdot    v3.4s, v\w3\().16b, v\a\().4b[1]
  .ifnb \offset
        ldp     q\w2, q\w3, [panel, #\offset + 32]
  .endif
        sdot    v0.4s, v28.16b, v\a\().4b[1]
        sdot    v1.4s, v29.16b, v\a\().4b[1]
.endm

/* As block_q8_0. w7 and v30: the lower rows' start and 8 × the sum of the activations. The sums of
 * the upper rows, v18 and v19, are kept 16-fold. */
.macro block_q4_0 more
        groups_q4_0 20, 21, 22, 23, 4, -128
        ldr     w7, [x, #4]
        groups_q4_0 24, 25, 26, 27, 5, -64
        ldr     s8, [x], #40
        load_scales 288
        sub     w7, w5, w7, asr #4
  .if \more
        groups_q4_0 20, 21, 22, 23, 6, 32
        ldr     d4, [x, #8]
        dup     v30.4s, w7
        ldr     d5, [x, #16]
        groups_q4_0 24, 25, 26, 27, 7, 96
        fsub    v2.4s, v2.4s, v0.4s
        ldr     d6, [x, #24]
        fsub    v3.4s, v3.4s, v1.4s
        ldr     d7, [x, #32]
  .else
        groups_q4_0 20, 21, 22, 23, 6
        dup     v30.4s, w7
        groups_q4_0 24, 25, 26, 27, 7
        fsub    v2.4s, v2.4s, v0.4s
        fsub    v3.4s, v3.4s, v1.4s
  .endif
        fsub    v0.4s, v0.4s, v30.4s
        fsub    v1.4s, v1.4s, v30.4s
        widen_scales
        fmul    v2.4s, v2.4s, v14.4s
        fmul    v3.4s, v3.4s, v15.4s
        fmul    v0.4s, v0.4s, v12.4s
        fmul    v1.4s, v1.4s, v13.4s
        fmla    v18.4s, v2.4s, v8.s[0]
        fmla    v19.4s, v3.4s, v8.s[0]
        fmla    v16.4s, v0.4s, v8.s[0]
        fmla    v17.4s, v1.4s, v8.s[0]
.endm

function SYMBOL(vti_gemv_q4_0_dotprod)
        save_vectors
        store_start
        movi    v31.16b, #15
        fmov    v30.4s, #16.0
        load_sums
        fmul    v18.4s, v18.4s, v30.4s
        fmul    v19.4s, v19.4s, v30.4s
        ldp     q20, q21, [panel, #32]
        ldp     q22, q23, [panel, #64]
        ldp     q24, q25, [panel, #96]
        ldp     q26, q27, [panel, #128]
        ldp     d4, d5, [x, #8]
        ldp     d6, d7, [x, #24]
        add     panel, panel, #288
        load_start
        subs    blocks, blocks, #1
        b.eq    2f
1:      block_q4_0 1
        subs    blocks, blocks, #1
        load_start
        add     panel, panel, #288
        b.ne    1b
2:      block_q4_0 0
        mov     w6, #0x3d800000         // 1 / 16
        dup     v30.4s, w6
        fmul    v18.4s, v18.4s, v30.4s
        fmul    v19.4s, v19.4s, v30.4s
        store_sums
        restore_vectors
end_function SYMBOL(vti_gemv_q4_0_dotprod)
