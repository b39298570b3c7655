/** The one word that tells what the conversation is doing. */

export const NAMES = {
  idle: "Ready",
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  interrupted: "Interrupted",
  muted: "Muted",
  reconnecting: "Reconnecting…",
  closing: "Closing",
  error: "Stopped",
};

/**
 * @typedef {object} Facts
 * @property {boolean} isReconnecting  the connection is gone and being made again
 * @property {boolean} isInterrupted  the answer was cut a moment ago
 * @property {boolean} isHearing  the service hears the user speak
 * @property {boolean} isSpeaking  the answer sounds, or is about to
 * @property {boolean} isAwaited  the user has finished and no answer has come
 * @property {boolean} isMuted
 */

/**
 * @param {Facts} facts  of an open session
 * @returns {keyof typeof NAMES}
 */
export function stateOf(facts) {
  const { isReconnecting, isInterrupted, isHearing, isSpeaking, isAwaited, isMuted } = facts;
  if (isReconnecting) return "reconnecting";
  if (isInterrupted) return "interrupted";
  if (isHearing) return "hearing";
  if (isSpeaking) return "speaking";
  if (isAwaited) return "thinking";
  return isMuted ? "muted" : "listening";
}
