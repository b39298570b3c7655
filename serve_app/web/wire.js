/**
 * The service's WebSocket: one JSON object per text frame, discriminated by `type`.
 *
 * Knows the wire's names and nothing of the page. The browser answers pings by itself.
 */

import { Problem, problemOf } from "./problem.js";
import { toBase64, VOICE_RATE_HZ } from "./pcm.js";

const HEARTBEAT_MS = 20_000;
const OPEN_TIMEOUT_MS = 20_000;
const CLOSE_TIMEOUT_MS = 3_000;
/** More than this unsent means that the network is slower than speech. */
const MAX_UNSENT_BYTES = 1_048_576;

/** An error explains a close that follows within this time. */
const EXPLAINS_MS = 2_000;

const TERMINALS = new Set(["session.closed", "session.expired", "session.replaced"]);

export class Wire {
  /**
   * @param {{key: string, onEvent: (event: object) => void, onEnd: (problem: Problem) => void}} options
   * `onEnd` is called at most once: when a session that had opened ends without being asked to.
   */
  constructor({ key, onEvent, onEnd }) {
    this.key = key;
    this.onEvent = onEvent;
    this.onEnd = onEnd;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isClosing = false;
    /** What the service said last about an end, to explain the close that follows. */
    this.terminal = null;
    this.error = null;
    /** Resolves when the session is over, however it ended. */
    this.over = new Promise((resolve) => {
      this.markOver = resolve;
    });
  }

  /**
   * Connect, send the settings, and wait for the session.
   *
   * @param {{rateHz: number}} settings  rate of the audio that `append` will send
   * @returns {Promise<void>} rejects with a Problem
   */
  async open({ rateHz }) {
    const socket = this.connect();
    this.socket = socket;
    let timer;
    try {
      await new Promise((resolve, reject) => {
        timer = setTimeout(() => reject(new Problem("silent")), OPEN_TIMEOUT_MS);
        socket.onopen = () => this.send(settingsOf(rateHz));
        socket.onclose = (close) => {
          this.markOver();
          reject(this.problemOfClose(close));
        };
        socket.onmessage = ({ data }) => {
          const { type, error } = this.receive(data);
          if (type === "session.created") resolve();
          if (type === "error") reject(problemOf(error ?? {}));
        };
      });
    } catch (problem) {
      this.drop();
      // A browser does not tell why a handshake failed; an ordinary request does.
      throw problem.kind === "dropped" ? await whyUnreachable(this.key) : problem;
    } finally {
      clearTimeout(timer);
    }
    socket.onmessage = ({ data }) => this.receive(data);
    socket.onclose = (close) => this.finish(close);
    this.heartbeat = setInterval(() => this.send({ type: "session.heartbeat" }), HEARTBEAT_MS);
  }

  /** @param {ArrayBuffer} pcm  @returns {boolean} false when the network can not keep up */
  append(pcm) {
    if (!this.socket || this.socket.bufferedAmount > MAX_UNSENT_BYTES) return false;
    this.send({ type: "input_audio_buffer.append", audio: toBase64(pcm) });
    return true;
  }

  /** Say how much of a response has been heard. */
  ack(responseId, itemId, playedMs) {
    this.send({
      type: "playback.ack",
      response_id: responseId,
      item_id: itemId,
      played_ms: playedMs,
      committed_ms: playedMs,
    });
  }

  /** Add a typed message to the conversation and ask for an answer. */
  say(text) {
    const content = [{ type: "input_text", text }];
    this.send({
      type: "conversation.item.create",
      item: { type: "message", role: "user", content },
    });
    this.send({ type: "response.create" });
  }

  /** Stop an answer that is being made. */
  cancel(responseId) {
    this.send({ type: "response.cancel", response_id: responseId });
  }

  /** Give up the rest of an answer that has been made but not heard. */
  clear(responseId) {
    this.send({ type: "output_audio_buffer.clear", response_id: responseId });
  }

  /** Close the session politely; resolves when it is closed, or after 3 s. */
  async close() {
    this.isClosing = true;
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.send({ type: "session.close" });
      await Promise.race([this.over, new Promise((done) => setTimeout(done, CLOSE_TIMEOUT_MS))]);
    }
    this.drop();
  }

  connect() {
    const url = new URL("v1/realtime?duplex=1&autostart=0", document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    if (!this.key) return new WebSocket(url);
    try {
      return new WebSocket(url, ["realtime", `openai-insecure-api-key.${this.key}`]);
    } catch {
      throw new Problem("key", "This key has characters that a browser can not send.");
    }
  }

  send(event) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  receive(text) {
    const event = JSON.parse(text);
    if (event.type === "error") this.error = { ...event.error, at: performance.now() };
    if (TERMINALS.has(event.type)) {
      this.terminal = event;
      this.markOver();
    }
    this.onEvent(event);
    return event;
  }

  finish(close) {
    clearInterval(this.heartbeat);
    this.socket = null;
    this.markOver();
    if (!this.isClosing) this.onEnd(this.problemOfClose(close));
  }

  drop() {
    clearInterval(this.heartbeat);
    const { socket } = this;
    this.socket = null;
    if (!socket) return;
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  }

  problemOfClose({ code, reason }) {
    if (this.terminal) return new Problem("ended", this.terminal.reason ?? reason);
    if (code === 1006) return new Problem("dropped");
    if (code === 1012) return new Problem("restarting");
    const isExplained = this.error && performance.now() - this.error.at < EXPLAINS_MS;
    if (isExplained) return problemOf(this.error, "ended");
    if (code === 1013) return new Problem("full");
    if (code === 1008) return new Problem("key", reason);
    return new Problem("ended", reason);
  }
}

function settingsOf(rateHz) {
  return {
    type: "session.update",
    session: {
      modalities: ["audio", "text"],
      turn_detection: { type: "server_vad" },
      audio: {
        input: { format: { type: "audio/pcm", rate: rateHz } },
        output: { format: { type: "audio/pcm", rate: VOICE_RATE_HZ } },
      },
      playback_commit_policy: "ack_only",
      extra_body: { auto_response: true },
    },
  };
}

/** What an ordinary request learns about the service: its model, or why it can not be used. */
export async function askModel(key) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(new URL("v1/models", document.baseURI), { headers });
  } catch {
    throw new Problem("unreachable");
  }
  if (response.status === 401) {
    throw new Problem("key", key ? "The key that you gave was not accepted." : "");
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    const kind = response.status === 403 ? "refused" : "unready";
    throw new Problem(kind, error?.message ?? `It answered with HTTP ${response.status}.`);
  }
  const { data } = await response.json();
  return data?.[0]?.id ?? "";
}

async function whyUnreachable(key) {
  try {
    await askModel(key);
  } catch (problem) {
    return problem;
  }
  return new Problem("unreachable", "It serves this page, but refuses the connection.");
}
