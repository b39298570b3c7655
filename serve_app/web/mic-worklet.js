/**
 * Turns the microphone into PCM16 mono chunks of equal length, without a break.
 *
 * Options: `rateHz` of the chunks, at most the context's own, and `chunkMs`.
 * Posts one ArrayBuffer per chunk.
 */
class MicProcessor extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz, chunkMs } }) {
    super();
    this.length = Math.round((rateHz * chunkMs) / 1000);
    this.chunk = new Int16Array(this.length);
    this.filled = 0;
    /** Input samples per output sample; each output is the mean of the input that it covers. */
    this.step = sampleRate / rateHz;
    this.sum = 0;
    this.left = this.step;
  }

  process([channels]) {
    // A source that has ended or stalled gives no channels. The stream goes on, as silence.
    const frames = channels[0]?.length ?? 128;
    for (let at = 0; at < frames; at += 1) {
      let sample = 0;
      for (const channel of channels) sample += channel[at] / channels.length;
      this.take(sample);
    }
    return true;
  }

  take(sample) {
    let weight = 1;
    while (weight >= this.left) {
      weight -= this.left;
      this.put((this.sum + sample * this.left) / this.step);
      this.sum = 0;
      this.left = this.step;
    }
    this.sum += sample * weight;
    this.left -= weight;
  }

  put(sample) {
    this.chunk[this.filled] = Math.max(-1, Math.min(1, sample)) * 32767;
    this.filled += 1;
    if (this.filled === this.length) {
      this.port.postMessage(this.chunk.buffer, [this.chunk.buffer]);
      this.chunk = new Int16Array(this.length);
      this.filled = 0;
    }
  }
}

registerProcessor("mic", MicProcessor);
