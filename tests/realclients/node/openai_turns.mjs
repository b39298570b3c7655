// Two turns with `openai`: a spoken question, then a spoken one whose answer is cancelled.
// Arguments: HOST:PORT behind TLS, and a recording for each turn. Writes each event on a line.
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [address, ...recordings] = process.argv.slice(2);
const questions = recordings.map((path) => readFileSync(path));
const client = new OpenAI({ baseURL: `https://${address}/v1`, apiKey: "none" });
const line = new OpenAIRealtimeWS({ model: "any" }, client);

function ask() {
  const sound = questions.shift();
  for (let at = 0; at < sound.length; at += 9600) {
    const audio = sound.subarray(at, at + 9600).toString("base64");
    line.send({ type: "input_audio_buffer.append", audio });
  }
}

let isCancelled = false;
line.on("event", (event) => console.log(JSON.stringify(event)));
line.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
line.once("session.created", ask);
line.on("response.output_audio.delta", () => {
  if (questions.length === 0 && !isCancelled) {
    isCancelled = true;
    line.send({ type: "response.cancel" });
  }
});
line.on("response.done", () => (questions.length ? ask() : line.close()));
