/**
 * How much of a response has been heard, from reports of how much has left the worklet.
 *
 * What leaves the worklet at context time t sounds at t plus the output's delay, so the question
 * is asked for the context time that is audible now, which lies a little in the past.
 */
export class HeardClock {
  constructor() {
    /** @type {{time: number, samples: number}[]} */
    this.points = [];
  }

  /** Note that `samples` had left at context time `time`; both only rise. */
  note(time, samples) {
    this.points.push({ time, samples });
  }

  /** Samples heard at context time `time`; never more than was reported. */
  at(time) {
    const { points } = this;
    // Only the last point before `time` and what follows it can matter from now on.
    while (points.length > 1 && points[1].time <= time) points.shift();
    const [from, to] = points;
    if (!from || time <= from.time) return from?.samples ?? 0;
    if (!to) return from.samples;
    const share = (time - from.time) / (to.time - from.time);
    return from.samples + Math.floor((to.samples - from.samples) * share);
  }
}
