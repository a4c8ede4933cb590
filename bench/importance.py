#!/usr/bin/env python3
"""What importances say, how far they agree, and what pruning by them costs on another text.

    bench/importance.py agree A.importance B.importance
    bench/importance.py prune FILE.importance --held-out TEXT [--shards N …] [--context N]

`agree` compares two files of one model, such as one of --exact with one of shards, or those of a
short and a long text. `prune` leaves out N shards of every ATTN and FFN unit of the default model:
those that matter least, those with the highest numbers, random ones, and those that matter most.
Prints Markdown.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile


def ranks(x):
    """Average ranks, so that equal values are no order."""
    order = sorted(range(len(x)), key=lambda i: x[i])
    out = [0.0] * len(x)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and x[order[end + 1]] == x[order[at]]:
            end += 1
        for i in order[at:end + 1]:
            out[i] = (at + end) / 2
        at = end + 1
    return out


def correlation(x, y):
    if len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return statistics.correlation(x, y)


def rank_correlation(x, y):
    return correlation(ranks(x), ranks(y))


def load(path):
    with open(path) as file:
        return {u["unit"]: u for u in json.load(file)["units"]}


def flat(lists):
    return [x for some in lists for x in some]


def agree(o):
    a, b = load(o.a), load(o.b)
    names = [n for n in a if n in b]
    rows = [("units", [a[n]["score"] for n in names], [b[n]["score"] for n in names]),
            ("parts", flat(a[n]["parts"] for n in names), flat(b[n]["parts"] for n in names)),
            ("channels", flat(flat(a[n]["channels"]) for n in names),
             flat(flat(b[n]["channels"]) for n in names))]
    print("| of | number | rank correlation | correlation |\n|---|---:|---:|---:|")
    for what, x, y in rows:
        print(f"| {what} | {len(x)} | {rank_correlation(x, y):.3f} | {correlation(x, y):.3f} |")
    within = {"parts of a unit": [(a[n]["parts"], b[n]["parts"]) for n in names],
              "channels of a part": [p for n in names
                                     for p in zip(a[n]["channels"], b[n]["channels"])]}
    for what, pairs in within.items():
        found = [(rank_correlation(x, y), correlation(x, y)) for x, y in pairs]
        found = [f for f in found if f == f]
        print(f"| {what} (median) | {len(found)} | {statistics.median(f[0] for f in found):.3f} "
              f"| {statistics.median(f[1] for f in found):.3f} |")
    print(f"\nSum of all scores: {sum(rows[0][1]):.4f} and {sum(rows[0][2]):.4f}")


def plan_text(units, pruned):
    """A plan of one device; EMBED comes first."""
    place = {"from": 0, "home": 0, "exchange": False, "wire": "F32", "shares": [1]}
    plan = [{"unit": u, "precision": "F16", "pruned": pruned.get(u, []), "prefill": place,
             "decode": place} for u in range(units + 1)]
    return json.dumps({"format": "voltron-plan", "version": 1, "epoch": 0, "devices": 1,
                       "pruned_shards": 0, "units": plan})


def perplexity(o, folder, units, pruned):
    path = os.path.join(folder, "plan.json")
    with open(path, "w") as file:
        file.write(plan_text(units, pruned))
    out = subprocess.run([o.run, "ppl", "--plan", path, "--text", o.held_out, "--context",
                          str(o.context), "-T", "1", "--json"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(out.stderr)
    return json.loads(out.stdout)["perplexity"]


def prune(o):
    units = load(o.file)
    parts = [u["parts"] for name, u in units.items() if name != "HEAD"]
    rng = random.Random(1)
    choices = {
        "least important": lambda p, n: sorted(range(len(p)), key=lambda i: p[i])[:n],
        "highest numbers": lambda p, n: list(range(len(p) - n, len(p))),
        "random": lambda p, n: rng.sample(range(len(p)), n),
        "most important": lambda p, n: sorted(range(len(p)), key=lambda i: -p[i])[:n],
    }
    with tempfile.TemporaryDirectory() as folder:
        print(f"Nothing pruned: {perplexity(o, folder, len(units), {}):.4f}\n")
        print("| shards pruned of each unit | " + " | ".join(choices) + " |")
        print("|---:|" + "---:|" * len(choices))
        for n in o.shards:
            found = [perplexity(o, folder, len(units),
                                {u + 1: choose(p, n) for u, p in enumerate(parts)})
                     for choose in choices.values()]
            print(f"| {n} | " + " | ".join(f"{x:.3f}" for x in found) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = p.add_subparsers(required=True)
    a = commands.add_parser("agree")
    a.add_argument("a")
    a.add_argument("b")
    a.set_defaults(do=agree)
    b = commands.add_parser("prune")
    b.add_argument("file")
    b.add_argument("--held-out", required=True)
    b.add_argument("--shards", type=int, nargs="+", default=[1, 2])
    b.add_argument("--context", type=int, default=256)
    b.add_argument("--run", default="build/voltron-run")
    b.set_defaults(do=prune)
    o = p.parse_args()
    o.do(o)


main()
