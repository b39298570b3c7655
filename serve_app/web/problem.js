/** What can go wrong, and what to tell a person about it. */

export class Problem extends Error {
  /**
   * @param {string} kind  a key of `WORDS`
   * @param {string} [detail]  what the browser or the service said
   */
  constructor(kind, detail = "") {
    super(detail || kind);
    this.kind = kind;
    this.detail = detail;
  }
}

/** @type {Record<string, {title: string, text: string, action: string}>} */
const WORDS = {
  "mic-refused": {
    title: "The microphone is blocked",
    text: "Allow the microphone for this page in the browser's address bar, then try again.",
    action: "Try again",
  },
  "mic-missing": {
    title: "No microphone found",
    text: "Plug one in, or switch it on in the system's sound settings, then try again.",
    action: "Try again",
  },
  "mic-failed": {
    title: "The microphone does not start",
    text: "Another program may be using it. Close that program, then try again.",
    action: "Try again",
  },
  "mic-lost": {
    title: "The microphone went away",
    text: "It was unplugged or switched off. Connect it, then go on.",
    action: "Reconnect",
  },
  insecure: {
    title: "This address can not use a microphone",
    text:
      "Browsers give pages the microphone only on localhost or over HTTPS. " +
      "Open this page as http://localhost:… on the machine itself, or put HTTPS in front of it.",
    action: "Try again",
  },
  "no-output": {
    title: "The sound output does not start",
    text: "Check that the machine has a speaker or headphones, then try again.",
    action: "Try again",
  },
  full: {
    title: "The service is full",
    text: "Every session is taken. Try again in a moment.",
    action: "Try again",
  },
  key: {
    title: "This service needs an API key",
    text: "It is kept in this tab only and is forgotten when you close it.",
    action: "",
  },
  unreachable: {
    title: "The service does not answer",
    text: "It may still be starting. Check that it runs, then try again.",
    action: "Try again",
  },
  silent: {
    title: "The service did not open a session",
    text: "It accepted the connection but said nothing. It may be overloaded; try again.",
    action: "Try again",
  },
  dropped: {
    title: "The connection was lost",
    text: "What was said stays on this page; a new session begins without it.",
    action: "Reconnect",
  },
  restarting: {
    title: "The service is restarting",
    text: "It closed this session to do so. Reconnect in a moment.",
    action: "Reconnect",
  },
  ended: {
    title: "The service ended the session",
    text: "",
    action: "Reconnect",
  },
  unready: {
    title: "The service is not ready",
    text: "Its models may still be starting. Try again in a moment.",
    action: "Try again",
  },
  refused: {
    title: "The service refused the session",
    text: "",
    action: "Try again",
  },
  broken: {
    title: "The page failed",
    text: "Reload it and try again.",
    action: "Try again",
  },
};

/** Reasons of `session.expired` and `session.closed`, in words. */
const REASONS = {
  idle_ttl_expired: "Nothing was said for a long time.",
  max_session_reached: "It reached the longest time that a session may last.",
  session_replaced: "Another connection took it over.",
};

/** @param {Problem} problem */
export function wordsOf({ kind, detail }) {
  const words = WORDS[kind];
  if (kind === "full" && /^\d+$/.test(detail)) {
    const sessions = detail === "1" ? "1 session" : `${detail} sessions`;
    return {
      ...words,
      title: `The service is full (${sessions})`,
      text: "Every session is taken. Try again in a moment.",
    };
  }
  const said = REASONS[detail] ?? detail;
  return { ...words, text: [words.text, said].filter(Boolean).join(" ") };
}

/**
 * The problem that a server's `error` stands for when it ends the session, or refuses to open it.
 *
 * @param {{type?: string, code?: string, message?: string}} error
 * @param {"refused" | "ended"} otherwise  what happened when the error is none of the known ones
 */
export function problemOf({ type = "", code = "", message = "" }, otherwise = "refused") {
  if (code === "resource_exhausted") {
    return new Problem("full", /limit=(\d+)/.exec(message)?.[1] ?? "");
  }
  if (/api_key|unauthorized|authentication/.test(code)) return new Problem("key");
  const isNotReady = otherwise === "refused" && type === "server_error";
  return new Problem(isNotReady ? "unready" : otherwise, message || code);
}
