/** The assistant's voice: played without gaps, measured at the ear, cut at once. */

import { HeardClock } from "./heard.js";
import { VOICE_RATE_HZ } from "./pcm.js";
import { Problem } from "./problem.js";
import { loadWorklet } from "./worklet.js";

const START_TIMEOUT_MS = 5_000;
const MAX_DELAY_S = 1;

/**
 * @typedef {object} PlayerHandlers
 * @property {(id: string, when: number) => void} onStart  first sound, in `performance.now()` time
 * @property {(id: string, samples: number) => void} onHeard  about 20 times a second
 * @property {(id: string, samples: number) => void} onEnd  all of it has been heard
 * @property {(id: string, samples: number) => void} onCut  this much had been played; no more will
 */

export class Player {
  /** @param {PlayerHandlers} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {Map<string, {clock: HeardClock, hasStarted: boolean}>} */
    this.lines = new Map();
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {AnalyserNode | null} */
    this.analyser = null;
  }

  /** Open the output. Call it from a click, or the browser will keep it silent. */
  async open() {
    this.context = voiceContext();
    const { context } = this;
    await startOf(context);
    await loadWorklet(context, "./player-worklet.js");
    this.worklet = new AudioWorkletNode(context, "player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { rateHz: VOICE_RATE_HZ },
    });
    this.worklet.port.onmessage = ({ data }) => this.learn(data);
    this.analyser = new AnalyserNode(context, { fftSize: 1024, smoothingTimeConstant: 0.6 });
    this.worklet.connect(this.analyser).connect(context.destination);
  }

  /** Whether anything is still to be heard. */
  get isBusy() {
    return this.lines.size > 0;
  }

  /** Whether something of this response is still to be heard. */
  has(id) {
    return this.lines.has(id);
  }

  /** @param {string} id @param {Int16Array} samples  the next piece of this response */
  play(id, samples) {
    if (!this.lines.has(id)) this.lines.set(id, { clock: new HeardClock(), hasStarted: false });
    this.worklet.port.postMessage({ play: id, samples }, [samples.buffer]);
  }

  /** No more of this response will come. */
  finish(id) {
    this.worklet.port.postMessage({ finish: id });
  }

  /** Drop what has not been played, of one response or of all (null). `onCut` follows. */
  cut(id) {
    this.worklet.port.postMessage({ cut: id });
  }

  /** Drop everything; resolves when the last `onCut` has been called, or after 300 ms. */
  async hush() {
    if (!this.isBusy) return;
    await new Promise((resolve) => {
      this.whenQuiet = resolve;
      setTimeout(resolve, 300);
      this.cut(null);
    });
  }

  close() {
    this.lines.clear();
    this.context?.close();
    this.context = null;
    this.analyser = null;
  }

  learn({ kind, id, samples, time }) {
    const line = this.lines.get(id);
    if (!line) return;
    if (!line.hasStarted && kind !== "cut") {
      line.hasStarted = true;
      this.handlers.onStart(id, performance.now() + (time - this.audible()) * 1000);
    }
    if (kind === "cut") {
      // What has left the worklet will still sound: nothing can call it back.
      this.lines.delete(id);
      this.handlers.onCut(id, samples);
      if (!this.isBusy) this.whenQuiet?.();
      return;
    }
    line.clock.note(time, samples);
    this.handlers.onHeard(id, line.clock.at(this.audible()));
    if (kind === "end") this.endAt(id, line, samples, time);
  }

  /** Call `onEnd` when the last sample has reached the ear. */
  endAt(id, line, samples, time) {
    const end = () => {
      if (this.lines.get(id) !== line) return;
      this.lines.delete(id);
      this.handlers.onEnd(id, samples);
    };
    setTimeout(end, Math.max(0, (time - this.audible()) * 1000));
  }

  /** The context time that is being heard now. */
  audible() {
    const { context } = this;
    if (!context) return 0;
    const { contextTime = 0, performanceTime = 0 } = context.getOutputTimestamp?.() ?? {};
    const estimate = contextTime + (performance.now() - performanceTime) / 1000;
    const isSound = contextTime > 0 && estimate > context.currentTime - MAX_DELAY_S;
    const delay = (context.outputLatency || 0) + (context.baseLatency || 0);
    return Math.min(context.currentTime, isSound ? estimate : context.currentTime - delay);
  }
}

/** At the voice's own rate where the browser can: it resamples better than the worklet does. */
function voiceContext() {
  try {
    return new AudioContext({ sampleRate: VOICE_RATE_HZ, latencyHint: "interactive" });
  } catch {
    return new AudioContext({ latencyHint: "interactive" });
  }
}

/** Start the context; one that has no device may never say that it can not. */
async function startOf(context) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Problem("no-output")), START_TIMEOUT_MS);
  });
  try {
    await Promise.race([context.resume(), late]);
  } finally {
    clearTimeout(timer);
  }
}
