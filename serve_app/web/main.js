/** Puts the page's parts together and starts and stops sessions. */

import { Conversation } from "./conversation.js";
import { Dial } from "./dial.js";
import { Mic } from "./mic.js";
import { Player } from "./player.js";
import { Problem } from "./problem.js";
import { View } from "./view.js";
import { askModel, Wire } from "./wire.js";

const KEY_NAME = "duplex-api-key";

const view = new View();
const dial = new Dial(/** @type {HTMLCanvasElement} */ (document.getElementById("dial")), {
  you: document.getElementById("meter-you"),
  other: document.getElementById("meter-other"),
});

/** One session: its microphone, its voice, its socket. */
class Session {
  constructor() {
    this.isMuted = false;
    this.isOver = false;
    this.mic = new Mic({
      onChunk: (pcm) => this.isOpen && this.talk.chunk(pcm),
      onLost: () => this.fail(new Problem("mic-lost")),
    });
    this.player = new Player({
      onStart: (id, when) => this.talk.started(id, when),
      onHeard: (id, samples) => this.talk.heard(id, samples),
      onEnd: (id) => this.talk.ended(id),
      onCut: (id, samples) => this.talk.cut(id, samples),
    });
    this.wire = new Wire({
      key: sessionStorage.getItem(KEY_NAME) ?? "",
      onEvent: (event) => this.isOver || this.talk.handle(event),
      onLost: () => this.talk.lost(),
      onBack: (isWhole) => this.talk.back(isWhole),
      onEnd: (problem) => this.fail(problem),
    });
    this.talk = new Conversation({ wire: this.wire, player: this.player, view });
    this.isOpen = false;
  }

  async start() {
    view.clearNotice();
    view.phase("opening");
    view.state("connecting");
    try {
      await Promise.all([this.mic.open(), this.player.open()]);
      if (this.isOver) return this.release();
      dial.start({ you: () => this.mic.analyser, other: () => this.player.analyser });
      await this.wire.open({ rateHz: this.mic.rateHz });
    } catch (problem) {
      // Stopped while it was starting: a device may have opened since.
      return this.isOver ? this.release() : this.fail(problem);
    }
    if (this.isOver) return;
    this.isOpen = true;
    this.stayAwake();
    view.begin();
    view.phase("open");
    this.talk.refresh();
  }

  /** Hush, tell how much was heard, close the session, and let the devices go. */
  async stop() {
    if (this.isOver) return;
    this.mic.close();
    if (this.isOpen) {
      view.phase("closing");
      await this.player.hush();
    }
    this.end();
    view.phase("closing");
    view.state("closing");
    await this.wire.close();
    rest();
  }

  /** End at once, as a page that goes away must; the service is told, not waited for. */
  leave() {
    this.end();
    this.wire.close();
    rest();
  }

  /** @param {unknown} problem */
  fail(problem) {
    if (this.isOver) return;
    if (!(problem instanceof Problem)) console.error(problem);
    this.end();
    this.wire.close();
    rest("error");
    view.notice(problem instanceof Problem ? problem : new Problem("broken", String(problem)));
  }

  mute() {
    this.isMuted = !this.isMuted;
    this.mic.mute(this.isMuted);
    this.talk.mute(this.isMuted);
    view.muted(this.isMuted);
  }

  end() {
    this.isOver = true;
    this.talk.close();
    this.release();
  }

  /** Keep a phone's screen on: with it off, the microphone goes too. */
  async stayAwake() {
    try {
      this.wake = await navigator.wakeLock?.request("screen");
    } catch {
      // Low battery, or a hidden page: the talk goes on as long as the device lets it.
    }
    if (this.isOver) this.wake?.release();
  }

  release() {
    this.wake?.release();
    this.mic.close();
    this.player.close();
    dial.stop();
  }
}

/** @type {Session | null} */
let session = null;

function rest(state = "idle") {
  session = null;
  view.muted(false);
  view.phase("idle");
  view.state(state);
}

function start() {
  session = new Session();
  session.start();
}

async function greet() {
  try {
    view.model(await askModel(sessionStorage.getItem(KEY_NAME) ?? ""));
  } catch (problem) {
    if (problem.kind === "key") view.notice(problem);
  }
}

view.talk.addEventListener("click", () => (session ? session.stop() : start()));
view.noticeAction.addEventListener("click", start);
view.mute.addEventListener("click", () => session?.mute());

view.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_NAME, view.key.value.trim());
  view.key.value = "";
  start();
});

view.compose.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = view.typed.value.trim();
  if (!text || !session?.isOpen) return;
  view.typed.value = "";
  session.talk.type(text);
});

// A page that goes away says so, instead of leaving the session to time out.
addEventListener("pagehide", () => session?.leave());

view.phase("idle");
greet();
