#include "kernels.h"

static const struct {
    uint32_t bit;
    const char *name;
} feature_names[] = {
    {VTI_CPU_AVX2, "avx2"},
    {VTI_CPU_AVX512, "avx512"},
    {VTI_CPU_AVX512_VNNI, "avx512vnni"},
    {VTI_CPU_NEON, "neon"},
    {VTI_CPU_NEON_DOTPROD, "dotprod"},
    {VTI_CPU_NEON_FP16, "fp16"},
    {VTI_CPU_NEON_FHM, "fhm"},
    {VTI_CPU_NEON_I8MM, "i8mm"},
};

const char *vti_cpu_feature_name(uint32_t feature)
{
    for (size_t i = 0; i < sizeof feature_names / sizeof *feature_names; i++)
        if (feature_names[i].bit == feature) return feature_names[i].name;
    return NULL;
}

#if defined(__x86_64__)

#include <cpuid.h>

/* Not every supported compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* The compiler's own test includes what the operating system enabled (XCR0). */
uint32_t vti_cpu_features(void)
{
    uint32_t features = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !has_f16c())
        return 0;
    features |= VTI_CPU_AVX2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return features;
    features |= VTI_CPU_AVX512;
    if (__builtin_cpu_supports("avx512vnni")) features |= VTI_CPU_AVX512_VNNI;
    return features;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

/* Bits of the arm64 Linux ABI, named here so that old headers do. */
enum { HWCAP_BIT_FPHP = 9, HWCAP_BIT_ASIMDHP = 10, HWCAP_BIT_ASIMDDP = 20,
       HWCAP_BIT_ASIMDFHM = 23, HWCAP2_BIT_I8MM = 13 };

uint32_t vti_cpu_features(void)
{
    unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
    uint32_t features = VTI_CPU_NEON; /* part of the armv8-a baseline */
    if (caps >> HWCAP_BIT_ASIMDDP & 1) features |= VTI_CPU_NEON_DOTPROD;
    if ((caps >> HWCAP_BIT_ASIMDHP & 1) && (caps >> HWCAP_BIT_FPHP & 1)) {
        features |= VTI_CPU_NEON_FP16;
        if (caps >> HWCAP_BIT_ASIMDFHM & 1) features |= VTI_CPU_NEON_FHM;
    }
    if (caps2 >> HWCAP2_BIT_I8MM & 1) features |= VTI_CPU_NEON_I8MM;
    return features;
}

#elif defined(__aarch64__) && defined(__APPLE__)

#include <sys/sysctl.h>

static bool has(const char *name)
{
    int value = 0;
    size_t bytes = sizeof value;
    return sysctlbyname(name, &value, &bytes, NULL, 0) == 0 && value;
}

uint32_t vti_cpu_features(void)
{
    uint32_t features = VTI_CPU_NEON;
    if (has("hw.optional.arm.FEAT_DotProd")) features |= VTI_CPU_NEON_DOTPROD;
    if (has("hw.optional.arm.FEAT_FP16")) {
        features |= VTI_CPU_NEON_FP16;
        if (has("hw.optional.arm.FEAT_FHM")) features |= VTI_CPU_NEON_FHM;
    }
    if (has("hw.optional.arm.FEAT_I8MM")) features |= VTI_CPU_NEON_I8MM;
    return features;
}

#else

uint32_t vti_cpu_features(void) { return 0; }

#endif
