/**
 * PCM16 little-endian mono and its base64 form.
 *
 * Typed arrays use the machine's byte order; every machine that runs a browser is little-endian.
 */

/** Rate of the assistant's speech on the wire. */
export const VOICE_RATE_HZ = 24_000;

const SLICE_BYTES = 8192; // arguments of one call are limited

/** @param {ArrayBuffer} buffer */
export function toBase64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) {
    text += String.fromCharCode(...bytes.subarray(at, at + SLICE_BYTES));
  }
  return btoa(text);
}

/**
 * @param {string} base64
 * @returns {Int16Array}
 */
export function fromBase64(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length & ~1);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new Int16Array(bytes.buffer);
}

/** Whole milliseconds of `samples` of the assistant's speech. */
export function voiceMs(samples) {
  return Math.floor((samples * 1000) / VOICE_RATE_HZ);
}
