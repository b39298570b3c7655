// A conversation with `@openai/agents-realtime`: a question, an interruption, a tool.
// Arguments: HOST:PORT behind TLS, and four recordings: a question, a long request, thanks,
// and a question that takes a tool.
// The microphone runs in real time. Writes a line for each event and for what the agent notices.
import { readFileSync } from "node:fs";
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";
import { parseRealtimeEvent } from "./node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs";

const BLOCK_MS = 40;
const BLOCK_BYTES = 24 * 2 * BLOCK_MS;
const [address, question, request, farewell, errand] = process.argv.slice(2);

const tell = (about) => console.log(JSON.stringify(about));
const getWeather = tool({
  name: "get_weather",
  description: "Tell the weather in a city",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `In ${city} it is sunny and 20 degrees.`,
});
const agent = new RealtimeAgent({ name: "Guide", instructions: "Be brief.", tools: [getWeather] });
const transport = new OpenAIRealtimeWebSocket();
const session = new RealtimeSession(agent, { transport, model: "any" });

session.on("error", (error) => tell({ noticed: "error", error: String(error.error?.message ?? JSON.stringify(error)) }));
session.on("audio_interrupted", () => tell({ noticed: "audio_interrupted" }));
session.on("agent_tool_end", (_context, _agent, called, result) =>
  tell({ noticed: "agent_tool_end", tool: called.name, result }),
);
transport.on("*", (event) => {
  const isUnderstood = !parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric;
  tell({ event, isUnderstood });
});

// Instead of waiting for ever.
setTimeout(() => process.exit(3), 140_000).unref();

let words = Buffer.alloc(0);
const say = (path) => (words = Buffer.concat([words, readFileSync(path)]));
const next = (emitter, kind) => new Promise((resolve) => emitter.once(kind, resolve));

await session.connect({ apiKey: "none", url: `wss://${address}/v1/realtime?model=any` });
const microphone = setInterval(() => {
  const block = Buffer.alloc(BLOCK_BYTES);
  words.copy(block);
  words = words.subarray(BLOCK_BYTES);
  session.sendAudio(block.buffer.slice(block.byteOffset, block.byteOffset + BLOCK_BYTES));
}, BLOCK_MS);

say(question);
await next(transport, "turn_done");
say(request);
await next(transport, "audio");
say(farewell);
await next(session, "audio_interrupted");
await next(transport, "turn_done");
await next(transport, "turn_done");
say(errand);
await next(session, "agent_tool_end");
await next(transport, "turn_done");
tell({ noticed: "history", history: session.history });
clearInterval(microphone);
session.close();
