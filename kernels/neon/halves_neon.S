/* Panels of F16 and BF16, in floats. A lane is a row.
 *
 * void vti_gemv_f16_neon(float sums[16], const unsigned char *w, const float *x, size_t columns);
 *
 * One token: adds columns, a multiple of 4 above 0, one after the other.
 *
 * void vti_floats_f16_neon(float *to, const unsigned char *w, size_t columns);
 *
 * Converts columns, at least one. The same for bf16.
 *
 * An in-order core loads 8 bytes beside other work, so weights are loaded two columns and converted
 * one column ahead. */
#include "asm.h"

        sums    .req x0
        w       .req x1
        x       .req x2
        columns .req x3
        to      .req x0
        count   .req x2

.macro f16_to_f32 to, from
        fcvtl   v\to\().4s, v\from\().4h
.endm

.macro bf16_to_f32 to, from
        shll    v\to\().4s, v\from\().4h, #16
.endm

/* Four rows of a column, converted to v\p, × v\a[lane]; those of the next are converted from v\f to
 * v\n, those of the one after loaded to v\f. */
.macro rows4 convert, s, p, a, lane, n, f, offset
  .ifnb \n
        \convert \n, \f
  .endif
  .ifnb \offset
        ldr     d\f, [w, #\offset]
  .endif
        fmla    v\s\().4s, v\p\().4s, v\a\().s[\lane]
.endm

/* Columns with even and odd numbers, 16 rows. Converted are v20…v23 and v24…v27, loaded v4…v7. */
.macro even_column convert, a, o0, o1, o2, o3, beside
        rows4   \convert, 16, 20, \a, 0, 24, 4, \o0
        \beside
        rows4   \convert, 17, 21, \a, 0, 25, 5, \o1
        rows4   \convert, 18, 22, \a, 0, 26, 6, \o2
        rows4   \convert, 19, 23, \a, 0, 27, 7, \o3
.endm

.macro odd_column convert, a, o0, o1, o2, o3, beside
        rows4   \convert, 16, 24, \a, 1, 20, 4, \o0
        \beside
        rows4   \convert, 17, 25, \a, 1, 21, 5, \o1
        rows4   \convert, 18, 26, \a, 1, 22, 6, \o2
        rows4   \convert, 19, 27, \a, 1, 23, 7, \o3
.endm

.macro last_column a
        fmla    v16.4s, v24.4s, v\a\().s[1]
        fmla    v17.4s, v25.4s, v\a\().s[1]
        fmla    v18.4s, v26.4s, v\a\().s[1]
        fmla    v19.4s, v27.4s, v\a\().s[1]
.endm

.macro load_column offset
        ldp     d4, d5, [w, #\offset]
        ldp     d6, d7, [w, #\offset + 16]
.endm

.macro gemv convert
        ldp     q16, q17, [sums]
        ldp     q18, q19, [sums, #32]
        load_column 0
        ldr     d0, [x]
        \convert 20, 4
        \convert 21, 5
        \convert 22, 6
        \convert 23, 7
        load_column 32
        subs    columns, columns, #4
        b.eq    2f
1:      even_column \convert, 0, 64, 72, 80, 88, "ldr d1, [x, #8]"
        odd_column  \convert, 0, 96, 104, 112, 120, "add x, x, #16"
        even_column \convert, 1, 128, 136, 144, 152, "ldr d0, [x]"
        odd_column  \convert, 1, 160, 168, 176, 184, "subs columns, columns, #4"
        add     w, w, #128
        b.ne    1b
2:      even_column \convert, 0, 64, 72, 80, 88, "ldr d1, [x, #8]"
        odd_column  \convert, 0, 96, 104, 112, 120
        even_column \convert, 1
        last_column 1
        stp     q16, q17, [sums]
        stp     q18, q19, [sums, #32]
.endm

function SYMBOL(vti_gemv_f16_neon)
        gemv    f16_to_f32
end_function SYMBOL(vti_gemv_f16_neon)

function SYMBOL(vti_gemv_bf16_neon)
        gemv    bf16_to_f32
end_function SYMBOL(vti_gemv_bf16_neon)

/* --- conversion ------------------------------------------------------------------------------- */

.macro convert4 convert, to, from, offset
        \convert \to, \from
  .ifnb \offset
        ldr     d\from, [w, #\offset]
  .endif
.endm

.macro floats convert
        load_column 0
        subs    count, count, #1
        b.eq    2f
1:      convert4 \convert, 16, 4, 32
        convert4 \convert, 17, 5, 40
        convert4 \convert, 18, 6, 48
        convert4 \convert, 19, 7, 56
        add     w, w, #32
        subs    count, count, #1
        stp     q16, q17, [to]
        stp     q18, q19, [to, #32]
        add     to, to, #64
        b.ne    1b
2:      convert4 \convert, 16, 4
        convert4 \convert, 17, 5
        convert4 \convert, 18, 6
        convert4 \convert, 19, 7
        stp     q16, q17, [to]
        stp     q18, q19, [to, #32]
.endm

function SYMBOL(vti_floats_f16_neon)
        floats  f16_to_f32
end_function SYMBOL(vti_floats_f16_neon)

function SYMBOL(vti_floats_bf16_neon)
        floats  bf16_to_f32
end_function SYMBOL(vti_floats_bf16_neon)
