// The text: one span a token, appended in chunks, coloured by class only.

import { h, setText } from "./dom.js";
import { shownText, whitespaceClass } from "./shown_text.js";
import { startsRepair } from "./summary.js";
import { TIER_CLASS, TIER_OF } from "./words.js";

const CHUNK = 200;
const PER_FLUSH = 2000;
const SETTLING_FRAMES = 20;
const NEAR_END = 40; // pixels
const MOST_PROMPT = 20000; // characters

export class TokenView {
  constructor(app) {
    this.app = app;
    this.spans = [];
    this.chunks = [];
    this.store = null;
    this.marked = [];
    this.unseen = 0;
    this.lastTop = 0;
    this.prompt = h("div.prompt", {});
    this.body = h("div.tokens", {});
    this.empty = h("p.empty", {});
    this.scroll = h("div.text-scroll", {role: "document", "aria-label": "Generated text, a stop for each token", tabindex: -1}, this.prompt, this.body, this.empty);
    this.jump = h("button.jump", {type: "button", hidden: true, onclick: () => this.goLive()});
    this.node = h("div.text-box", {}, this.scroll, this.jump);
    // Chunks that were skipped turn out taller once they are drawn.
    new ResizeObserver(() => {
      if (this.following) this.stick();
    }).observe(this.body);
    this.scroll.addEventListener("scroll", () => this.scrolled(), {passive: true});
  }

  // Index of the token an event happened on, or null.
  indexOf(target) {
    const span = target instanceof Element ? target.closest(".t") : null;
    return span && span.viasdIndex !== undefined && this.spans[span.viasdIndex] === span ? span.viasdIndex : null;
  }

  sync(changes) {
    if (changes.has("run")) this.reset();
    if (changes.has("data") || changes.has("run")) this.grow();
    if (changes.has("head") || changes.has("data")) this.applyHead();
    if (changes.has("options")) this.applyOptions();
    if (changes.has("cursor") || changes.has("data") || changes.has("head")) this.mark();
    this.keepInView(changes);
    if (changes.has("cursor")) this.clearSheet(SETTLING_FRAMES);
  }

  reset() {
    this.store = this.app.store;
    this.spans = [];
    this.chunks = [];
    this.body.replaceChildren();
    this.marked = [];
    this.unseen = 0;
    this.lastTop = 0;
    this.scroll.scrollTop = 0;
  }

  grow() {
    const {store} = this;
    const prompt = store.run.prompt;
    setText(this.prompt, typeof prompt === "string" ? shownText(prompt, MOST_PROMPT) : "");
    for (const index of store.changed.splice(0)) if (index < this.spans.length) this.paint(index);
    const end = Math.min(store.tokens.length, this.spans.length + PER_FLUSH);
    const before = this.spans.length;
    for (let index = before; index < end; index += 1) this.append(index);
    if (end < store.tokens.length) this.app.touch("data");
    if (!this.app.options.follow || this.app.head !== null) this.unseen += this.countShown(before, end);
    setText(this.empty, emptyReason(this.app));
  }

  countShown(from, to) {
    let count = 0;
    for (let index = from; index < to; index += 1) count += Number(this.store.tokens[index].emitted);
    return count;
  }

  append(index) {
    if (this.needsChunk(index)) {
      const node = h("div.chunk", {});
      this.chunks.push({node, start: index, place: "past"});
      this.body.append(node);
    }
    const span = document.createElement("span");
    span.viasdIndex = index;
    this.spans.push(span);
    this.paint(index);
    this.chunks[this.chunks.length - 1].node.append(span);
  }

  // A chunk is a block, which the browser can skip as a whole, so it may only end where the text breaks anyway.
  needsChunk(index) {
    const last = this.chunks[this.chunks.length - 1];
    if (!last) return true;
    const before = this.store.tokens[index - 1];
    return index - last.start >= CHUNK && before.emitted && before.shown && before.text.endsWith("\n");
  }

  paint(index) {
    const span = this.spans[index];
    const row = this.store.tokens[index];
    span.className = this.classOf(index, row);
    setText(span, row.shown ? shownText(row.text) : "");
  }

  classOf(index, row) {
    const back = row.gone !== null && this.app.until < row.gone;
    const tier = TIER_OF[back ? row.was : row.verdict];
    let name = tier ? `t ${TIER_CLASS[tier.code]}` : `t x ${row.verdict}`;
    if (!row.shown) name += " hid";
    else name += whitespaceClass(row.text);
    if (tier && row.branch > 0) name += startsRepair(this.store, index) ? " rep rep1" : " rep";
    if (index >= this.futureFrom()) name += " fut";
    return name;
  }

  futureFrom() {
    const {app} = this;
    return app.head === null ? Infinity : this.store.spans[app.headIndex][1];
  }

  // Hide what came after the cycle the view stands at: whole chunks at once, the one it cuts token by token.
  applyHead() {
    const from = this.futureFrom();
    this.chunks.forEach((chunk, number) => {
      const {node, start} = chunk;
      const end = this.chunks[number + 1]?.start ?? this.spans.length;
      const place = from >= end ? "past" : from <= start ? "future" : "cut";
      if (chunk.place === place && place !== "cut") return;
      chunk.place = place;
      node.classList.toggle("fut", place === "future");
      if (place === "future") return;
      for (let index = start; index < end; index += 1) this.spans[index].classList.toggle("fut", index >= from);
    });
    if (!this.store.counts.retracted) return;
    this.store.tokens.slice(0, this.spans.length).forEach((row, index) => {
      if (row.gone !== null) this.paint(index);
    });
  }

  applyOptions() {
    const {options} = this.app;
    this.body.classList.toggle("ghosts", options.ghosts);
    for (const code of Object.values(TIER_CLASS)) this.body.classList.toggle(`off-${code}`, options.off.has(code));
  }

  mark() {
    for (const span of this.marked) span.classList.remove("sel", "cyc");
    this.marked = [];
    const {app, store} = this;
    if (app.row !== null && app.pinned && this.spans[app.row]) this.addMark(app.row, "sel");
    const at = app.focusCycle;
    if (at < 0 || (!app.pinned && app.head === null)) return;
    const [from, to] = store.spans[at];
    for (let index = from; index < Math.min(to, this.spans.length); index += 1) this.addMark(index, "cyc");
  }

  // On a phone the sheet covers the lower half; what it speaks of must stay above it. The panels above and
  // below the text paint over the next frames and move it, and the page first has to grow by the sheet.
  clearSheet(frames) {
    const {app} = this;
    const span = app.narrow && app.pinned && app.sheet ? this.spans[app.row] : null;
    const over = span ? span.getBoundingClientRect().bottom - 0.4 * window.innerHeight : 0;
    if (over > 0) window.scrollBy(0, over);
    if (span && frames > 1) requestAnimationFrame(() => this.clearSheet(frames - 1));
  }

  addMark(index, name) {
    this.spans[index].classList.add(name);
    this.marked.push(this.spans[index]);
  }

  keepInView(changes) {
    const {app, scroll} = this;
    if (app.head !== null && changes.has("head")) {
      const last = this.spans[Math.min(this.futureFrom(), this.spans.length) - 1];
      if (last) this.reveal(last);
    } else if (this.following && (changes.has("data") || changes.has("options"))) {
      this.stick();
    }
    this.lastTop = scroll.scrollTop;
    const behind = app.store.live && (app.head !== null || !app.options.follow);
    this.jump.hidden = !behind;
    if (behind) setText(this.jump, this.unseen ? `Jump to live (+${this.unseen})` : "Jump to live");
  }

  get following() {
    return this.app.options.follow && this.app.head === null && this.app.store.live;
  }

  stick() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.lastTop = this.scroll.scrollTop;
    this.unseen = 0;
  }

  // Scroll the text box, and only it, so that a token is inside.
  reveal(span) {
    const box = this.scroll.getBoundingClientRect();
    const place = span.getBoundingClientRect();
    if (place.bottom > box.bottom - NEAR_END) this.scroll.scrollTop += place.bottom - box.bottom + NEAR_END;
    else if (place.top < box.top) this.scroll.scrollTop += place.top - box.top - NEAR_END;
  }

  scrolled() {
    const {scroll, app} = this;
    const up = scroll.scrollTop < this.lastTop - 2;
    this.lastTop = scroll.scrollTop;
    const atEnd = scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - NEAR_END;
    if (this.following && up && !atEnd) app.setOption("follow", false);
  }

  goLive() {
    this.unseen = 0;
    this.app.head = null;
    this.app.touch("head");
    this.app.setOption("follow", true);
  }
}

function emptyReason(app) {
  const {store} = app;
  if (store.tokens.length) return "";
  if (store.status.state === "error") return store.status.text || "The run failed before its first token.";
  if (store.live || ["queued", "loading", "running", "paused"].includes(store.status.state)) return "Waiting for the first cycle…";
  if (store.ended) return "This run ended without a token.";
  return "Nothing has run yet: press Run, choose a recorded run, or open a trace file.";
}
