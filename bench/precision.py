#!/usr/bin/env python3
"""In which order a model's units should be lowered F16 -> I8 -> I4, by held-out perplexity.

    bench/precision.py --held-out FILE --calibration FILE [--importance FILE] [-m MODEL.vts]

For memory targets between all-I4 and all-F16 and for every order, the units are lowered until the
weights fit, as vti_plan_allocate does, and `voltron-run ppl --plan` measures the result. The text is
cut into parts at ends of documents, so that differences have a standard error. What was measured is
kept in --cache. Prints Markdown.
"""
import argparse
import hashlib
import json
import math
import os
import random
import statistics
import subprocess
import tempfile

NAMES = ("F16", "I8", "I4")
SEPARATOR = "<|endoftext|>\n"
FILLED = ("pruning importance (the paper's)", "pruning importance per byte", "sensitivity to I4",
          "sensitivity to I4 per byte")


def run_json(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def plan_text(composition):
    """A plan of one device; EMBED comes first."""
    place = {"from": 0, "home": 0, "exchange": False, "wire": "F32", "shares": [1]}
    units = [{"unit": u, "precision": NAMES[p], "pruned": [], "prefill": place, "decode": place}
             for u, p in enumerate((0,) + tuple(composition))]
    return json.dumps({"format": "voltron-plan", "version": 1, "epoch": 0, "devices": 1,
                       "pruned_shards": 0, "units": units})


class Bench:
    def __init__(self, o):
        self.o = o
        self.folder = tempfile.mkdtemp(prefix="voltron-precision-")
        self.cache = {}
        if o.cache and os.path.exists(o.cache):
            with open(o.cache) as file:
                self.cache = json.load(file)
        model = o.model or os.path.join(self.folder, "default.vts")
        if not o.model:
            subprocess.run([o.run, "pack", "-o", model], check=True, stdout=subprocess.DEVNULL)
        self.model = model
        units = run_json(o.run, "inspect", model, "--json")["units"][:-1]
        self.names = [u["name"] for u in units]
        self.bytes = [[p["bytes"] for p in u["precisions"]] for u in units]
        self.shared = sum(u["shared"]["bytes"] for u in units)

    def parts(self, path, count):
        """The text's documents, dealt out to `count` files of about the same number."""
        with open(path) as file:
            documents = file.read().split(SEPARATOR)
        out = []
        for i in range(count):
            part = os.path.join(self.folder, f"{os.path.basename(path)}.{i}")
            with open(part, "w") as file:
                file.write(SEPARATOR.join(documents[i::count]))
            out.append(part)
        return out

    def nll(self, composition, text):
        """Mean negative log likelihood per token, and the number of tokens."""
        with open(text, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()[:16]
        key = f"{digest} {''.join(map(str, composition))}"
        if key not in self.cache:
            plan = os.path.join(self.folder, "plan.json")
            with open(plan, "w") as file:
                file.write(plan_text(composition))
            found = run_json(self.o.run, "ppl", "-m", self.model, "--text", text, "--plan", plan,
                             "--context", str(self.o.context), "-T", str(self.o.threads), "--json")
            self.cache[key] = [found["nll"], found["tokens"]]
            if self.o.cache:
                with open(self.o.cache + ".part", "w") as file:
                    json.dump(self.cache, file)
                os.replace(self.o.cache + ".part", self.o.cache)
        return self.cache[key]

    def size(self, composition):
        return self.shared + sum(b[p] for b, p in zip(self.bytes, composition))

    def more(self, composition, parts):
        """Nats per token more than with all-F16, in every part."""
        plain = (0,) * len(self.bytes)
        return [self.nll(composition, p)[0] - self.nll(plain, p)[0] for p in parts]

    def tokens(self, parts):
        return [self.nll((0,) * len(self.bytes), p)[1] for p in parts]


# --- schedules: lists of (unit, precision) ---------------------------------------------------------


def levels(order):
    """All to I8, then all to I4: what vti_plan_allocate does."""
    return [(u, 1) for u in order] + [(u, 2) for u in order]


def deep(order):
    """Each unit to I4 before the next is touched."""
    return [step for u in order for step in ((u, 1), (u, 2))]


def marginal(bench, cost):
    """Always the step that costs least per byte it saves; cost[u][p]: what unit u costs at p."""
    now, steps = [0] * len(bench.bytes), []
    while any(p < 2 for p in now):
        def price(u):
            p = now[u]
            return (cost[u][p + 1] - cost[u][p]) / (bench.bytes[u][p] - bench.bytes[u][p + 1])
        u = min((u for u in range(len(now)) if now[u] < 2), key=price)
        now[u] += 1
        steps.append((u, now[u]))
    return steps


def lower(bench, steps, target):
    """The first composition that fits."""
    now = [0] * len(bench.bytes)
    for unit, precision in steps:
        if bench.size(now) <= target:
            break
        now[unit] = precision
    return tuple(now)


def fill(bench, steps, target):
    """The same, then units are raised again where that still fits, those lowered last first."""
    now = list(lower(bench, steps, target))
    for unit, precision in reversed(steps):
        raised = now[:unit] + [precision - 1] + now[unit + 1:]
        if now[unit] == precision and bench.size(raised) <= target:
            now = raised
    return tuple(now)


def best_sum(bench, cost, target):
    """The composition that fits whose costs, if they could be added, are least."""
    front = [(bench.shared, 0.0, ())]
    for u, sizes in enumerate(bench.bytes):
        grown = sorted((size + sizes[p], sum_ + cost[u][p], chosen + (p,))
                       for size, sum_, chosen in front for p in range(3))
        front, least = [], math.inf
        for entry in grown:
            if entry[0] <= target and entry[1] < least:
                front.append(entry)
                least = entry[1]
    return front[-1][2]


# --- orders ------------------------------------------------------------------------------------------


def sensitivity(bench, parts):
    """[unit][precision]: nats per token more on half of the calibration text if that unit alone is
    lowered."""
    def alone(unit, precision):
        composition = [0] * len(bench.bytes)
        composition[unit] = precision
        return statistics.fmean(bench.more(tuple(composition), parts)) if precision else 0.0
    return [[alone(u, p) for p in range(3)] for u in range(len(bench.bytes))]


def read_importance(bench, path):
    """The units' scores in a file of `voltron-run importance`."""
    with open(path) as file:
        found = {u["unit"]: u["score"] for u in json.load(file)["units"]}
    return [found[name] for name in bench.names]


def schedules(bench, cost, importance, randoms):
    """{name: list of schedules}; of several the median counts."""
    units = range(len(bench.bytes))
    saved = [b[0] - b[1] for b in bench.bytes]
    out = {}

    def add(name, keys):
        out[name] = [levels(sorted(units, key=lambda u: keys[u]))]
    if importance:
        add("pruning importance (the paper's)", importance)
        add("pruning importance per byte", [i / s for i, s in zip(importance, saved)])
        add("pruning importance, reversed", [-i for i in importance])
    add("sensitivity to I4", [c[2] for c in cost])
    add("sensitivity to I4 per byte", [c[2] / s for c, s in zip(cost, saved)])
    add("sensitivity to I4 per byte, reversed", [-c[2] / s for c, s in zip(cost, saved)])
    add("largest first", [-s for s in saved])
    add("smallest first", saved)
    # As planned without a measurement: from the middle outwards, FFN before ATTN, HEAD last.
    middle = (len(units) + 1) // 2
    guess = [4 * (len(units) + 1) if u + 1 == len(units) else
             2 * abs(u // 2 * 2 - middle) + 1 - u % 2 for u in units]
    add("guess: middle first", guess)
    add("guess: middle first, per byte", [g / s for g, s in zip(guess, saved)])
    add("first layer first", list(units))
    add("last layer first", [-u for u in units])
    dice = random.Random(1)
    out[f"random (median of {randoms})"] = [levels(dice.sample(list(units), len(units)))
                                            for _ in range(randoms)]
    by_sensitivity = sorted(units, key=lambda u: cost[u][2] / saved[u])
    out["sensitivity per byte, each unit to I4 at once"] = [deep(by_sensitivity)]
    out["sensitivity, cheapest step next"] = [marginal(bench, cost)]
    if importance:
        by_importance = sorted(units, key=lambda u: importance[u] / saved[u])
        out["importance per byte, each unit to I4 at once"] = [deep(by_importance)]
        # What all units at I8 cost, of what all at I4 do.
        part = sum(c[1] for c in cost) / sum(c[2] for c in cost)
        out["importance, cheapest step next"] = [
            marginal(bench, [[0, i * max(part, 0), i] for i in importance])]
    return out


# --- report --------------------------------------------------------------------------------------------


def targets_of(bench, count):
    """`count` between all-I4 and all-I8, as many between all-I8 and all-F16."""
    at = [bench.size((p,) * len(bench.bytes)) for p in range(3)]
    low = [at[2] + (at[1] - at[2]) * (i + 0.5) / count for i in range(count)]
    return low + [at[1] + (at[0] - at[1]) * (i + 0.5) / count for i in range(count)]


def weighted(values, weights):
    return sum(v * w for v, w in zip(values, weights)) / sum(weights)


def standard_error(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def row(name, cells):
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def report(bench, table, targets, parts, first):
    """Table of thousandths of nats per token more than all-F16; behind it the mean over the lower half
    of the targets, and how much more that is than the first row's, with its standard error."""
    weights = bench.tokens(parts)
    half = len(targets) // 2
    full = bench.size((0,) * len(bench.bytes))
    row("order", [f"{100 * t / full:.0f} %" for t in targets] + ["mean below I8", "against the first"])
    print("|---|" + "---:|" * (len(targets) + 2))
    base = None
    for name, compositions in table.items():
        # [target][part]: of several orders the one that is the median there
        chosen = []
        for t in range(len(targets)):
            found = sorted((weighted(bench.more(c[t], parts), weights), bench.more(c[t], parts))
                           for c in compositions)
            chosen.append(found[len(found) // 2][1])
        cells = [1000 * weighted(c, weights) for c in chosen]
        mean = [statistics.fmean(chosen[t][i] for t in range(half)) for i in range(len(parts))]
        base = base or mean
        apart = [1000 * (a - b) for a, b in zip(mean, base)]
        versus = "" if mean is base else (f"{weighted(apart, weights):+.2f} "
                                          f"± {standard_error(apart):.2f}")
        row(name, [f"{c:.2f}" for c in cells] + [f"**{statistics.fmean(cells[:half]):.2f}**", versus])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", default="build/voltron-run")
    parser.add_argument("-m", "--model", help="shard store (default: the default model's)")
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--calibration", required=True)
    parser.add_argument("--importance", help="what voltron-run importance wrote")
    parser.add_argument("--targets", type=int, default=4, help="below all-I8, and above it")
    parser.add_argument("--parts", type=int, default=4, help="of the held-out text")
    parser.add_argument("--random", type=int, default=5, help="random orders")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("-T", "--threads", type=int, default=2)
    parser.add_argument("--cache", help="measurements, kept from run to run")
    o = parser.parse_args()
    bench = Bench(o)
    parts = bench.parts(o.held_out, o.parts)
    cost = sensitivity(bench, bench.parts(o.calibration, 2)[:1])
    importance = read_importance(bench, o.importance) if o.importance else None
    targets = targets_of(bench, o.targets)
    orders = schedules(bench, cost, importance, o.random)
    table = {name: [[lower(bench, s, t) for t in targets] for s in several]
             for name, several in orders.items()}
    for name in list(table):
        if name in FILLED:
            steps = orders[name][0]
            table[f"{name}; what is left is filled"] = [[fill(bench, steps, t) for t in targets]]
    table["least sum of sensitivities"] = [[best_sum(bench, cost, t) for t in targets]]
    same = [next((p for p in (0, 1, 2) if bench.size((p,) * len(cost)) <= t), 2) for t in targets]
    table["uniform"] = [[(p,) * len(cost) for p in same]]
    row("unit", ["KiB at F16", "I8", "I4", "I8 alone", "I4 alone", "pruned"])
    print("|---|" + "---:|" * 6)
    for u, name in enumerate(bench.names):
        row(name, [f"{b / 1024:.0f}" for b in bench.bytes[u]] +
            [f"{1000 * c:.3f}" for c in cost[u][1:]] +
            [f"{1000 * importance[u]:.1f}" if importance else ""])
    print()
    whole = bench.tokens(parts)
    for p in range(3):
        composition = (p,) * len(cost)
        mean = weighted([bench.nll(composition, t)[0] for t in parts], whole)
        print(f"all-{NAMES[p]}: {bench.size(composition) / 2**20:.2f} MiB, held-out perplexity "
              f"{math.exp(mean):.4f} over {sum(whole)} tokens")
    print()
    report(bench, table, targets, parts, None)


main()
