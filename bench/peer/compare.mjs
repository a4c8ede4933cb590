// Measures voltron-bench run and llama.cpp in turns on the same files; prints medians and ratios.
// compare.sh installs what is needed and calls this; it says what the options are.
import {execFileSync} from "node:child_process";
import {appendFileSync, existsSync, writeFileSync} from "node:fs";
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
        gb_s: result.gb_s, bandwidth: report.bandwidth_gb_s, hash: report.logits_hash,
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

// What a side measured, or {refused: why it does not run this file}.
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

// Both sides in turns; a side that refuses the file is not asked again.
function measureInTurns(model) {
    const sides = [{measure: voltron, runs: []}, {measure: peer, runs: []}];
    for (let i = 0; i < options.r; i++) {
        for (const side of sides) {
            if (side.refused) continue;
            const result = attempt(side.measure, model);
            if (result.refused) side.refused = result.refused;
            else side.runs.push(result);
        }
        const shown = sides.map(({runs, refused}) => refused ? "refused"
            : `${fixed(runs.at(-1).prefill)}/${fixed(runs.at(-1).decode)}`);
        process.stderr.write(`${basename(model)} ${i + 1}/${options.r}: voltron ${shown[0]}, ` +
                             `peer ${shown[1]} tok/s\n`);
    }
    return sides;
}

function describe(name, side, more) {
    if (side.refused) return `  ${name} refuses this file: ${side.refused}`;
    return `  ${name}  prefill ${spread(of(side.runs, "prefill"))}  decode ` +
        `${spread(of(side.runs, "decode"))} tok/s   ${more}`;
}

for (const model of models) {
    const [ours, theirs] = measureInTurns(model);
    const ratio = (key) => medianOf(ours.runs, key) / medianOf(theirs.runs, key);
    const rate = medianOf(ours.runs, "gb_s"), bandwidth = medianOf(ours.runs, "bandwidth");
    const about = theirs.runs[0]?.about ?? "refused";
    console.log(`${basename(model)}  (${options.t} threads, prefill ${options.p}, decode ` +
                `${options.n}, KV ${options.kv}, ${options.r} runs each in turns)`);
    console.log(describe("voltron", ours, `${fixed(rate)} of ${fixed(bandwidth)} GB/s = ` +
                                          `${fixed(100 * rate / bandwidth)} %`));
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
            fixed(100 * rate / bandwidth),
        ].join(",") + "\n");
}
