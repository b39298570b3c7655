/** What the wire needs to come back after a lost connection: delays, and what waits meanwhile. */

export const MAX_ATTEMPTS = 5;
export const ATTEMPT_TIMEOUT_MS = 5_000;

const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 4_000;
const KEPT_AUDIO_MS = 10_000;

/** Refusals that another attempt can not change. */
const FINAL_CODES = new Set([
  "invalid_session_resume",
  "session_resume_expired",
  "unsupported_session_resume",
  "invalid_resume_token",
  "session_resume_conflict",
]);

/** How long to wait before an attempt, counted from 0: doubling, and never twice the same. */
export function delayMs(attempt, draw = Math.random()) {
  const ceiling = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** (attempt + 1));
  return FIRST_DELAY_MS + (ceiling - FIRST_DELAY_MS) * draw;
}

/**
 * Whether an answer to `session.resume` says yes, no, or perhaps later.
 *
 * @param {{type: string, error?: {code?: string}}} answer
 * @returns {"yes" | "no" | "later"}
 */
export function verdictOf({ type, error }) {
  if (type === "session.resumed") return "yes";
  if (type === "error" && !FINAL_CODES.has(error?.code)) return "later";
  return "no";
}

/**
 * Where to go on when the service has not kept all that was missed, or null if it is not that.
 *
 * @param {{type: string, oldest_server_event_seq?: number}} answer  to `session.resume`
 * @param {number} seq  after which events were asked for
 */
export function afterGap({ type, oldest_server_event_seq: oldest }, seq) {
  return type === "session.resync_required" && oldest - 1 > seq ? oldest - 1 : null;
}

/** Events that wait for a connection, in order; of the audio only the newest ten seconds. */
export class Kept {
  constructor() {
    /** @type {{event: object, ms: number}[]} */
    this.entries = [];
    this.audioMs = 0;
    this.droppedMs = 0;
  }

  /** @param {object} event  @param {number} ms  of audio in it; 0 for any other event */
  add(event, ms = 0) {
    this.entries.push({ event, ms });
    this.audioMs += ms;
    while (this.audioMs > KEPT_AUDIO_MS) {
      const [oldest] = this.entries.splice(this.entries.findIndex((entry) => entry.ms > 0), 1);
      this.audioMs -= oldest.ms;
      this.droppedMs += oldest.ms;
    }
  }

  /** Return everything that waits; nothing waits any more. */
  take() {
    const events = this.entries.map(({ event }) => event);
    this.entries = [];
    this.audioMs = 0;
    return events;
  }
}
