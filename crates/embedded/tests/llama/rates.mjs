// Prints how fast llama.cpp reads and writes, in tokens per second of one processor, for comparison with
// `cargo run --release -p recurgent-embedded --example bench`.
// In a folder where node-llama-cpp 3 is installed: taskset -c 0 node rates.mjs MODEL.gguf
import path from "node:path";
import { pathToFileURL } from "node:url";

const ANSWER_TOKENS = 64;
const words = "The quick brown fox jumps over the lazy dog, and then it writes a short program. ";
const entry = path.resolve("node_modules/node-llama-cpp/dist/index.js");
const { getLlama } = await import(pathToFileURL(entry));
const [, , modelPath] = process.argv;
const llama = await getLlama({ gpu: false, build: "never", maxThreads: 1, logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: 1024, threads: 1 });
const sequence = context.getSequence();
const prompt = `<|im_start|>user\n${words.repeat(20)} Count from 1 to 1000 in words.<|im_end|>\n<|im_start|>assistant\n`;
const tokens = model.tokenize(prompt, true);
const seconds = (usage) => (usage.user + usage.system) / 1e6;

await sequence.evaluateWithoutGeneratingNewTokens(model.tokenize("warm up the weights", false));
await sequence.clearHistory();
let before = process.cpuUsage();
await sequence.evaluateWithoutGeneratingNewTokens(tokens.slice(0, -1));
const reading = seconds(process.cpuUsage(before));
before = process.cpuUsage();
let written = 0;
for await (const _ of sequence.evaluate([tokens.at(-1)], { temperature: 0 })) if (++written === ANSWER_TOKENS) break;
const writing = seconds(process.cpuUsage(before));
console.log(`prompt: ${((tokens.length - 1) / reading).toFixed(2)} tokens per processor second (${tokens.length - 1} in ${reading.toFixed(2)} s)`);
console.log(`answer: ${(written / writing).toFixed(2)} tokens per processor second (${written} in ${writing.toFixed(2)} s)`);
process.exit(0);
