/* One token × one panel of whole Q4_K blocks, with SDOT.
 *
 * void vti_gemv_q4_k_dotprod(float sums[16], const unsigned char *panel, const unsigned char *x,
 *                            size_t blocks);
 *
 * Adds to sums. A lane is a row; rows 8…15 are the upper halves of bytes, and what is summed up for
 * them in integers is 16-fold: the dot product of whole bytes minus that of the lower halves.
 * Weights are loaded eight columns ahead. */
#include "asm.h"

        sums    .req x0
        panel   .req x1
        x       .req x2
        blocks  .req x3
        zeros   .req x4
        w       .req x5
        q       .req x6
        next_w  .req x7
        scales  .req x8
        act_sum .req x9
        half    .req x10

/* v16…v19 dots × scales of the block, v12…v15 its mins, v8…v11 weights, v24…v27 where the bytes of
 * the four sub-blocks lie in a lane, v31 = 15, v30 = 63. */

/* Eight columns, activations d; the weights are replaced by those at \at + offset. */
.macro columns8 at, offset
        ldr     d4, [q], #8
        and     v28.16b, v8.16b, v31.16b
        and     v29.16b, v9.16b, v31.16b
        sdot    v2.4s, v8.16b, v4.4b[0]
        sdot    v3.4s, v9.16b, v4.4b[0]
        ldp     q8, q9, [\at, #\offset]
        sdot    v0.4s, v28.16b, v4.4b[0]
        and     v28.16b, v10.16b, v31.16b
        sdot    v1.4s, v29.16b, v4.4b[0]
        and     v29.16b, v11.16b, v31.16b
        sdot    v2.4s, v10.16b, v4.4b[1]
        sdot    v3.4s, v11.16b, v4.4b[1]
        ldp     q10, q11, [\at, #\offset + 32]
        sdot    v0.4s, v28.16b, v4.4b[1]
        sdot    v1.4s, v29.16b, v4.4b[1]
.endm

/* A sub-block: `at`, `offset` as above for its end, `table` where its scales lie. The upper halves
 * are q - 8: their accumulators start at 16 × 8 × the sum of the activations. */
.macro sub_block table, at, offset
        ldp     q0, q1, [zeros]
        ldrsh   w11, [act_sum], #2
        lsl     w11, w11, #7
        dup     v2.4s, w11
        dup     v3.4s, w11
        columns8 w, 64
        columns8 w, 128
        columns8 w, 192
        columns8 \at, \offset
        add     w, w, #256
        tbl     v4.16b, {v20.16b}, v\table\().16b
        tbl     v5.16b, {v21.16b}, v\table\().16b
        tbl     v6.16b, {v22.16b}, v\table\().16b
        tbl     v7.16b, {v23.16b}, v\table\().16b
        sub     v2.4s, v2.4s, v0.4s
        sub     v3.4s, v3.4s, v1.4s
        mla     v16.4s, v0.4s, v4.4s
        mla     v17.4s, v1.4s, v5.4s
        mla     v18.4s, v2.4s, v6.4s
        mla     v19.4s, v3.4s, v7.4s
.endm

/* v_to = mins × the sums in v0 (their high and low bytes, lane by lane) of four rows. */
.macro dot_mins to, offset
        ldr     q20, [panel, #64 + \offset]
        ldr     q21, [panel, #128 + \offset]
        ldr     q22, [panel, #192 + \offset]
        movi    v\to\().4s, #0
        ushr    v20.16b, v20.16b, #2
        ushr    v21.16b, v21.16b, #2
        bit     v20.16b, v22.16b, v31.16b
        sri     v21.16b, v22.16b, #4
        sdot    v\to\().4s, v20.16b, v0.4b[0]
        sdot    v\to\().4s, v21.16b, v0.4b[1]
        shl     v\to\().4s, v\to\().4s, #7
        sdot    v\to\().4s, v20.16b, v0.4b[2]
        sdot    v\to\().4s, v21.16b, v0.4b[3]
.endm

/* v4…v7 = 16 halves at panel + offset. */
.macro load_halves offset
        ldp     q20, q21, [panel, #\offset]
        fcvtl   v4.4s, v20.4h
        fcvtl2  v5.4s, v20.8h
        fcvtl   v6.4s, v21.4h
        fcvtl2  v7.4s, v21.8h
.endm

/* v12…v15 = mins × dmin. Sums of activations are split into 128 × high + low, signed bytes. */
.macro scale_mins
        ldur    q2, [x, #4]
        srshr   v0.8h, v2.8h, #7
        shl     v1.8h, v0.8h, #7
        sub     v1.8h, v2.8h, v1.8h
        xtn     v0.8b, v0.8h
        xtn2    v0.16b, v1.8h
        dot_mins 12, 0
        dot_mins 13, 16
        dot_mins 14, 32
        dot_mins 15, 48
        load_halves 32
        scvtf   v12.4s, v12.4s
        scvtf   v13.4s, v13.4s
        scvtf   v14.4s, v14.4s
        scvtf   v15.4s, v15.4s
        fmul    v12.4s, v12.4s, v4.4s
        fmul    v13.4s, v13.4s, v5.4s
        fmul    v14.4s, v14.4s, v6.4s
        fmul    v15.4s, v15.4s, v7.4s
.endm

/* sums += (dots × d - v12…v15) × the activations' scale. */
.macro add_dots
        ldr     s29, [x]
        load_halves 0
        ldp     q20, q21, [sums]
        ldp     q22, q23, [sums, #32]
        scvtf   v16.4s, v16.4s
        scvtf   v17.4s, v17.4s
        scvtf   v18.4s, v18.4s, #4
        scvtf   v19.4s, v19.4s, #4
        fmls    v12.4s, v16.4s, v4.4s
        fmls    v13.4s, v17.4s, v5.4s
        fmls    v14.4s, v18.4s, v6.4s
        fmls    v15.4s, v19.4s, v7.4s
        fmls    v20.4s, v12.4s, v29.s[0]
        fmls    v21.4s, v13.4s, v29.s[0]
        fmls    v22.4s, v14.4s, v29.s[0]
        fmls    v23.4s, v15.4s, v29.s[0]
        stp     q20, q21, [sums]
        stp     q22, q23, [sums, #32]
.endm

function SYMBOL(vti_gemv_q4_k_dotprod)
        save_vectors
        movi    v31.16b, #15
        movi    v30.16b, #63
        adr     x11, 4f
        ldp     q24, q25, [x11]
        ldp     q26, q27, [x11, #32]
        add     zeros, x11, #64
        add     w, panel, #256
        ldp     q8, q9, [w]
        ldp     q10, q11, [w, #32]
1:      scale_mins
        add     q, x, #84
        add     act_sum, x, #4
        add     scales, panel, #64
        movi    v16.4s, #0
        movi    v17.4s, #0
        movi    v18.4s, #0
        movi    v19.4s, #0
        mov     half, #2
        add     next_w, w, #1024
2:      ldp     q20, q21, [scales], #32
        ldp     q22, q23, [scales], #32
        and     v20.16b, v20.16b, v30.16b
        and     v21.16b, v21.16b, v30.16b
        and     v22.16b, v22.16b, v30.16b
        and     v23.16b, v23.16b, v30.16b
        sub_block 24, w, 256
        sub_block 25, w, 256
        sub_block 26, w, 256
        sub_block 27, next_w, 0
        add     next_w, next_w, #1024 + 256     // the next block's weights, …
        cmp     blocks, #1
        csel    next_w, panel, next_w, eq       // … after the last one something readable
        subs    half, half, #1
        b.ne    2b
        add_dots
        add     panel, panel, #256 + 2048
        add     x, x, #84 + 256
        add     w, panel, #256
        subs    blocks, blocks, #1
        b.ne    1b
        restore_vectors
end_function SYMBOL(vti_gemv_q4_k_dotprod)

        .p2align 4
4:      .byte   0, 255, 255, 255, 4, 255, 255, 255, 8, 255, 255, 255, 12, 255, 255, 255
        .byte   1, 255, 255, 255, 5, 255, 255, 255, 9, 255, 255, 255, 13, 255, 255, 255
        .byte   2, 255, 255, 255, 6, 255, 255, 255, 10, 255, 255, 255, 14, 255, 255, 255
        .byte   3, 255, 255, 255, 7, 255, 255, 255, 11, 255, 255, 255, 15, 255, 255, 255
        .zero   32
