/* Assembly functions leave the caller's registers as they were: x19…x28, the lower halves of
 * v8…v15, and the stack pointer. What they compute is checked by test_checkkern. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#if defined(__aarch64__)

#include "../kernels/neon/neon.h"

/* Up to eight arguments, as the calling convention wants them in x0…x7. */
typedef struct call {
    const char *name;
    uint32_t feature;
    void (*function)(void);
    uint64_t arguments[8];
} call;

enum { SAVED = 10 + 8 + 1 }; /* x19…x28, d8…d15, sp */

static uint64_t expected[SAVED], found[SAVED];

/* Fills the registers with patterns, calls, and stores what is in them then. */
static __attribute__((noinline)) void call_with_patterns(const call *c)
{
    register uint64_t function __asm__("x8") = (uint64_t)(uintptr_t)c->function;
    register const uint64_t *arguments __asm__("x9") = c->arguments;
    register uint64_t *out __asm__("x11") = found;
    register uint64_t *in __asm__("x10") = expected;
    __asm__ volatile("stp x11, xzr, [sp, #-16]!\n\t"
                     "ldp x19, x20, [x10]\n\t"
                     "ldp x21, x22, [x10, #16]\n\t"
                     "ldp x23, x24, [x10, #32]\n\t"
                     "ldp x25, x26, [x10, #48]\n\t"
                     "ldp x27, x28, [x10, #64]\n\t"
                     "ldp d8, d9, [x10, #80]\n\t"
                     "ldp d10, d11, [x10, #96]\n\t"
                     "ldp d12, d13, [x10, #112]\n\t"
                     "ldp d14, d15, [x10, #128]\n\t"
                     "mov x12, sp\n\t"
                     "str x12, [x10, #144]\n\t"
                     "ldp x0, x1, [x9]\n\t"
                     "ldp x2, x3, [x9, #16]\n\t"
                     "ldp x4, x5, [x9, #32]\n\t"
                     "ldp x6, x7, [x9, #48]\n\t"
                     "blr x8\n\t"
                     "mov x12, sp\n\t"
                     "ldr x11, [sp], #16\n\t"
                     "stp x19, x20, [x11]\n\t"
                     "stp x21, x22, [x11, #16]\n\t"
                     "stp x23, x24, [x11, #32]\n\t"
                     "stp x25, x26, [x11, #48]\n\t"
                     "stp x27, x28, [x11, #64]\n\t"
                     "stp d8, d9, [x11, #80]\n\t"
                     "stp d10, d11, [x11, #96]\n\t"
                     "stp d12, d13, [x11, #112]\n\t"
                     "stp d14, d15, [x11, #128]\n\t"
                     "str x12, [x11, #144]\n\t"
                     : "+r"(function), "+r"(arguments), "+r"(out), "+r"(in)
                     :
                     : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x12", "x13", "x14", "x15",
                       "x16", "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
                       "x28", "x30", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9",
                       "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20",
                       "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31",
                       "memory", "cc");
}

/* The register that has changed, or NULL. */
static const char *changed_register(const call *c)
{
    static char name[8];
    for (size_t i = 0; i < SAVED; i++) expected[i] = 0x0123456789abcdefu * (i + 1);
    memset(found, 0, sizeof found);
    call_with_patterns(c);
    for (size_t i = 0; i < SAVED; i++) {
        if (found[i] == expected[i]) continue;
        if (i == SAVED - 1) return "sp";
        snprintf(name, sizeof name, "%c%u", i < 10 ? 'x' : 'd', (unsigned)(i < 10 ? i + 19 : i - 2));
        return name;
    }
    return NULL;
}

/* Room for two blocks of anything; zeros are valid everywhere. */
static unsigned char panel[1 << 16], act[1 << 14];
static float sums[4 * 16];

#define AT(buffer) (uint64_t)(uintptr_t)(buffer)

static const call calls[] = {
#define CALL(feature, name, ...) {#name, feature, (void (*)(void))name, {__VA_ARGS__}}
    CALL(VTI_CPU_NEON, vti_tile_f32_neon, AT(sums), 64, AT(panel), AT(act), 6),
    CALL(VTI_CPU_NEON, vti_gemv_f16_neon, AT(sums), AT(panel), AT(act), 8),
    CALL(VTI_CPU_NEON, vti_gemv_bf16_neon, AT(sums), AT(panel), AT(act), 8),
    CALL(VTI_CPU_NEON, vti_floats_f16_neon, AT(sums), AT(panel), 2),
    CALL(VTI_CPU_NEON, vti_floats_bf16_neon, AT(sums), AT(panel), 2),
    CALL(VTI_CPU_NEON_FP16, vti_tile_f16_fp16, AT(sums), AT(panel), AT(act), AT(act), 200),
    CALL(VTI_CPU_NEON_FP16, vti_gemv_f16_fp16, AT(sums), AT(panel), AT(act), 1536),
    CALL(VTI_CPU_NEON_DOTPROD, vti_gemv_q8_0_dotprod, AT(sums), AT(panel), AT(act), 2),
    CALL(VTI_CPU_NEON_DOTPROD, vti_gemv_q4_0_dotprod, AT(sums), AT(panel), AT(act), 2),
    CALL(VTI_CPU_NEON_DOTPROD, vti_gemv_q4_k_dotprod, AT(sums), AT(panel), AT(act), 2),
    CALL(VTI_CPU_NEON_DOTPROD, vti_tile_q8_0_dotprod, AT(sums), 64, AT(panel), AT(panel), AT(act),
         2, 544),
    CALL(VTI_CPU_NEON_DOTPROD, vti_tile_q4_0_dotprod, AT(sums), 64, AT(panel), AT(panel), AT(act),
         2, AT(panel)),
    CALL(VTI_CPU_NEON_DOTPROD, vti_tile_q4_0_dotprod, AT(sums), 64, AT(panel), AT(panel), AT(act),
         2, 0),
    CALL(VTI_CPU_NEON_DOTPROD, vti_dots32_dotprod, AT(sums), AT(panel), AT(act), AT(panel), 2),
    CALL(VTI_CPU_NEON_DOTPROD, vti_dots16_dotprod, AT(sums), AT(panel), AT(act), AT(panel), 2),
    CALL(VTI_CPU_NEON_I8MM, vti_tile_q8_i8mm, AT(sums), 64, AT(panel), AT(panel), AT(act), 2),
    CALL(VTI_CPU_NEON_I8MM, vti_dots32_i8mm, AT(sums), AT(panel), AT(act), AT(panel), 2),
    CALL(VTI_CPU_NEON_I8MM, vti_dots16_i8mm, AT(sums), AT(panel), AT(act), AT(panel), 2),
#undef CALL
};

static void registers_are_kept(void **state)
{
    (void)state;
    uint32_t features = vti_cpu_features();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!(features & calls[i].feature)) continue;
        const char *name = changed_register(&calls[i]);
        if (name) fail_msg("%s changes %s", calls[i].name, name);
    }
}

/* Functions that are wrong on purpose. */
void test_changes_d9(void) __asm__("test_changes_d9");
void test_changes_x20(void) __asm__("test_changes_x20");
__asm__(".text\n"
        ".globl test_changes_d9, test_changes_x20\n"
        ".p2align 2\n"
        "test_changes_d9: fmov d9, xzr\n"
        "    ret\n"
        "test_changes_x20: mov x20, xzr\n"
        "    ret\n");

static void changes_are_noticed(void **state)
{
    (void)state;
    assert_string_equal(changed_register(&(call){"", 0, test_changes_d9, {0}}), "d9");
    assert_string_equal(changed_register(&(call){"", 0, test_changes_x20, {0}}), "x20");
}

#else

static void registers_are_kept(void **state)
{
    (void)state;
    skip();
}

static void changes_are_noticed(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registers_are_kept),
        cmocka_unit_test(changes_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
