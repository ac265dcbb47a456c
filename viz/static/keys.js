// Keyboard and pointer in the text: one tab stop, arrows by token, Shift and arrows by cycle.

import { verdictName } from "./words.js";
import { tokenLabel } from "./shown_text.js";

export class Keys {
  constructor(app, tokens) {
    this.app = app;
    this.tokens = tokens;
    this.active = null; // index of the token that is the tab stop
    const {scroll} = tokens;
    scroll.addEventListener("click", (event) => this.click(event));
    scroll.addEventListener("keydown", (event) => this.key(event));
    app.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && app.pinned) app.unpin();
    });
  }

  sync(changes) {
    if (changes.has("run")) this.active = null;
    if (this.active === null && this.tokens.spans.length) {
      const first = this.nextFrom(-1, 1);
      if (first !== null) this.makeStop(first);
    }
  }

  click(event) {
    const index = this.tokens.indexOf(event.target);
    if (index === null || String(window.getSelection())) return;
    this.makeStop(index);
    this.tokens.spans[index].focus({preventScroll: true});
    if (this.app.pinned && this.app.row === index) this.app.unpin();
    else this.app.select(index, true);
  }

  key(event) {
    const current = this.tokens.indexOf(event.target);
    if (current === null) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.app.select(current, true);
      return;
    }
    const next = this.target(event, current);
    if (next === undefined) return;
    event.preventDefault();
    if (next !== null) this.go(next);
  }

  target(event, current) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step && event.shiftKey) return this.otherCycle(current, step);
    if (step) return this.nextFrom(current, step);
    if (event.key === "Home") return this.nextFrom(-1, 1);
    if (event.key === "End") return this.nextFrom(this.tokens.spans.length, -1);
    return undefined;
  }

  visible(index) {
    const row = this.app.store.tokens[index];
    if (!row.shown || index >= this.tokens.futureFrom()) return false;
    return row.emitted || (row.verdict === "retracted") || this.app.options.ghosts;
  }

  nextFrom(index, step) {
    for (let at = index + step; at >= 0 && at < this.tokens.spans.length; at += step) {
      if (this.visible(at)) return at;
    }
    return null;
  }

  otherCycle(current, step) {
    const {store} = this.app;
    for (let at = store.tokens[current].at + step; at >= 0 && at < store.spans.length; at += step) {
      const [from, to] = store.spans[at];
      for (let index = from; index < Math.min(to, this.tokens.spans.length); index += 1) if (this.visible(index)) return index;
    }
    return null;
  }

  go(index) {
    this.makeStop(index);
    this.tokens.spans[index].focus({preventScroll: true});
    this.tokens.reveal(this.tokens.spans[index]);
    if (this.app.pinned) this.app.select(index, true);
  }

  makeStop(index) {
    const {spans} = this.tokens;
    const before = this.active === null ? null : spans[this.active];
    for (const name of ["tabindex", "role", "aria-label", "aria-describedby"]) before?.removeAttribute(name);
    const row = this.app.store.tokens[index];
    const span = spans[index];
    span.setAttribute("tabindex", "0");
    span.setAttribute("role", "button");
    span.setAttribute("aria-label", `${tokenLabel(row)}, ${verdictName(row)}`);
    span.setAttribute("aria-describedby", "viasd-card");
    this.active = index;
  }
}
