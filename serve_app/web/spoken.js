/**
 * One answer: its text, and how much of that text a number of heard milliseconds covers.
 *
 * The service marks positions `{text_chars, audio_end_ms}`, counted in code points; where it
 * sends none, the end of each audio piece is paired with the end of the text that follows it.
 */
export class Spoken {
  constructor() {
    /** @type {string[]} code points */
    this.text = [];
    /** @type {Map<number, number>} audio_end_ms → text_chars */
    this.marks = new Map();
    this.hasServerMarks = false;
    this.audioMs = 0;
  }

  /** @param {number} audioMs  all audio so far  @param {object[]} marks */
  addAudio(audioMs, marks) {
    this.audioMs = audioMs;
    for (const { text_chars: chars, audio_end_ms: endMs } of marks) {
      if (!this.hasServerMarks) this.marks.clear();
      this.hasServerMarks = true;
      this.marks.set(endMs, chars);
    }
  }

  /** @param {string} text  the next piece, spoken by the audio added last */
  addText(text) {
    this.text.push(...text);
    if (!this.hasServerMarks) this.marks.set(this.audioMs, this.text.length);
  }

  /**
   * Split the text at `heardMs`: after the word that is being heard while the answer plays, before
   * it when the answer was cut there. A word that was half heard was not heard.
   *
   * @param {number} heardMs  @param {boolean} isCut  @returns {[string, string]}
   */
  split(heardMs, isCut) {
    const { text } = this;
    let end = Math.min(text.length, this.charsAt(heardMs));
    const isInWord = () => end > 0 && end < text.length && /[^\s.,;:!?]/.test(text[end]);
    while (isInWord()) end += isCut ? -1 : 1;
    // Neither part begins with what ends the other.
    while (end > 0 && end < text.length && /[\s.,;:!?]/.test(text[end])) end += 1;
    return [text.slice(0, end).join(""), text.slice(end).join("")];
  }

  charsAt(heardMs) {
    let [fromMs, fromChars] = [0, 0];
    for (const [toMs, toChars] of [...this.marks].sort(([a], [b]) => a - b)) {
      if (heardMs < toMs) {
        return fromChars + Math.floor(((toChars - fromChars) * (heardMs - fromMs)) / (toMs - fromMs));
      }
      [fromMs, fromChars] = [toMs, toChars];
    }
    return fromChars;
  }
}
