/**
 * The ring and the two meters: who is speaking, and how loud.
 *
 * The ring is a clock of the last seconds. Its hand goes round once in TURN_MS; at each tick that
 * it passes, the assistant's voice is drawn outwards and the user's inwards, and fades until the
 * hand comes by again. Speech over speech shows on both sides of the ring. For people who want
 * less motion the ring stands still, and the meters alone tell.
 */

const TICKS = 120;
/** A dial smaller than this shows every second tick. */
const SMALL_PX = 180;
const TURN_MS = 9_000;
const FLOOR_DB = -60;
/** Below this level there is room noise, not a voice. */
const HUSH = 0.25;
const FALL = 0.85;

/** One voice: its level now, and what the hand has written of it. */
class Voice {
  constructor() {
    this.level = 0;
    this.written = new Float32Array(TICKS);
  }

  /** @param {AnalyserNode | null | undefined} analyser */
  listen(analyser) {
    this.level = Math.max(analyser ? levelOf(analyser) : 0, this.level * FALL);
    if (this.level < 0.005) this.level = 0;
  }

  /** Write the level at `tick`; a new tick replaces what the last turn left there. */
  write(tick, isNew) {
    const height = Math.max(0, (this.level - HUSH) / (0.9 - HUSH));
    this.written[tick] = isNew ? height : Math.max(height, this.written[tick]);
  }

  /** The loudest of `count` ticks. */
  read(tick, count) {
    return Math.max(...this.written.subarray(tick, tick + count));
  }

  clear() {
    this.written.fill(0);
  }
}

/** 0 at -60 dBFS and below, 1 at full scale. */
function levelOf(analyser) {
  const wave = new Float32Array(analyser.fftSize);
  analyser.getFloatTimeDomainData(wave);
  let sum = 0;
  for (const sample of wave) sum += sample * sample;
  const db = 10 * Math.log10(sum / wave.length + 1e-12);
  return Math.max(0, Math.min(1, 1 - db / FLOOR_DB));
}

export class Dial {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{you: HTMLElement, other: HTMLElement}} meters
   */
  constructor(canvas, meters) {
    this.canvas = canvas;
    this.meters = meters;
    this.you = new Voice();
    this.other = new Voice();
    /** @type {{you: () => AnalyserNode | null, other: () => AnalyserNode | null} | null} */
    this.sources = null;
    this.isRunning = false;
    /** Where the hand is, in ticks since the start, and when it was there. */
    this.hand = 0;
    this.then = 0;
    this.less = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** @param {{you: () => AnalyserNode | null, other: () => AnalyserNode | null}} sources */
  start(sources) {
    this.sources = sources;
    this.hand = 0;
    this.you.clear();
    this.other.clear();
    if (this.isRunning) return;
    this.isRunning = true;
    this.then = performance.now();
    requestAnimationFrame((now) => this.step(now));
  }

  /** Let the meters fall and the hand stop. */
  stop() {
    this.sources = null;
  }

  step(now) {
    this.you.listen(this.sources?.you());
    this.other.listen(this.sources?.other());
    this.showLevel(this.meters.you, this.you.level);
    this.showLevel(this.meters.other, this.other.level);
    if (this.sources) this.turn(now);
    this.draw();
    this.isRunning = this.sources !== null || this.you.level > 0 || this.other.level > 0;
    if (this.isRunning) requestAnimationFrame((next) => this.step(next));
  }

  /** Move the hand to `now` and write at every tick that it reaches. */
  turn(now) {
    const from = Math.floor(this.hand);
    // A page in the background gets no frames: what was missed stays blank.
    this.hand += Math.min(TICKS, (Math.max(0, now - this.then) / TURN_MS) * TICKS);
    this.then = now;
    for (let at = from; at <= Math.floor(this.hand); at += 1) {
      this.you.write(at % TICKS, at > from);
      this.other.write(at % TICKS, at > from);
    }
  }

  showLevel(meter, level) {
    const percent = String(Math.round(level * 100));
    if (meter.getAttribute("aria-valuenow") === percent) return;
    meter.setAttribute("aria-valuenow", percent);
    meter.firstElementChild.style.transform = `scaleX(${level.toFixed(3)})`;
  }

  draw() {
    const size = this.canvas.clientWidth;
    const pen = this.penOf(size);
    const style = getComputedStyle(this.canvas);
    const [rest, ink, accent] = ["--tick", "--ink", "--accent"].map((name) =>
      style.getPropertyValue(name),
    );
    const radius = size * 0.375;
    const half = Math.max(1, size / 160);
    const stride = size < SMALL_PX ? 2 : 1;
    for (let tick = 0; tick < TICKS; tick += stride) {
      pen.save();
      pen.rotate(Math.PI + (tick / TICKS) * 2 * Math.PI);
      stroke(pen, rest, radius - half, radius + half);
      if (!this.less.matches) {
        pen.globalAlpha = this.freshness(tick);
        const into = this.you.read(tick, stride) * size * 0.095;
        const out = this.other.read(tick, stride) * size * 0.115;
        if (into > 0.5) stroke(pen, ink, radius - half - into, radius + half);
        if (out > 0.5) stroke(pen, accent, radius - half, radius + half + out);
      }
      pen.restore();
    }
    if (this.sources && !this.less.matches) this.drawHand(pen, radius, half, ink);
  }

  /** 1 where the hand has just been, towards 0 where it will come next. */
  freshness(tick) {
    const age = (((this.hand - tick) % TICKS) + TICKS) % TICKS;
    return Math.max(0, 1 - age / TICKS) ** 0.7;
  }

  drawHand(pen, radius, half, ink) {
    pen.save();
    pen.rotate(Math.PI + (this.hand / TICKS) * 2 * Math.PI);
    pen.fillStyle = ink;
    pen.beginPath();
    pen.arc(0, radius, half * 2, 0, 2 * Math.PI);
    pen.fill();
    pen.restore();
  }

  penOf(size) {
    const { canvas } = this;
    const scale = devicePixelRatio || 1;
    const pixels = Math.round(size * scale);
    if (canvas.width !== pixels) {
      canvas.width = pixels;
      canvas.height = pixels;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, size, size);
    pen.translate(size / 2, size / 2);
    pen.lineCap = "round";
    pen.lineWidth = Math.max(1.1, size / 150);
    return pen;
  }
}

function stroke(pen, color, from, to) {
  pen.strokeStyle = color;
  pen.beginPath();
  pen.moveTo(0, from);
  pen.lineTo(0, to);
  pen.stroke();
}
