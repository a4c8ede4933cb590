/* asm.h: how an assembly function begins and ends, for ELF and Mach-O. */
#ifndef VTI_KERNELS_NEON_ASM_H
#define VTI_KERNELS_NEON_ASM_H

#ifdef __APPLE__
#define SYMBOL(name) _##name
#else
#define SYMBOL(name) name
        .section .note.GNU-stack, "", %progbits
#endif

        .text

.macro function name
        .globl  \name
        .p2align 4
#ifndef __APPLE__
        .type   \name, %function
        .hidden \name
#endif
\name:
.endm

.macro end_function name
        ret
#ifndef __APPLE__
        .size   \name, . - \name
#endif
.endm

/* The halves of v8…v15 that belong to the caller. */
.macro save_vectors
        stp     d8, d9, [sp, #-64]!
        stp     d10, d11, [sp, #16]
        stp     d12, d13, [sp, #32]
        stp     d14, d15, [sp, #48]
.endm

.macro restore_vectors
        ldp     d10, d11, [sp, #16]
        ldp     d12, d13, [sp, #32]
        ldp     d14, d15, [sp, #48]
        ldp     d8, d9, [sp], #64
.endm

#endif
