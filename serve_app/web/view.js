/** Everything of the page but the transcript's lines and the dial: state, facts, notices, forms. */

import { Lines } from "./lines.js";
import { wordsOf } from "./problem.js";
import { NAMES } from "./state.js";

const TOAST_MS = 6_000;

/** @param {string} id  @returns {any} */
const $ = (id) => document.getElementById(id);

export class View {
  constructor() {
    this.lines = new Lines($("lines"), $("scroll"));
    this.talk = $("talk");
    this.mute = $("mute");
    this.compose = $("compose");
    this.typed = $("typed");
    this.keyForm = $("key-form");
    this.key = $("key");
    this.noticeAction = $("notice-action");
  }

  /** @param {string} name  a key of NAMES */
  state(name) {
    if (document.body.dataset.state === name) return;
    document.body.dataset.state = name;
    $("state").textContent = NAMES[name];
  }

  /** Label the buttons for a session that is open, opening, closing, or not there. */
  phase(phase) {
    const isThere = phase !== "idle";
    document.body.dataset.phase = phase;
    this.talk.textContent = isThere ? "Stop" : "Start";
    this.talk.disabled = phase === "closing";
    this.mute.disabled = phase !== "open";
    if (!isThere) this.showCompose(false);
  }

  muted(isMuted) {
    document.body.dataset.muted = String(isMuted);
    this.mute.setAttribute("aria-pressed", String(isMuted));
    this.mute.textContent = isMuted ? "Unmute" : "Mute";
  }

  model(name) {
    $("model").textContent = name || "–";
    $("model").title = name;
    document.body.dataset.model = name;
  }

  /** @param {{id: string, model: string, capabilities?: object}} session */
  session({ id, model, capabilities = {} }) {
    this.model(model);
    $("session").textContent = id;
    $("session").title = id;
    document.body.dataset.session = id;
    this.showCompose(capabilities.supports_text_only_turn === true);
  }

  latency(ms) {
    document.body.dataset.latencyMs = String(ms);
    $("latency").textContent = `${(ms / 1000).toFixed(2)} s`;
  }

  /** A passing remark. */
  toast(text) {
    const toast = $("toast");
    toast.textContent = text;
    toast.classList.add("shown");
    clearTimeout(this.toastTimer);
    this.toastTimer = setTimeout(() => toast.classList.remove("shown"), TOAST_MS);
  }

  /** Say why there is no session, and offer what can be done. */
  notice(problem) {
    const { title, text, action } = wordsOf(problem);
    document.body.dataset.problem = problem.kind;
    $("toast").classList.remove("shown");
    $("notice-title").textContent = title;
    $("notice-text").textContent = text;
    this.noticeAction.textContent = action;
    this.noticeAction.hidden = !action;
    this.keyForm.hidden = problem.kind !== "key";
    $("notice").hidden = false;
    this.lines.follow();
    if (problem.kind === "key") this.key.focus();
  }

  clearNotice() {
    delete document.body.dataset.problem;
    $("notice").hidden = true;
  }

  /** Make room for what will be said. */
  begin() {
    $("intro").hidden = true;
    this.lines.divide();
  }

  stopUserLines() {
    this.lines.stopUsers();
  }

  userLine(itemId) {
    return this.lines.user(itemId);
  }

  assistantLine(responseId) {
    return this.lines.assistant(responseId);
  }

  closeLines() {
    this.lines.close();
  }

  showCompose(isShown) {
    this.compose.hidden = !isShown;
  }
}
