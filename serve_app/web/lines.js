/** The transcript: one line per utterance, the newest at the bottom and in sight. */

/** A line without words by then has none to come: the model does not say what it heard. */
const NO_WORDS_MS = 8_000;
const NEAR_BOTTOM_PX = 80;

export class Lines {
  /** @param {HTMLElement} list  @param {HTMLElement} scroll  the box that scrolls it */
  constructor(list, scroll) {
    this.list = list;
    this.scroll = scroll;
    /** @type {Map<string, UserLine>} */
    this.users = new Map();
    /** Whether the reader is at the bottom; who has scrolled up is left there. */
    this.isFollowing = true;
    scroll.addEventListener("scroll", () => {
      this.isFollowing = this.isNearBottom();
    });
  }

  /** The user's line for an item, made when it is not there. */
  user(itemId) {
    const known = this.users.get(itemId);
    if (known) return known;
    const line = new UserLine(this.add("user", "You", { item: itemId }), () => this.follow());
    this.users.set(itemId, line);
    return line;
  }

  /** Nobody knows whether the user still speaks. */
  stopUsers() {
    for (const line of this.users.values()) line.stop();
  }

  assistant(responseId) {
    const element = this.add("assistant", "Assistant", { response: responseId });
    return new AssistantLine(element, () => this.follow());
  }

  /** No line of this session will change any more. */
  close() {
    for (const line of this.users.values()) line.close();
    this.users.clear();
    for (const line of this.list.querySelectorAll("[aria-busy=true]")) line.setAttribute("aria-busy", "false");
  }

  /** Draw a rule between two sessions. */
  divide() {
    if (!this.list.lastElementChild || this.list.lastElementChild.matches(".rule")) return;
    const rule = document.createElement("div");
    rule.className = "rule";
    rule.textContent = "New session";
    this.list.append(rule);
  }

  add(role, name, data) {
    const element = document.createElement("div");
    element.className = `line ${role}`;
    Object.assign(element.dataset, { role, status: "live" }, data);
    element.setAttribute("aria-busy", "true"); // read aloud when it is complete
    const who = document.createElement("span");
    who.className = "who";
    who.textContent = name;
    const words = document.createElement("p");
    words.className = "words";
    element.append(who, words);
    this.list.append(element);
    this.follow();
    return element;
  }

  isNearBottom() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroll;
    return scrollHeight - scrollTop - clientHeight < NEAR_BOTTOM_PX;
  }

  follow() {
    const isStarted = this.list.childElementCount > 0;
    if (this.isFollowing && isStarted) this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}

class UserLine {
  constructor(element, follow) {
    this.element = element;
    this.words = element.querySelector(".words");
    this.follow = follow;
  }

  /** The user has stopped speaking; the words may follow. */
  stop() {
    if (this.element.dataset.status !== "live") return;
    this.element.dataset.status = "waiting";
    this.timer = setTimeout(() => this.close(), NO_WORDS_MS);
  }

  say(text) {
    clearTimeout(this.timer);
    this.words.textContent = text.trim() || "(nothing understood)";
    this.finish(text.trim() ? "done" : "wordless");
  }

  close() {
    clearTimeout(this.timer);
    if (!["live", "waiting"].includes(this.element.dataset.status)) return;
    this.words.textContent = "(spoken)";
    this.finish("wordless");
  }

  finish(status) {
    this.element.dataset.status = status;
    this.element.setAttribute("aria-busy", "false");
    this.follow();
  }
}

class AssistantLine {
  constructor(element, follow) {
    this.element = element;
    this.follow = follow;
    this.said = document.createElement("span");
    this.said.className = "said";
    this.unsaid = document.createElement("span");
    this.unsaid.className = "unsaid";
    element.querySelector(".words").append(this.said, this.unsaid);
  }

  /** @param {"live" | "done" | "cut"} status */
  set(said, unsaid, status) {
    const key = JSON.stringify([said.length, unsaid, status]);
    if (key === this.shown) return;
    this.shown = key;
    this.said.textContent = said;
    this.unsaid.textContent = unsaid;
    this.element.dataset.status = status;
    this.element.setAttribute("aria-busy", String(status === "live"));
    this.follow();
  }

  heard(ms) {
    this.element.dataset.heardMs = String(ms);
  }
}
