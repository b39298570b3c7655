/**
 * Plays PCM16 at `rateHz` without gaps, and says how much of each response has left.
 *
 * In:  {play: id, samples} {finish: id} {cut: id | null}
 * Out: {kind: "at", id, samples, time}     `samples` of `id` had been played at context time `time`
 *      {kind: "end", id, samples, time}    all of it has been played
 *      {kind: "cut", id, samples, time}    the rest was dropped
 *
 * Responses are played one after another, in the order of their first samples.
 */
const REPORT_S = 0.05;
const FADE_FRAMES = 96;
/** Wait for this much after running dry, so that small chunks do not stutter. */
const CUSHION_S = 0.08;

class Line {
  /** One response: what is yet to be played of it. */
  constructor(id) {
    this.id = id;
    /** @type {Int16Array[]} */
    this.chunks = [];
    this.waiting = 0;
    this.played = 0;
    this.isFinished = false;
    this.isFlowing = false;
    /** The last two samples taken and the position between them, for rates that differ. */
    this.before = 0;
    this.after = 0;
    this.phase = 1;
    this.offset = 0;
  }

  push(samples) {
    this.chunks.push(samples);
    this.waiting += samples.length;
  }

  shift() {
    const [chunk] = this.chunks;
    const sample = chunk[this.offset] / 32768;
    this.offset += 1;
    this.waiting -= 1;
    this.played += 1;
    if (this.offset === chunk.length) {
      this.chunks.shift();
      this.offset = 0;
    }
    return sample;
  }

  /** The next frame for a context that takes `step` samples per frame. */
  next(step) {
    while (this.phase >= 1 && this.waiting > 0) {
      this.before = this.after;
      this.after = this.shift();
      this.phase -= 1;
    }
    const frame = this.before + (this.after - this.before) * this.phase;
    this.phase += step;
    return frame;
  }
}

class PlayerProcessor extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz } }) {
    super();
    this.step = rateHz / sampleRate;
    this.cushion = CUSHION_S * rateHz;
    this.reportEvery = Math.max(1, Math.round((REPORT_S * sampleRate) / 128));
    this.quanta = 0;
    /** @type {Line[]} */
    this.lines = [];
    this.gain = 0;
    this.last = 0;
    this.port.onmessage = ({ data }) => this.obey(data);
  }

  obey({ play, samples, finish, cut }) {
    if (play !== undefined) this.lineOf(play).push(samples);
    if (finish !== undefined) {
      const line = this.lines.find(({ id }) => id === finish);
      if (line) line.isFinished = true;
    }
    if (cut !== undefined) this.cut(cut);
  }

  lineOf(id) {
    const known = this.lines.find((line) => line.id === id);
    if (known) return known;
    // A new response means that no more of the old ones will come.
    for (const older of this.lines) older.isFinished = true;
    const line = new Line(id);
    this.lines.push(line);
    return line;
  }

  cut(id) {
    const isCut = (line) => id === null || line.id === id;
    for (const line of this.lines.filter(isCut)) this.report("cut", line, currentTime);
    this.lines = this.lines.filter((line) => !isCut(line));
  }

  report(kind, line, time) {
    this.port.postMessage({ kind, id: line.id, samples: line.played, time });
  }

  process(_inputs, [[output]]) {
    const line = this.current();
    for (let at = 0; at < output.length; at += 1) output[at] = this.frame(line);
    const after = currentTime + output.length / sampleRate;
    this.quanta += 1;
    if (line && this.quanta % this.reportEvery === 0) this.report("at", line, after);
    if (line?.isFinished && line.waiting === 0) {
      this.report("end", line, after);
      this.lines.shift();
    }
    return true;
  }

  /** The line to play from, or null while there is not enough of it. */
  current() {
    const [line] = this.lines;
    if (!line) return null;
    if (!line.isFlowing && (line.isFinished || line.waiting >= this.cushion)) {
      line.isFlowing = true;
      this.report("at", line, currentTime);
    }
    return line.isFlowing ? line : null;
  }

  /** One frame; starts, cuts and dry spells are faded over 2 to 4 ms so that they do not click. */
  frame(line) {
    if (line && line.waiting > 0) {
      this.gain = Math.min(1, this.gain + 1 / FADE_FRAMES);
      this.last = line.next(this.step);
      return this.last * this.gain;
    }
    if (line && !line.isFinished) line.isFlowing = false;
    this.gain = Math.max(0, this.gain - 1 / FADE_FRAMES);
    return this.last * this.gain;
  }
}

registerProcessor("player", PlayerProcessor);
