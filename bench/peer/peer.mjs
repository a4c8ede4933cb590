// Measures llama.cpp's prebuilt library on one model, prints one line of JSON. Run by compare.mjs.
//   node peer.mjs FOLDER_OF_NODE_MODULES MODEL PREFILL_TOKENS DECODE_TOKENS THREADS KV(f16|q8)
import {join} from "node:path";
import {pathToFileURL} from "node:url";

const [folder, modelPath, ...numbers] = process.argv.slice(2);
const [prefillTokens, decodeTokens, threads] = numbers.map(Number);
const kvType = numbers[3] === "q8" ? "Q8_0" : "F16";
const entry = join(folder, "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(entry));

const log = [];
const llama = await getLlama({
    gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.debug,
    logger: (level, message) => log.push(message),
});
const seconds = async (work) => {
    const start = performance.now();
    await work();
    return (performance.now() - start) / 1000;
};

try {
    const model = await llama.loadModel({modelPath, useMmap: true});
    const context = await model.createContext({
        contextSize: prefillTokens + decodeTokens + 16, batchSize: 512, threads,
        flashAttention: true, experimentalKvCacheKeyType: kvType,
        experimentalKvCacheValueType: kvType,
    });
    const sequence = context.getSequence();
    const ids = Array.from({length: prefillTokens}, (_, i) => 300 + i * 7919 % 1000);
    const prefill = async () => {
        await sequence.clearHistory();
        await sequence.evaluateWithoutGeneratingNewTokens(ids);
    };
    await prefill(); // makes the buffers
    const prefillSeconds = await seconds(prefill);
    // The first token that comes out also computes the one that goes in.
    let count = 0, start = 0;
    for await (const token of sequence.evaluate([ids[0]], {temperature: 0})) {
        if (count === 0) start = performance.now();
        if (count++ === decodeTokens || token === undefined) break;
    }
    const decodeSeconds = (performance.now() - start) / 1000;
    console.log(JSON.stringify({
        prefill_tok_s: prefillTokens / prefillSeconds,
        decode_tok_s: (count - 1) / decodeSeconds,
        decoded: count - 1,
        release: llama.llamaCppRelease.release,
        backend: /libggml-cpu-(\w+)\.\w+/.exec(log.join("\n"))?.[1] ?? "?",
        features: llama.systemInfo.match(/\w+ = 1/g)?.map((f) => f.split(" ")[0]).join(" "),
        repacked: log.some((line) => /REPACK model buffer/.test(line)),
    }));
    process.exit(0);
} catch (error) {
    const reason = log.filter((line) => /error/i.test(line)).at(0);
    console.log(JSON.stringify({refused: (reason ?? String(error.message)).trim()}));
    process.exit(1);
}
