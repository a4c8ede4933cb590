/* 16 rows × four tokens in floats.
 *
 * void vti_tile_f32_neon(float *y, size_t y_stride_bytes, const float *w, const float *x,
 *                        size_t columns);
 *
 * Adds to y, column by column. w: [columns][16 rows], x: [columns][4 tokens]. An accumulator is one
 * row, a lane a token: an in-order core loads two rows' weights, 8 bytes, beside an FMLA, but 16
 * bytes take it two cycles. */
#include "asm.h"

        y       .req x0
        stride  .req x1
        w       .req x2
        x       .req x3
        columns .req x4
        y1      .req x5
        y2      .req x6
        y3      .req x7

/* Two rows; their weights of the next column replace them. */
.macro rows2 a, r0, r1, d, offset, beside
        fmla    v\r0\().4s, v\a\().4s, v\d\().s[0]
        \beside
        fmla    v\r1\().4s, v\a\().4s, v\d\().s[1]
  .ifnb \offset
        ldr     d\d, [w, #\offset]
  .endif
.endm

/* One column with the activations v\a; with `more` the next one's weights are loaded. */
.macro column a, more, beside
  .if \more
        rows2   \a, 16, 17, 2, 64
        rows2   \a, 18, 19, 3, 72
        rows2   \a, 20, 21, 4, 80
        rows2   \a, 22, 23, 5, 88
        rows2   \a, 24, 25, 6, 96
        rows2   \a, 26, 27, 7, 104
        rows2   \a, 28, 29, 8, 48, "add w, w, #64"
        rows2   \a, 30, 31, 9, 56, "\beside"
  .else
        rows2   \a, 16, 17, 2
        rows2   \a, 18, 19, 3
        rows2   \a, 20, 21, 4
        rows2   \a, 22, 23, 5
        rows2   \a, 24, 25, 6
        rows2   \a, 26, 27, 7
        rows2   \a, 28, 29, 8
        rows2   \a, 30, 31, 9
  .endif
.endm

/* Four vectors ↔ their columns. */
.macro transpose a, b, c, d
        trn1    v10.4s, v\a\().4s, v\b\().4s
        trn2    v11.4s, v\a\().4s, v\b\().4s
        trn1    v12.4s, v\c\().4s, v\d\().4s
        trn2    v13.4s, v\c\().4s, v\d\().4s
        trn1    v\a\().2d, v10.2d, v12.2d
        trn1    v\b\().2d, v11.2d, v13.2d
        trn2    v\c\().2d, v10.2d, v12.2d
        trn2    v\d\().2d, v11.2d, v13.2d
.endm

.macro transpose_all
        transpose 16, 17, 18, 19
        transpose 20, 21, 22, 23
        transpose 24, 25, 26, 27
        transpose 28, 29, 30, 31
.endm

/* v16 + 4 × quarter of the rows + token. */
.macro each_token op
        \op     q16, [y]
        \op     q17, [y1]
        \op     q18, [y2]
        \op     q19, [y3]
        \op     q20, [y, #16]
        \op     q21, [y1, #16]
        \op     q22, [y2, #16]
        \op     q23, [y3, #16]
        \op     q24, [y, #32]
        \op     q25, [y1, #32]
        \op     q26, [y2, #32]
        \op     q27, [y3, #32]
        \op     q28, [y, #48]
        \op     q29, [y1, #48]
        \op     q30, [y2, #48]
        \op     q31, [y3, #48]
.endm

function SYMBOL(vti_tile_f32_neon)
        save_vectors
        add     y1, y, stride
        add     y2, y1, stride
        add     y3, y2, stride
        each_token ldr
        ldr     q0, [x], #16
        ldp     d2, d3, [w]
        ldp     d4, d5, [w, #16]
        ldp     d6, d7, [w, #32]
        ldp     d8, d9, [w, #48]
        transpose_all
        sub     columns, columns, #1    // the last one loads nothing
        tbz     columns, #0, 1f
        column  0, 1, "sub columns, columns, #1"
        ldr     q0, [x], #16
1:      cbz     columns, 3f
2:      ldr     q1, [x], #16
        column  0, 1
        ldr     q0, [x], #16
        column  1, 1, "subs columns, columns, #2"
        b.ne    2b
3:      column  0, 0
        transpose_all
        each_token str
        restore_vectors
end_function SYMBOL(vti_tile_f32_neon)
