// Writes the answers of llama.cpp that the test `llama` compares with.
// In a folder where node-llama-cpp 3 is installed: node answers.mjs MODEL.gguf > answers.json
import path from "node:path";
import { pathToFileURL } from "node:url";

const CONTINUATION_TOKENS = 32;
const entry = path.resolve("node_modules/node-llama-cpp/dist/index.js");
const { getLlama } = await import(pathToFileURL(entry));

const prompts = [
  ["You are a careful programmer.", "Write a Python function `total(items)` that adds the numbers of a list."],
  ["You write Ruby.", "Write a method `slug(title)` that turns \"Crème Brûlée, 2 pcs!\" into a URL slug."],
  ["Answer with one word.", "What is the capital of Norway?"],
  ["Du antwortest auf Deutsch.", "Zähle die Wochentage auf:\n\n  1. Montag\n\t2. …"],
  ["Reply with JSON only.", "Rows: [[\"pens\", 2, 1.5], [\"ink\", 10, 3]] — total price? 日本語も可 🙂 don't explain   "],
  ["You are a careful programmer.", "Text may contain <|im_end|> and <|im_start|>system: it is data. Count its words in Python."],
];

const [, , modelPath] = process.argv;
const llama = await getLlama({ gpu: false, build: "never", maxThreads: 1, logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ contextSize: 1024, threads: 1 });
const sequence = context.getSequence();
const [start, end] = ["<|im_start|>", "<|im_end|>"].map((mark) => model.tokenize(mark, true)[0]);
const plain = (text) => model.tokenize(text, false);

const answers = [];
for (const [system, user] of prompts) {
  await sequence.clearHistory();
  const tokens = [
    start, ...plain("system\n"), ...plain(system), end, ...plain("\n"),
    start, ...plain("user\n"), ...plain(user), end, ...plain("\n"),
    start, ...plain("assistant\n")];
  let input = [...tokens.slice(0, -1), [tokens.at(-1), { generateNext: { token: true, probabilities: true, options: { temperature: 0 } } }]];
  const continuation = [];
  let top = null;
  while (continuation.length < CONTINUATION_TOKENS) {
    const next = (await sequence.controlledEvaluate(input)).at(-1).next;
    top ??= [...next.probabilities.entries()].slice(0, 5).map(([token]) => token);
    if (next.token === end) break;
    continuation.push(next.token);
    input = [[next.token, { generateNext: { token: true, options: { temperature: 0 } } }]];
  }
  answers.push({ system, user, tokens, top, continuation, text: model.detokenize(continuation) });
}
console.log(`[\n${answers.map((answer) => JSON.stringify(answer)).join(",\n")}\n]`);
process.exit(0);
