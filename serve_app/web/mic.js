/** The microphone: opened with echo cancellation, heard through a worklet, released at once. */

import { Problem } from "./problem.js";
import { loadWorklet } from "./worklet.js";

const CHUNK_MS = 200;
const MIN_RATE_HZ = 8_000;
const MAX_RATE_HZ = 48_000;

const WISHES = {
  channelCount: 1,
  echoCancellation: true,
  noiseSuppression: true,
  autoGainControl: true,
};

const REFUSALS = {
  NotAllowedError: "mic-refused",
  SecurityError: "mic-refused",
  NotFoundError: "mic-missing",
  OverconstrainedError: "mic-missing",
};

export class Mic {
  /**
   * @param {{onChunk: (pcm: ArrayBuffer) => void, onLost: () => void}} handlers
   * `onChunk` gets 200 ms of PCM16 at `rateHz`; `onLost` is called when the device goes away.
   */
  constructor({ onChunk, onLost }) {
    this.onChunk = onChunk;
    this.onLost = onLost;
    this.rateHz = 0;
    /** @type {AnalyserNode | null} */
    this.analyser = null;
    /** @type {AudioContext | null} */
    this.context = null;
    /** @type {MediaStream | null} */
    this.stream = null;
  }

  /** Ask for the device and begin to listen. Call it from a click. */
  async open() {
    if (!navigator.mediaDevices?.getUserMedia) throw new Problem("insecure");
    this.context = new AudioContext({ latencyHint: "interactive" });
    this.stream = await ask();
    const [track] = this.stream.getAudioTracks();
    track.addEventListener("ended", this.onLost);
    const { context } = this;
    this.rateHz = rateFor(context.sampleRate);
    await loadWorklet(context, "./mic-worklet.js");
    const source = context.createMediaStreamSource(this.stream);
    const worklet = new AudioWorkletNode(context, "mic", {
      processorOptions: { rateHz: this.rateHz, chunkMs: CHUNK_MS },
    });
    worklet.port.onmessage = ({ data }) => this.onChunk(data);
    this.analyser = new AnalyserNode(context, { fftSize: 1024, smoothingTimeConstant: 0.6 });
    source.connect(this.analyser);
    // The worklet writes nothing, so this plays silence; some browsers only run what is connected.
    source.connect(worklet).connect(context.destination);
  }

  /** Cut the sound at the device, so that nothing but silence can reach a chunk. */
  mute(isMuted) {
    for (const track of this.stream?.getAudioTracks() ?? []) track.enabled = !isMuted;
  }

  /** Release the device. */
  close() {
    for (const track of this.stream?.getTracks() ?? []) {
      track.removeEventListener("ended", this.onLost);
      track.stop();
    }
    this.context?.close();
    this.stream = null;
    this.context = null;
    this.analyser = null;
  }
}

async function ask() {
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: WISHES });
  } catch (error) {
    throw new Problem(REFUSALS[error.name] ?? "mic-failed", error.message || error.name);
  }
}

/** The context's own rate where the wire takes it; the worklet brings the rest down. */
function rateFor(contextRateHz) {
  const rateHz = Math.round(contextRateHz);
  return rateHz >= MIN_RATE_HZ && rateHz <= MAX_RATE_HZ ? rateHz : MAX_RATE_HZ;
}
