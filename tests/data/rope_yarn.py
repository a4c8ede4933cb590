#!/usr/bin/env python3
"""Expected YaRN frequencies in tests/test_families.c, from the formulas of arXiv:2309.00071.

lambda_d is the wavelength of pair d, r = original context / lambda_d the turns it makes in it. The
paper blends with gamma(r), a ramp between r = alpha and r = beta; published implementations, which
models are trained with, put the same ramp over the pair's index instead, between the pairs (rounded
outwards) that make beta and alpha turns. That is what is computed here.
"""
import math


def yarn(base, dims, factor, context, alpha=1, beta=32):
    def pair(turns):
        wavelength = context / turns
        return math.log(wavelength / (2 * math.pi)) / math.log(base) * dims / 2

    low, high = max(math.floor(pair(beta)), 0), min(math.ceil(pair(alpha)), dims - 1)
    frequencies = []
    for d in range(dims // 2):
        theta = base ** (-2 * d / dims)
        interpolated = min(max((d - low) / (high - low), 0), 1)
        frequencies.append(theta * (interpolated / factor + 1 - interpolated))
    return frequencies, 0.1 * math.log(factor) + 1


for name, arguments, pairs in (("qwen", (1e6, 128, 4, 32768), (0, 10, 23, 24, 30, 39, 40, 50, 63)),
                               ("llama", (1e4, 128, 16, 4096), (0, 20, 21, 33, 45, 46, 63))):
    frequencies, magnitude = yarn(*arguments)
    print(name, magnitude, ", ".join("%.10g" % frequencies[p] for p in pairs))
