#!/usr/bin/env python3
"""Reference logits of the default model, computed in float64 by plain Python.

Independent of the C code: its own GGUF parsing, its own forward pass (qwen2: RMSNorm, QKV bias,
half-split RoPE, grouped-query attention, SwiGLU, tied output). Writes, beside this script,
default-ids.json (token ids, no BOS added) and default.logits.f32 (positions x vocabulary, float32
little-endian). Takes about a minute; run it only to make the files anew:

    python3 tests/data/make_default_golden.py
"""
import array
import json
import math
import os
import struct
from operator import mul

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "../../src/assets/stories-4m-f16.gguf")
# "Once upon a time, there was a little fox who" and on, whatever it means: ids only need variety.
IDS = [2045, 417, 991, 12, 1500, 33, 705, 268, 1999, 1024, 77, 640, 5, 1333, 860, 451]


class Gguf:
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
               12: "d"}

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 8
        tensor_count, entry_count = self.take("QQ")
        self.meta = {}
        for _ in range(entry_count):
            key = self.string()
            self.meta[key] = self.value(self.take("I")[0])
        infos = []
        for _ in range(tensor_count):
            name = self.string()
            dimensions = self.take("Q" * self.take("I")[0])
            infos.append((name, dimensions, *self.take("IQ")))
        start = (self.at + 31) // 32 * 32
        self.tensors = {n: (d, t, start + o) for n, d, t, o in infos}

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def string(self):
        size = self.take("Q")[0]
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, count = self.take("IQ")
            return [self.value(element) for _ in range(count)]
        return self.take(self.SCALARS[kind])[0]

    def rows(self, name):
        """Rows of a matrix (a vector is one row) as arrays of float64."""
        dimensions, kind, offset = self.tensors[name]
        cols = dimensions[0]
        count = dimensions[1] if len(dimensions) > 1 else 1
        form, size = {0: ("f", 4), 1: ("e", 2)}[kind]
        flat = struct.unpack_from("<%d%s" % (cols * count, form), self.data, offset)
        assert size * cols * count + offset <= len(self.data)
        return [array.array("d", flat[i * cols:(i + 1) * cols]) for i in range(count)]


def dot(a, b):
    return math.fsum(map(mul, a, b))


def project(matrix, x):
    return [dot(row, x) for row in matrix]


def rms_norm(x, weight, eps):
    scale = 1.0 / math.sqrt(dot(x, x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


def rope(head, position, base):
    half = len(head) // 2
    out = list(head)
    for i in range(half):
        angle = position * base ** (-2.0 * i / len(head))
        c, s = math.cos(angle), math.sin(angle)
        out[i] = head[i] * c - head[i + half] * s
        out[i + half] = head[i] * s + head[i + half] * c
    return out


def main():
    g = Gguf(MODEL)
    m = {k.split(".", 1)[1]: v for k, v in g.meta.items() if k.startswith("qwen2.")}
    heads, kv_heads = m["attention.head_count"], m["attention.head_count_kv"]
    size, eps = m["attention.key_length"], m["attention.layer_norm_rms_epsilon"]
    base = m["rope.freq_base"]
    embedding = g.rows("token_embd.weight")
    stream = [list(embedding[t]) for t in IDS]
    for layer in range(m["block_count"]):
        w = {n: g.rows("blk.%d.%s" % (layer, n)) for n in (
            "attn_norm.weight", "attn_q.weight", "attn_q.bias", "attn_k.weight", "attn_k.bias",
            "attn_v.weight", "attn_v.bias", "attn_output.weight", "ffn_norm.weight",
            "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")}
        keys, values = [], []
        for position, h in enumerate(stream):
            x = rms_norm(h, w["attn_norm.weight"][0], eps)

            def qkv(which):
                y = project(w["attn_%s.weight" % which], x)
                y = [a + b for a, b in zip(y, w["attn_%s.bias" % which][0])]
                return [y[i:i + size] for i in range(0, len(y), size)]
            queries = [rope(q, position, base) for q in qkv("q")]
            keys.append([rope(k, position, base) for k in qkv("k")])
            values.append(qkv("v"))
            mixed = []
            for head, q in enumerate(queries):
                group = head // (heads // kv_heads)
                scores = [dot(q, k[group]) / math.sqrt(size) for k in keys]
                top = max(scores)
                weights = [math.exp(s - top) for s in scores]
                total = math.fsum(weights)
                for i in range(size):
                    mixed.append(math.fsum(p * v[group][i] for p, v in zip(weights, values)) / total)
            h = [a + b for a, b in zip(h, project(w["attn_output.weight"], mixed))]
            x = rms_norm(h, w["ffn_norm.weight"][0], eps)
            gate, up = project(w["ffn_gate.weight"], x), project(w["ffn_up.weight"], x)
            hidden = [a / (1 + math.exp(-a)) * b for a, b in zip(gate, up)]
            stream[position] = [a + b for a, b in zip(h, project(w["ffn_down.weight"], hidden))]
    norm = g.rows("output_norm.weight")[0]
    out = array.array("f")
    for h in stream:
        out.extend(project(embedding, rms_norm(h, norm, eps)))
    with open(os.path.join(HERE, "default.logits.f32"), "wb") as file:
        out.tofile(file)
    with open(os.path.join(HERE, "default-ids.json"), "w") as file:
        json.dump(IDS, file)
        file.write("\n")


if __name__ == "__main__":
    main()
