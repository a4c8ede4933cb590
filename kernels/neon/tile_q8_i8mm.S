/* Eight rows × four tokens of VTI_ACT_Q8, with SMMLA.
 *
 * void vti_tile_q8_i8mm(float *y, size_t y_stride_bytes, const float *scales, const int8_t *w,
 *                       const unsigned char *x, size_t blocks);
 *
 * Adds to y. An accumulator is two rows × two tokens. Per block of 32 columns: scales 4 × [d of row
 * 2i, again, d of row 2i + 1, again], w [4 groups of 8 columns][8 rows][8 columns], x 160 bytes.
 * Both scales and w are those of 16 rows, so the next block is 128 and 512 bytes on. */
#include "asm.h"

        y       .req x0
        stride  .req x1
        scales  .req x2
        w       .req x3
        x       .req x4
        blocks  .req x5
        start   .req x6
        y1      .req x9
        y2      .req x10
        y3      .req x11

/* Eight columns. Accumulators v0…v7: rows 0, 1 × tokens 0, 1; the same rows × tokens 2, 3; … */
.macro columns8 w0, w1, w2, w3, a0, a1
        smmla   v0.4s, v\w0\().16b, v\a0\().16b
        smmla   v1.4s, v\w0\().16b, v\a1\().16b
        smmla   v2.4s, v\w1\().16b, v\a0\().16b
        smmla   v3.4s, v\w1\().16b, v\a1\().16b
        smmla   v4.4s, v\w2\().16b, v\a0\().16b
        smmla   v5.4s, v\w2\().16b, v\a1\().16b
        smmla   v6.4s, v\w3\().16b, v\a0\().16b
        smmla   v7.4s, v\w3\().16b, v\a1\().16b
.endm

.macro load_start
        ldp     q0, q1, [start]
        ldp     q2, q3, [start]
        ldp     q4, q5, [start]
        ldp     q6, q7, [start]
.endm

/* Two tokens' sums from y in rows to pairs of rows × tokens, and back. */
.macro pairs_from_rows s0, s1, s2, s3, a, b
        ldp     q8, q9, [\a]
        ldp     q10, q11, [\b]
        zip1    v\s0\().4s, v8.4s, v10.4s
        zip2    v\s1\().4s, v8.4s, v10.4s
        zip1    v\s2\().4s, v9.4s, v11.4s
        zip2    v\s3\().4s, v9.4s, v11.4s
.endm

.macro rows_from_pairs s0, s1, s2, s3, a, b
        uzp1    v8.4s, v\s0\().4s, v\s1\().4s
        uzp1    v9.4s, v\s2\().4s, v\s3\().4s
        uzp2    v10.4s, v\s0\().4s, v\s1\().4s
        uzp2    v11.4s, v\s2\().4s, v\s3\().4s
        stp     q8, q9, [\a]
        stp     q10, q11, [\b]
.endm

function SYMBOL(vti_tile_q8_i8mm)
        save_vectors
        mov     w7, #0x4b400000
        dup     v15.4s, w7
        stp     q15, q15, [sp, #-32]!
        mov     start, sp
        add     y1, y, stride
        add     y2, y1, stride
        add     y3, y2, stride
        pairs_from_rows 16, 18, 20, 22, y, y1
        pairs_from_rows 17, 19, 21, 23, y2, y3
        load_start
1:      ldp     q24, q25, [w]
        ldp     q26, q27, [w, #32]
        ldp     q28, q29, [x, #32]
        subs    blocks, blocks, #1
        columns8 24, 25, 26, 27, 28, 29
        ldp     q24, q25, [w, #128]
        ldp     q26, q27, [w, #160]
        ldp     q30, q31, [x, #64]
        columns8 24, 25, 26, 27, 30, 31
        ldp     q24, q25, [w, #256]
        ldp     q26, q27, [w, #288]
        ldp     q28, q29, [x, #96]
        columns8 24, 25, 26, 27, 28, 29
        ldp     q24, q25, [w, #384]
        ldp     q26, q27, [w, #416]
        ldp     q30, q31, [x, #128]
        columns8 24, 25, 26, 27, 30, 31
        ldr     q14, [x], #160
        ldp     q8, q9, [scales]
        ldp     q10, q11, [scales, #32]
        fsub    v0.4s, v0.4s, v15.4s
        fsub    v1.4s, v1.4s, v15.4s
        fsub    v2.4s, v2.4s, v15.4s
        fsub    v3.4s, v3.4s, v15.4s
        fsub    v4.4s, v4.4s, v15.4s
        fsub    v5.4s, v5.4s, v15.4s
        fsub    v6.4s, v6.4s, v15.4s
        fsub    v7.4s, v7.4s, v15.4s
        dup     v12.2d, v14.d[0]
        dup     v13.2d, v14.d[1]
        fmul    v0.4s, v0.4s, v8.4s
        fmul    v1.4s, v1.4s, v8.4s
        fmul    v2.4s, v2.4s, v9.4s
        fmul    v3.4s, v3.4s, v9.4s
        fmul    v4.4s, v4.4s, v10.4s
        fmul    v5.4s, v5.4s, v10.4s
        fmul    v6.4s, v6.4s, v11.4s
        fmul    v7.4s, v7.4s, v11.4s
        fmla    v16.4s, v0.4s, v12.4s
        fmla    v17.4s, v1.4s, v13.4s
        fmla    v18.4s, v2.4s, v12.4s
        fmla    v19.4s, v3.4s, v13.4s
        fmla    v20.4s, v4.4s, v12.4s
        fmla    v21.4s, v5.4s, v13.4s
        fmla    v22.4s, v6.4s, v12.4s
        fmla    v23.4s, v7.4s, v13.4s
        add     scales, scales, #128
        add     w, w, #512
        load_start
        b.ne    1b
        rows_from_pairs 16, 18, 20, 22, y, y1
        rows_from_pairs 17, 19, 21, 23, y2, y3
        add     sp, sp, #32
        restore_vectors
end_function SYMBOL(vti_tile_q8_i8mm)
