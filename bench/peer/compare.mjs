// Measures voltron-bench run and llama.cpp in turns on the same files; prints medians and ratios.
// compare.sh installs what is needed and calls this; it says what the options are.
import {execFileSync} from "node:child_process";
import {appendFileSync, existsSync, readFileSync, writeFileSync} from "node:fs";
import {basename, dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const options = {p: 256, n: 64, t: 2, r: 5, kv: "f16"};
const models = [];
for (let i = 2; i < process.argv.length; i++) {
    const argument = process.argv[i];
    if (argument.startsWith("-")) options[argument.replace(/^-+/, "")] = process.argv[++i];
    else models.push(argument);
}

const run = (program, args) =>
    execFileSync(program, args, {encoding: "utf8", stdio: ["ignore", "pipe", "pipe"]});

function voltron(model) {
    const args = ["run", "-m", model, "-p", options.p, "-n", options.n, "-t", options.t, "-r", 1,
                  "--kv", options.kv, "--json"];
    const report = JSON.parse(run(options.voltron, args.map(String)));
    const [result] = report.results;
    return {
        prefill: result.prefill_tok_s.median, decode: result.decode_tok_s.median,
        gb_s: result.gb_s, bandwidth: result.bandwidth_gb_s, percent: result.percent,
        hash: report.logits_hash,
    };
}

function prebuilt(model) {
    const args = [join(here, "peer.mjs"), options.folder, model, options.p, options.n, options.t,
                  options.kv];
    const report = JSON.parse(run(process.execPath, args.map(String)));
    const repacked = report.repacked ? ", weights repacked" : "";
    const about = `llama.cpp ${report.release}, ${report.backend}${repacked}`;
    return {prefill: report.prefill_tok_s, decode: report.decode_tok_s, about};
}

// A llama-bench of one's own: decoding begins with an empty context there.
function llamaBench(model) {
    const kv = options.kv === "q8" ? "q8_0" : options.kv;
    const args = ["-m", model, "-p", options.p, "-n", options.n, "-t", options.t, "-r", 1, "-fa", 1,
                  "-ctk", kv, "-ctv", kv, "-o", "json"];
    const rows = JSON.parse(run(options["llama-bench"], args.map(String)));
    const rate = (kind) => rows.find((row) => row[kind] > 0).avg_ts;
    return {prefill: rate("n_prompt"), decode: rate("n_gen"),
            about: `${basename(options["llama-bench"])} ${rows[0].build_commit}`};
}

const peer = options["llama-bench"] ? llamaBench : prebuilt;

// What a side measured, or {refused: why it could not}.
function attempt(measure, model) {
    try {
        return measure(model);
    } catch (error) {
        let refused = error.stderr?.trim().split("\n").at(-1) || error.message;
        try {
            refused = JSON.parse(error.stdout).refused;
        } catch { /* no report: the message has to do */ }
        return {refused};
    }
}

function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

const fixed = (value, digits = 1) => (Number.isFinite(value) ? value.toFixed(digits) : "");
const spread = (values) =>
    `${fixed(median(values))} (${fixed(Math.min(...values))} … ${fixed(Math.max(...values))})`;

const header = [
    "model", "threads", "kv", "prefill_tokens", "decode_tokens", "runs", "voltron_prefill",
    "voltron_decode", "peer", "peer_prefill", "peer_decode", "ratio_prefill", "ratio_decode",
    "voltron_gb_s", "bandwidth_gb_s", "percent",
].join(",");
if (options.csv && !existsSync(options.csv)) writeFileSync(options.csv, header + "\n");

const of = (runs, key) => runs.map((entry) => entry[key]);
const medianOf = (runs, key) => (runs.length ? median(of(runs, key)) : NaN);

// --- a machine that does other things ------------------------------------------------------------

// Seconds of processor time since boot, and those of our children that have ended. Linux.
function processorSeconds() {
    const numbers = (text) => text.split(/ +/).map(Number);
    const total = numbers(readFileSync("/proc/stat", "utf8").split("\n", 1)[0]).slice(1);
    const own = numbers(readFileSync("/proc/self/stat", "utf8").replace(/^.*\) /, ""));
    const [user, nice, system, , , irq, softirq, steal] = total;
    return {all: (user + nice + system + irq + softirq + steal) / 100,
            ours: (own[11] + own[12] + own[13] + own[14]) / 100};
}

// Runs `work` and says how many cores others were using meanwhile.
function watched(work) {
    const before = processorSeconds(), start = performance.now();
    const result = work();
    const after = processorSeconds(), seconds = (performance.now() - start) / 1000;
    return {result, others: (after.all - before.all - (after.ours - before.ours)) / seconds};
}

const sleep = (seconds) =>
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);

// With --quiet S: measures when nothing else runs, again if something came in between, and gives
// up after S seconds.
function undisturbed(work) {
    if (!options.quiet) return work();
    const end = performance.now() + options.quiet * 1000;
    while (performance.now() < end) {
        if (watched(() => sleep(2)).others > 0.1) continue;
        const {result, others} = watched(work);
        if (others < 0.1) return result;
        process.stderr.write(`  disturbed: others used ${others.toFixed(2)} cores; again\n`);
    }
    return {refused: `the machine was not quiet for ${options.quiet} s`};
}

// --- comparing ------------------------------------------------------------------------------------

// Both sides in turns; a side that could not measure the file is not asked again.
function measureInTurns(model) {
    const sides = [{measure: voltron, runs: []}, {measure: peer, runs: []}];
    for (let i = 0; i < options.r; i++) {
        for (const side of sides) {
            if (side.refused) continue;
            const result = undisturbed(() => attempt(side.measure, model));
            if (result.refused) side.refused = result.refused;
            else side.runs.push(result);
        }
        const shown = sides.map(({runs, refused}) => refused ? "not measured"
            : `${fixed(runs.at(-1).prefill)}/${fixed(runs.at(-1).decode)}`);
        process.stderr.write(`${basename(model)} ${i + 1}/${options.r}: voltron ${shown[0]}, ` +
                             `peer ${shown[1]} tok/s\n`);
    }
    return sides;
}

function describe(name, side, more) {
    if (side.refused) return `  ${name}  not measured: ${side.refused}`;
    return `  ${name}  prefill ${spread(of(side.runs, "prefill"))}  decode ` +
        `${spread(of(side.runs, "decode"))} tok/s   ${more}`;
}

for (const model of models) {
    const [ours, theirs] = measureInTurns(model);
    const ratio = (key) => medianOf(ours.runs, key) / medianOf(theirs.runs, key);
    const [rate, bandwidth, percent] =
        ["gb_s", "bandwidth", "percent"].map((key) => medianOf(ours.runs, key));
    const about = theirs.runs[0]?.about ?? "not measured";
    console.log(`${basename(model)}  (${options.t} threads, prefill ${options.p}, decode ` +
                `${options.n}, KV ${options.kv}, ${options.r} runs each in turns)`);
    console.log(describe("voltron", ours, `${fixed(rate)} of ${fixed(bandwidth)} GB/s = ` +
                                          `${fixed(percent)} %`));
    console.log(describe("peer   ", theirs, about));
    console.log(`  ratio    prefill ${fixed(ratio("prefill"), 2)}  decode ` +
                `${fixed(ratio("decode"), 2)}`);
    if (new Set(of(ours.runs, "hash")).size > 1)
        console.log("  voltron's logits differ between runs!");
    if (options.csv)
        appendFileSync(options.csv, [
            basename(model), options.t, options.kv, options.p, options.n, options.r,
            fixed(medianOf(ours.runs, "prefill")), fixed(medianOf(ours.runs, "decode"), 2),
            `"${about}"`, fixed(medianOf(theirs.runs, "prefill")),
            fixed(medianOf(theirs.runs, "decode"), 2), fixed(ratio("prefill"), 3),
            fixed(ratio("decode"), 3), fixed(rate, 2), fixed(bandwidth, 2),
            fixed(percent),
        ].join(",") + "\n");
}
