/**
 * The service's WebSocket: one JSON object per text frame, discriminated by `type`.
 *
 * Knows the wire's names and nothing of the page. The browser answers pings by itself.
 *
 * A lost socket is not the end of a session that the service can resume: the next socket takes it
 * up, every event is given once, and what was said meanwhile goes out first.
 */

import { toBase64, VOICE_RATE_HZ } from "./pcm.js";
import { Problem, problemOf } from "./problem.js";
import { ATTEMPT_TIMEOUT_MS, afterGap, delayMs, Kept, MAX_ATTEMPTS, verdictOf } from "./resume.js";

const HEARTBEAT_MS = 20_000;
const OPEN_TIMEOUT_MS = 20_000;
const CLOSE_TIMEOUT_MS = 3_000;
/** More than this unsent, which is more than a gap leaves, means a network slower than speech. */
const MAX_UNSENT_BYTES = 2_097_152;
/** This page may not be here: the service would not let it in again. */
const REFUSED_CODE = 1008;

/** An error explains a close that follows within this time. */
const EXPLAINS_MS = 2_000;

const TERMINALS = new Set(["session.closed", "session.expired", "session.replaced"]);

export class Wire {
  /**
   * @param {object} options
   * @param {string} options.key
   * @param {(event: object) => void} options.onEvent
   * @param {() => void} options.onLost  the connection is gone and being made again
   * @param {(isWhole: boolean) => void} options.onBack  it is there again; the events of the gap
   * follow, all of them or what the service has kept
   * @param {(problem: Problem) => void} options.onEnd  called at most once: when a session that had
   * opened ends without being asked to
   */
  constructor({ key, onEvent, onLost, onBack, onEnd }) {
    this.key = key;
    this.onEvent = onEvent;
    this.onLost = onLost;
    this.onBack = onBack;
    this.onEnd = onEnd;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isClosing = false;
    /** Whether the session is open and its connection gone. */
    this.isLost = false;
    /** What takes the session up again; null where the service does not resume. */
    this.credentials = null;
    /** Number of the last event received. */
    this.seq = 0;
    this.attempts = 0;
    this.kept = new Kept();
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
    this.rateHz = rateHz;
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
    this.attach(socket);
    this.heartbeat = setInterval(() => {
      if (!this.isLost) this.send({ type: "session.heartbeat" });
    }, HEARTBEAT_MS);
  }

  /** @param {ArrayBuffer} pcm  @returns {boolean} false when the network can not keep up */
  append(pcm) {
    const event = { type: "input_audio_buffer.append", audio: toBase64(pcm) };
    if (this.isLost) {
      this.kept.add(event, (pcm.byteLength / 2 / this.rateHz) * 1000);
      return true;
    }
    if (!this.socket || this.socket.bufferedAmount > MAX_UNSENT_BYTES) return false;
    this.send(event);
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
    if (!this.isLost && this.socket?.readyState === WebSocket.OPEN) {
      this.send({ type: "session.close" });
      await Promise.race([this.over, new Promise((done) => setTimeout(done, CLOSE_TIMEOUT_MS))]);
    }
    this.drop();
  }

  connect(further = "") {
    const url = new URL(`v1/realtime?duplex=1&autostart=0${further}`, document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    if (!this.key) return new WebSocket(url);
    try {
      return new WebSocket(url, ["realtime", `openai-insecure-api-key.${this.key}`]);
    } catch {
      throw new Problem("key", "This key has characters that a browser can not send.");
    }
  }

  send(event) {
    if (this.isLost) this.kept.add(event);
    else if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(event));
  }

  attach(socket) {
    this.socket = socket;
    socket.onmessage = ({ data }) => this.receive(data);
    socket.onclose = (close) => this.finish(close);
  }

  receive(text) {
    const event = JSON.parse(text);
    if (!this.isNew(event)) return event;
    this.attempts = 0;
    if (event.type === "error") this.error = { ...event.error, at: performance.now() };
    if (event.type === "session.created") this.learnToken(event.session.id, event);
    if (event.type === "session.resync_required") this.credentials = null;
    if (TERMINALS.has(event.type)) {
      this.terminal = event;
      this.markOver();
    }
    this.onEvent(event);
    return event;
  }

  /** Count a numbered event and acknowledge it, together with those that come at the same time. */
  isNew({ server_event_seq: seq }) {
    if (seq === undefined) return true;
    if (seq <= this.seq) return false;
    this.seq = seq;
    this.ackTimer ??= setTimeout(() => {
      this.ackTimer = undefined;
      // In a gap it is not kept: the resume itself tells how far the page has come.
      if (!this.isLost) this.send({ type: "session.event_ack", server_event_seq: this.seq });
    });
    return true;
  }

  learnToken(sessionId, { resume_token: token }) {
    this.credentials = token ? { sessionId, token } : null;
  }

  finish(close) {
    this.socket = null;
    const problem = this.problemOfClose(close);
    const isFinal = this.isClosing || this.terminal || close.code === REFUSED_CODE;
    if (this.credentials && !isFinal) this.comeBack(problem);
    else this.end(problem);
  }

  end(problem) {
    clearInterval(this.heartbeat);
    this.isLost = false;
    this.markOver();
    if (!this.isClosing) this.onEnd(problem);
  }

  /** Take the session up with a new socket, or end it with the problem that lost the old one. */
  async comeBack(problem) {
    this.isLost = true;
    this.onLost();
    let verdict = "later";
    while (verdict === "later" && this.attempts < MAX_ATTEMPTS) {
      await new Promise((done) => setTimeout(done, delayMs(this.attempts)));
      if (this.isClosing) return;
      this.attempts += 1;
      verdict = await this.resume();
      if (this.isClosing) return;
    }
    if (verdict !== "yes") this.end(problem);
  }

  /** @returns {Promise<"yes" | "no" | "later">} */
  async resume() {
    const { sessionId, token } = this.credentials;
    const socket = this.connect("&resume=1");
    this.socket = socket;
    let after = this.seq;
    const ask = () =>
      socket.send(
        JSON.stringify({
          type: "session.resume",
          session_id: sessionId,
          resume_token: token,
          last_received_server_event_seq: after,
        }),
      );
    const verdict = await new Promise((resolve) => {
      setTimeout(() => resolve("later"), ATTEMPT_TIMEOUT_MS);
      socket.onclose = () => resolve("later");
      socket.onopen = ask;
      socket.onmessage = ({ data }) => {
        const answer = JSON.parse(data);
        const left = afterGap(answer, after);
        if (left !== null) {
          after = left; // a conversation with a hole is better than none
          ask();
          return;
        }
        // At once, not in a task of its own: the events of the gap are right behind.
        if (verdictOf(answer) === "yes" && this.socket === socket) this.takeUp(socket, answer, after);
        resolve(verdictOf(answer));
      };
    });
    if (verdict !== "yes") this.letGo(socket);
    return verdict;
  }

  takeUp(socket, answer, after) {
    const isWhole = after === this.seq;
    this.seq = after;
    this.learnToken(this.credentials.sessionId, answer);
    this.attach(socket);
    this.isLost = false;
    // Something at once: the token that this socket came with ends with it.
    this.send({ type: "session.event_ack", server_event_seq: this.seq });
    for (const event of this.kept.take()) this.send(event);
    this.onBack(isWhole);
  }

  drop() {
    clearInterval(this.heartbeat);
    if (this.socket) this.letGo(this.socket);
  }

  letGo(socket) {
    if (this.socket === socket) this.socket = null;
    socket.onopen = null;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
  }

  problemOfClose({ code, reason }) {
    if (this.terminal?.type === "session.replaced") return new Problem("ended", "session_replaced");
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
