/** One response: received from the wire, heard through the player, shown as one line. */

import { voiceMs } from "./pcm.js";
import { Spoken } from "./spoken.js";

const ACK_EVERY_MS = 250;

export class Answer {
  /**
   * @param {string} id
   * @param {{ack: (id: string, itemId: string, ms: number) => void, line: () => object}} out
   * `line` makes the line to show; it is called at the first text.
   */
  constructor(id, { ack, line }) {
    this.id = id;
    this.itemId = `item_${id}`;
    this.sendAck = ack;
    this.makeLine = line;
    this.line = null;
    this.spoken = new Spoken();
    this.samples = 0;
    this.announcedMs = 0;
    this.heardMs = 0;
    this.ackedMs = -1;
    /** The service has sent its terminal. */
    this.isDone = false;
    /** It is to be silent: what still arrives of it does not matter. */
    this.isCut = false;
    /** Nothing of it will be heard any more. */
    this.isOver = false;
  }

  /** Whether what arrives of it is still wanted; nothing may after its terminal. */
  get isOpen() {
    return !this.isDone && !this.isCut;
  }

  /** @param {Int16Array} samples  @param {object} metadata  of the delta that brought them */
  addAudio(samples, { audio_duration_ms: announcedMs, audio_text_marks: marks } = {}) {
    this.samples += samples.length;
    this.announcedMs = announcedMs ?? this.announcedMs;
    this.spoken.addAudio(voiceMs(this.samples), marks ?? []);
  }

  addText(text) {
    if (!text) return;
    this.spoken.addText(text);
    this.show("live");
  }

  /** So many samples have been heard; tell the service now and then. */
  hear(samples) {
    this.heardMs = voiceMs(samples);
    if (this.heardMs - this.ackedMs >= ACK_EVERY_MS) this.ack();
    this.show("live");
  }

  /** All of it has been heard. */
  end() {
    this.isOver = true;
    const ms = voiceMs(this.samples);
    // The service may round the last fraction of a millisecond up.
    this.heardMs = this.announcedMs - ms === 1 ? this.announcedMs : ms;
    this.ack();
    this.line?.set(this.spoken.text.join(""), "", "done");
    this.line?.heard(this.heardMs);
  }

  /** It was interrupted after so many samples. @returns {boolean} whether anything was lost */
  cut(samples) {
    this.isCut = true;
    this.isOver = true;
    this.heardMs = voiceMs(samples);
    this.ack();
    const isLost = samples < this.samples || !this.isDone;
    this.show(isLost ? "cut" : "done");
    return isLost;
  }

  ack() {
    if (this.heardMs <= this.ackedMs) return;
    this.ackedMs = this.heardMs;
    this.sendAck(this.id, this.itemId, this.heardMs);
  }

  show(status) {
    if (this.spoken.text.length === 0) return;
    this.line ??= this.makeLine();
    const [said, unsaid] = this.spoken.split(this.heardMs, status === "cut");
    this.line.set(said, unsaid, status);
    this.line.heard(this.heardMs);
  }
}
