// Asks llama.cpp: node ask.mjs MODEL.gguf QUESTION TOKENS → JSON. The question goes through the template in the file.
import { Template } from "@huggingface/jinja";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";

const [file, question, most] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", maxThreads: 1, logLevel: LlamaLogLevel.error });
const model = await llama.loadModel({ modelPath: file });
const about = model.fileInfo.metadata.tokenizer;
const prompt = new Template(about.chat_template).render({
  messages: [{ role: "user", content: question }],
  bos_token: model.tokens.bosString,
  eos_token: model.tokens.eosString,
  add_generation_prompt: true,
});
const context = await model.createContext({ contextSize: 512, threads: 1 });
const asked = model.tokenize(prompt, true);
const answer = [];
for await (const token of context.getSequence().evaluate(asked, { temperature: 0 })) {
  if (model.isEogToken(token) || answer.push(token) >= Number(most)) break;
}
const { eos_token_id: end, eot_token_id: end_of_turn } = about.ggml;
console.log(JSON.stringify({ prompt, asked, answer, text: model.detokenize(answer), end, end_of_turn }));
process.exit(0); // the model's threads would keep it
