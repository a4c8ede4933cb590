#!/usr/bin/env python3
"""Instructions and simulated cycles of the ARM kernels, without ARM hardware.

    measure.py SIMULATOR_FOLDER HARNESS ROI_PLUGIN RESULT_BASE [ONLY]

Runs `harness` (bench/neonsim/harness.c) under qemu for every kernel and shape, hands the trace of
executed instructions to neonsim.py, and writes RESULT_BASE.csv and RESULT_BASE.md. ONLY: part of a
measurement's name; then nothing is written. `make neonsim` does all of it.
"""
import csv
import os
import sys
from concurrent.futures import ProcessPoolExecutor

# vti_cpu_feature bits (kernels/kernels.h) of the cores, as a program finds them.
NEON, DOTPROD, FP16, FHM, I8MM = (1 << n for n in range(8, 13))
EXACT = NEON | DOTPROD | I8MM  # what is on by default: no arithmetic on halves
CORES = {
    "A55": NEON | DOTPROD | FP16,
    "A76": NEON | DOTPROD | FP16,
    "A710": NEON | DOTPROD | FP16 | FHM | I8MM,
    "V1": NEON | DOTPROD | FP16 | FHM | I8MM,
}
ROWS, DECODE_COLS, PREFILL_COLS = 16, 2048, 1024
PREFILL_TOKENS = (8, 16, 64)
TYPES = ("q4_0", "q5_0", "q8_0", "q4_k", "q5_k", "q6_k", "f16", "bf16", "f32")

# The best public kernel (ggml, ik_llama.cpp, KleidiAI) in the same simulator, 8 rows, 8 to 16
# tokens, then "good" and "great": ../shared/NEON.md, sections 3, 4 and 7. Of Q4_0 only kernels with
# exact block scales on both sides count, as ours have them.
REFERENCE = {  # (type, decode?, halves?): core: (public, good, great)
    ("q4_0", True): {"A55": (3.41, 4.0, 5.0), "A76": (10.1, 12, 13.5), "A710": (10.5, 12, 13.5),
                     "V1": (19.1, 23, 27)},
    ("q4_k", True): {"A55": (3.19, 3.6, 4.2), "A76": (9.41, 11, 12.5), "A710": (10.29, 11, 12.5),
                     "V1": (19.3, 22, 25)},
    ("q8_0", True): {"A55": (3.74, 3.6, 4.5), "A76": (16.0, 15, 16.5), "A710": (17.2, 15, 16.5),
                     "V1": (31.3, 29, 32)},
    ("q6_k", True): {"A55": (1.80, None, None), "A76": (4.48, None, None),
                     "A710": (5.01, None, None), "V1": (9.93, None, None)},
    ("f16", True): {"A55": (2.5, 2.5, 3.2), "A76": (14.3, 13, 14), "A710": (15.9, 13, 14),
                    "V1": (16.0, 16, 20)},
    ("q4_0", False): {"A55": (6.43, 6.5, 8), "A76": (19.15, 19, 20.5), "A710": (24.8, 25, 29),
                      "V1": (45.0, 45, 52)},
    ("q4_k", False): {"A55": (5.58, None, None), "A76": (16.3, None, None),
                      "A710": (19.2, None, None), "V1": (36.6, None, None)},
    ("q8_0", False): {"A55": (5.80, None, None), "A76": (18.1, None, None),
                      "A710": (25.4, None, None), "V1": (45.9, None, None)},
    ("f16", False): {"A55": (6.69, 6, 6.7), "A76": (15.9, 14.5, 15.5), "A710": (15.9, 14.5, 15.5),
                     "V1": (31.8, 29, 31)},
}
VECTORS = ("rms_norm", "rope_interleaved", "rope_half", "silu_gate", "gelu_gate", "add",
           "add_scaled", "softmax", "argmax", "f16_from_f32", "f32_from_f16")
VECTOR_COUNT = 1024
ATTENTION = ((1, 64, 1, 256), (2, 128, 1, 256), (7, 64, 1, 256), (7, 64, 16, 64), (2, 128, 16, 64))


def measurements():
    """(name, kind, type, harness arguments, work, with halves)"""
    for halves in (False, True):
        for kind in TYPES if not halves else ("f16",):
            suffix = ", sums in halves" if halves else ""
            yield (f"{kind} decode{suffix}", "decode", kind, [kind, ROWS, DECODE_COLS, 1],
                   ROWS * DECODE_COLS, halves)
            for m in PREFILL_TOKENS:
                yield (f"{kind} prefill {m}{suffix}", f"prefill {m}", kind,
                       [kind, ROWS, PREFILL_COLS, m], ROWS * PREFILL_COLS * m, halves)
    for form in ("q8", "q8k", "f32"):
        for tokens in (1, 4):
            yield (f"activations {form} × {tokens}", "elements", form,
                   ["act", form, VECTOR_COUNT, tokens], VECTOR_COUNT * tokens, False)
    for name in VECTORS:
        yield (name, "elements", name, ["vector", name, VECTOR_COUNT], VECTOR_COUNT, False)
    for kv in ("f16", "q8"):
        for heads, dim, tokens, rows in ATTENTION:
            seen = sum(rows - tokens + 1 + t for t in range(tokens))
            yield (f"attention {kv}, {heads} heads of {dim}, {tokens} tokens, {rows} rows",
                   "attention", kv, ["attention", kv, heads, dim, tokens, rows],
                   2 * heads * dim * seen, False)


def trace(simulator, harness, features, arguments):
    os.environ["PLUG"] = sys.argv[3]
    sys.path.insert(0, simulator)
    import neonsim
    # libc's own functions would use SVE.
    instructions = neonsim.trace(harness, [hex(features)] + [str(a) for a in arguments],
                                 "max,sve=off")
    return neonsim, [t for t in (neonsim.norm(i) for i in instructions) if t]


def measure(job):
    """One measurement → rows of the CSV file. Cores with the same kernel share a trace."""
    (name, kind, type_, arguments, work, halves), simulator, harness = job
    rows, traces = [], {}
    for core, features in CORES.items():
        mask = features if halves else features & EXACT
        if mask not in traces:
            traces[mask] = trace(simulator, harness, mask, arguments)
        neonsim, instructions = traces[mask]
        cycles = (neonsim.simulate_a55(instructions) if core == "A55"
                  else neonsim.simulate_ooo(instructions, core)[0])
        rows.append({"measurement": name, "kind": kind, "type": type_, "core": core,
                     "features": hex(mask), "work": work, "instructions": len(instructions),
                     "cycles": cycles, "per_cycle": f"{work / cycles:.2f}",
                     "instructions_per_unit": f"{len(instructions) / work:.4f}"})
    return rows


def cell(row, reference):
    text = row["per_cycle"]
    if not reference:
        return text
    public, good, great = reference
    marks = "**" if great and float(text) >= great else "" if not good or float(text) >= good else "_"
    return f"{marks}{text}{marks} ({public}{f' / {great}' if great else ''})"


def product_table(results, kind, decode, halves):
    lines = ["| weights | " + " | ".join(CORES) + " | instructions per MAC, A76 | A710 |",
             "|---" * (len(CORES) + 3) + "|"]
    for type_ in TYPES:
        rows = [r for r in results if r["type"] == type_ and r["kind"] == kind
                and r["measurement"].endswith("halves") == halves]
        if not rows:
            continue
        by_core = {r["core"]: r for r in rows}
        references = REFERENCE.get((type_, decode), {})
        cells = [cell(by_core[c], references.get(c)) for c in CORES]
        lines.append(f"| {type_} | " + " | ".join(cells) +
                     f" | {by_core['A76']['instructions_per_unit']}"
                     f" | {by_core['A710']['instructions_per_unit']} |")
    return lines


def other_table(results, kinds, title):
    lines = [f"| {title} | " + " | ".join(CORES) + " |", "|---" * (len(CORES) + 1) + "|"]
    names = [r["measurement"] for r in results if r["kind"] in kinds and r["core"] == "A76"]
    for name in names:
        by_core = {r["core"]: r["per_cycle"] for r in results if r["measurement"] == name}
        lines.append(f"| {name} | " + " | ".join(by_core[c] for c in CORES) + " |")
    return lines


def report(results, base):
    with open(base + ".csv", "w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(results[0]))
        writer.writeheader()
        writer.writerows(results)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "report.md")) as template:
        text = template.read()
    parts = {"decode": product_table(results, "decode", True, False),
             "decode-halves": product_table(results, "decode", True, True),
             "vectors": other_table(results, ("elements",), "elements per cycle"),
             "attention": other_table(results, ("attention",), "MAC per cycle")}
    for m in PREFILL_TOKENS:
        parts[f"prefill-{m}"] = product_table(results, f"prefill {m}", False, False)
        parts[f"prefill-{m}-halves"] = product_table(results, f"prefill {m}", False, True)
    for name, lines in parts.items():
        text = text.replace("{" + name + "}", "\n".join(lines))
    with open(base + ".md", "w") as out:
        out.write(text)


def main():
    simulator, harness, _, base = sys.argv[1:5]
    only = sys.argv[5] if len(sys.argv) > 5 else ""
    jobs = [(m, simulator, harness) for m in measurements() if only in m[0]]
    results = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for rows in pool.map(measure, jobs):
            results += rows
            print(f"{rows[0]['measurement']:45s} " +
                  "  ".join(f"{r['core']} {r['per_cycle']}" for r in rows), flush=True)
    if not only:
        report(results, base)


main()
