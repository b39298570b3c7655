/**
 * What the service's events mean for the page, within one session.
 *
 * Rule 1: the microphone's audio goes out whatever the assistant does; muting alone stops it.
 * Rule 2: what is shown as said is what has been heard, not what has been received.
 * Rule 3: after an interruption nothing of the cut answer is played, however late it arrives.
 * Rule 4: of an answer that has lost a part on the way nothing more is played.
 */

import { Answer } from "./answer.js";
import { fromBase64 } from "./pcm.js";
import { stateOf } from "./state.js";

const SHOW_INTERRUPTED_MS = 900;
/** A connection that is back by then was never missed. */
const SHOW_RECONNECTING_MS = 1_000;
/** A pause without an answer is listening again after this. */
const AWAIT_MS = 10_000;
const LISTEN_AGAIN_MS = 1_500;
/** Silence sent after a mute within speech, so that the service can hear the end of it. */
const MUTE_TAIL_CHUNKS = 10;

/** Errors that concern bookkeeping between page and service and mean nothing to a person. */
const QUIET_ERRORS = new Set([
  "playback_ack_too_late",
  "playback_item_not_found",
  "response_not_active",
]);

export class Conversation {
  /**
   * @param {{wire: import("./wire.js").Wire, player: import("./player.js").Player, view: object}} parts
   */
  constructor({ wire, player, view }) {
    this.wire = wire;
    this.player = player;
    this.view = view;
    /** @type {Map<string, Answer>} every answer of the session: an id is never used twice */
    this.answers = new Map();
    this.session = {};
    this.isMuted = false;
    this.isHearing = false;
    this.isAwaited = false;
    this.isInterrupted = false;
    this.isReconnecting = false;
    this.hasStalled = false;
    /** Whether events are lost: an answer that the page has not seen begin has no beginning. */
    this.hasHole = false;
    this.tailChunks = 0;
    /** Whether the speech heard last is being answered; an answer may begin within it. */
    this.isAnswered = false;
    this.isAnswerHeard = false;
    /** When the user's speech ended, until an answer to it is heard. */
    this.stoppedAt = null;
    this.awaitedUntil = 0;
    this.timers = {};
  }

  // --- from the microphone ---------------------------------------------------------------

  /** @param {ArrayBuffer} pcm  200 ms */
  chunk(pcm) {
    if (this.isMuted) {
      if (!this.isHearing || this.tailChunks === 0) return;
      this.tailChunks -= 1;
      new Uint8Array(pcm).fill(0);
    }
    const isStalled = !this.wire.append(pcm);
    if (isStalled && !this.hasStalled) this.view.toast("The network is slower than your speech.");
    this.hasStalled = isStalled;
  }

  mute(isMuted) {
    this.isMuted = isMuted;
    this.tailChunks = MUTE_TAIL_CHUNKS;
    this.refresh();
  }

  // --- from the connection ---------------------------------------------------------------

  /** It is gone; what has come in is played on, and what is said is kept. */
  lost() {
    this.later("reconnecting", SHOW_RECONNECTING_MS, () => {
      this.isReconnecting = true;
    });
  }

  /** @param {boolean} isWhole  whether all that was missed follows */
  back(isWhole) {
    clearTimeout(this.timers.reconnecting);
    this.isReconnecting = false;
    if (!isWhole) this.skip();
    this.refresh();
  }

  /** A part of the conversation is lost: what is under way has no end, or no beginning. */
  skip() {
    this.hasHole = true;
    for (const { id, isDone, isOver } of this.answers.values()) {
      if (!isDone && !isOver) this.interrupt(id);
    }
    this.isHearing = false;
    this.stoppedAt = null;
    this.view.stopUserLines();
    this.view.toast("The connection was away for too long: a part is missing.");
  }

  // --- from the keyboard -----------------------------------------------------------------

  /** Interrupt whatever is being said, and say this. */
  async type(text) {
    this.stoppedAt = null;
    const answers = [...this.answers.values()].filter(({ isOver }) => !isOver);
    this.interrupt(null);
    await this.player.hush(); // so that what was heard is acknowledged first
    for (const { id, isDone } of answers) {
      if (isDone) this.wire.clear(id);
      else this.wire.cancel(id);
    }
    this.wire.say(text);
    this.expectAnswer();
    this.refresh();
  }

  // --- from the player -------------------------------------------------------------------

  started(id, when) {
    if (this.stoppedAt !== null && when > this.stoppedAt) {
      this.view.latency(Math.round(when - this.stoppedAt));
    }
    this.stoppedAt = null;
    this.isAwaited = false;
    this.isAnswerHeard = true;
    this.refresh();
  }

  heard(id, samples) {
    this.answers.get(id)?.hear(samples);
  }

  ended(id) {
    this.answers.get(id)?.end();
    this.refresh();
  }

  cut(id, samples) {
    const isLost = this.answers.get(id)?.cut(samples);
    if (isLost) {
      this.isInterrupted = true;
      this.later("interrupted", SHOW_INTERRUPTED_MS, () => {
        this.isInterrupted = false;
      });
    }
    this.refresh();
  }

  // --- from the service ------------------------------------------------------------------

  /** @param {{type: string}} event  types that mean nothing to the page are passed over */
  handle(event) {
    ON[event.type]?.(this, event);
    this.refresh();
  }

  answerOf(id) {
    const known = this.answers.get(id);
    if (known) return known;
    const answer = this.begin(id);
    if (this.hasHole) answer.cut(0);
    return answer;
  }

  begin(id) {
    const answer = new Answer(id, {
      ack: (...args) => this.wire.ack(...args),
      line: () => this.view.assistantLine(id),
    });
    this.answers.set(id, answer);
    return answer;
  }

  /** Drop what has not been heard, of one answer or of all (null). */
  interrupt(id) {
    for (const answer of id === null ? this.answers.values() : [this.answerOf(id)]) {
      if (answer.isOver) continue;
      answer.isCut = true;
      if (answer.samples === 0) answer.cut(0); // otherwise the player tells how far it came
    }
    this.player.cut(id);
  }

  /** Whether speech during an answer ends it; the service's settings say so. */
  get isInterruptible() {
    const { turn_detection: flat, audio } = this.session;
    const detection = flat ?? audio?.input?.turn_detection;
    return Boolean(detection) && detection.interrupt_response !== false;
  }

  expectAnswer(forMs = AWAIT_MS) {
    this.isAwaited = true;
    this.awaitedUntil = performance.now() + forMs;
    this.later("await", forMs, () => {
      this.isAwaited = false;
    });
  }

  later(name, ms, act) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(() => {
      act();
      this.refresh();
    }, ms);
  }

  refresh() {
    if (this.isOver) return;
    this.view.state(
      stateOf({
        isReconnecting: this.isReconnecting,
        isInterrupted: this.isInterrupted,
        isHearing: this.isHearing,
        isSpeaking: this.player.isBusy,
        isAwaited: this.isAwaited,
        isMuted: this.isMuted,
      }),
    );
  }

  /** The session is over; nothing is shown for it any more. */
  close() {
    this.isOver = true;
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    for (const answer of this.answers.values()) {
      if (!answer.isOver) answer.show("cut");
    }
    this.view.closeLines();
  }
}

/** @type {Record<string, (talk: Conversation, event: any) => void>} */
const ON = {
  "session.created": learnSession,
  "session.updated": learnSession,

  "session.expiring"(talk, { reason }) {
    const isRestarting = reason === "server_drain";
    talk.view.toast(
      isRestarting ? "The service is about to restart." : "The session will end soon.",
    );
  },

  "input_audio_buffer.speech_started"(talk, { item_id: itemId }) {
    talk.isHearing = true;
    talk.isAwaited = false;
    talk.isAnswered = false;
    talk.isAnswerHeard = false;
    talk.stoppedAt = null;
    if (talk.isInterruptible) talk.interrupt(null);
    talk.view.userLine(itemId);
  },

  "input_audio_buffer.speech_stopped"(talk, { item_id: itemId }) {
    talk.isHearing = false;
    talk.view.userLine(itemId).stop();
    if (!talk.isAnswerHeard) talk.stoppedAt = performance.now();
    if (!talk.isAnswered) talk.expectAnswer();
  },

  "conversation.item.input_audio_transcription.completed"(talk, { item_id: itemId, transcript }) {
    talk.view.userLine(itemId).say(transcript);
  },

  "conversation.item.added"(talk, { item }) {
    if (item.role !== "user") return;
    const typed = (item.content ?? []).filter(({ type }) => type === "input_text");
    if (typed.length > 0) talk.view.userLine(item.id).say(typed.map(({ text }) => text).join(" "));
  },

  "response.created"(talk, { response_id: id, response }) {
    const begun = id ?? response.id;
    if (!talk.answers.has(begun)) talk.begin(begun);
    talk.isAnswered = true;
    talk.expectAnswer();
  },

  "response.listen"(talk) {
    // It may be about a unit before the last one: an answer can still follow, but soon.
    const isLater = talk.awaitedUntil > performance.now() + LISTEN_AGAIN_MS;
    if (talk.isAwaited && isLater) talk.expectAnswer(LISTEN_AGAIN_MS);
  },

  "response.audio.delta": addAudio,
  "response.output_audio.delta": addAudio,
  "response.audio_transcript.delta": addText,
  "response.output_audio_transcript.delta": addText,
  "response.text.delta": addText,
  "response.output_text.delta": addText,
  "response.audio.done": finishAudio,
  "response.output_audio.done": finishAudio,

  "response.done"(talk, { response_id, response }) {
    const id = response_id ?? response.id;
    const answer = talk.answerOf(id);
    answer.isDone = true;
    if (response.status === "cancelled") talk.interrupt(id);
    else finishAudio(talk, { response_id: id });
    if (response.status === "failed") talk.view.toast("The answer broke off. Ask again.");
    if (answer.samples === 0) {
      talk.isAwaited = false;
      if (!answer.isOver) answer.end();
    }
  },

  "output_audio_buffer.cleared"(talk, { response_id: id }) {
    if (talk.answers.has(id)) talk.interrupt(id);
  },

  "overlap.decision"(talk, { action }) {
    if (action === "barge_in") talk.interrupt(null);
  },

  error(talk, { error }) {
    if (!talk.session.id) return; // the session was not opened; that is told elsewhere
    if (!QUIET_ERRORS.has(error.code)) talk.view.toast(error.message || error.code);
  },
};

function learnSession(talk, { session }) {
  talk.session = session;
  talk.view.session(session);
}

function addAudio(talk, { response_id: id, item_id: itemId, delta, metadata }) {
  const answer = talk.answerOf(id);
  if (!answer.isOpen) return;
  const samples = fromBase64(delta);
  if (samples.length === 0) return;
  answer.itemId = itemId ?? answer.itemId;
  answer.addAudio(samples, metadata);
  talk.player.play(id, samples);
}

function addText(talk, { response_id: id, delta }) {
  const answer = talk.answerOf(id);
  if (answer.isOpen) answer.addText(delta);
}

function finishAudio(talk, { response_id: id }) {
  if (talk.player.has(id)) talk.player.finish(id);
}
