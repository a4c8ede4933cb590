#!/usr/bin/env python3
"""Random blocks of every weight type that loads, and the floats they stand for.

The floats come from ggml's own dequantize_row_* functions: the argument is a libggml-base.so, such as
the one in the npm package @node-llama-cpp/linux-x64 (version 3.22.1 made the committed file; plain
x86-64 code, so products and sums are rounded one after the other). Writes dequantised.bin beside
this script:

    python3 tests/data/make_dequantised.py .../bins/linux-x64/libggml-base.so

Per type: ggml's number, weights, bytes (u32 each, little-endian), the blocks, the weights as F32.
"""
import ctypes
import os
import random
import struct
import sys

WEIGHTS = 1024
# number, function, block, bytes of a block, where its halves are
TYPES = [
    (1, "fp16", 1, 2, None), (30, "bf16", 1, 2, None),
    (8, "q8_0", 32, 34, [0]), (2, "q4_0", 32, 18, [0]), (3, "q4_1", 32, 20, [0, 2]),
    (6, "q5_0", 32, 22, [0]), (7, "q5_1", 32, 24, [0, 2]), (20, "iq4_nl", 32, 18, [0]),
    (10, "q2_K", 256, 84, [80, 82]), (11, "q3_K", 256, 110, [108]),
    (12, "q4_K", 256, 144, [0, 2]), (13, "q5_K", 256, 176, [0, 2]), (14, "q6_K", 256, 210, [208]),
    (23, "iq4_xs", 256, 136, [0]),
]


def finite_half():
    """Of any exponent: mostly ordinary ones, some subnormal, some zero, some large."""
    exponent = random.choice([0, 0, 5, 6, 7, 8, 9, 10, 11, 12, 15, 20, 30])
    return random.getrandbits(1) << 15 | exponent << 10 | random.getrandbits(10)


def blocks_of(block, block_bytes, halves):
    if halves is None:
        return b"".join(struct.pack("<H", finite_half()) for _ in range(WEIGHTS))
    data = bytearray()
    for i in range(WEIGHTS // block):
        one = bytearray(random.randbytes(block_bytes))
        for at in halves:
            struct.pack_into("<H", one, at, finite_half() if i else 0x8000)
        data += one
    return bytes(data)


def dequantise(library, function, blocks):
    out = (ctypes.c_float * WEIGHTS)()
    names = {"fp16": "ggml_fp16_to_fp32_row", "bf16": "ggml_bf16_to_fp32_row"}
    call = getattr(library, names.get(function, "dequantize_row_" + function))
    call.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_float), ctypes.c_int64]
    call.restype = None
    call(blocks, out, WEIGHTS)
    return bytes(out)


def main():
    library = ctypes.CDLL(sys.argv[1])
    random.seed(20261130)
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "dequantised.bin"), "wb") as file:
        for number, function, block, block_bytes, halves in TYPES:
            blocks = blocks_of(block, block_bytes, halves)
            file.write(struct.pack("<III", number, WEIGHTS, len(blocks)))
            file.write(blocks)
            file.write(dequantise(library, function, blocks))


main()
