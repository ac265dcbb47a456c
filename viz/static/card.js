// One floating card for the token under the pointer, the focus or the finger.

import { clamp, fill, h } from "./dom.js";
import { headline, shortFacts } from "./facts.js";
import { badge } from "./inspector.js";

const GAP = 8;

export class Card {
  constructor(app, tokens) {
    this.app = app;
    this.tokens = tokens;
    this.shown = null;
    this.node = h("div.card", {role: "tooltip", id: "viasd-card", hidden: true});
    const {scroll} = tokens;
    scroll.addEventListener("pointerover", (event) => this.over(event));
    scroll.addEventListener("pointerleave", () => this.hide());
    scroll.addEventListener("focusin", (event) => this.show(tokens.indexOf(event.target)));
    scroll.addEventListener("focusout", () => this.hide());
    scroll.addEventListener("scroll", () => this.follow(), {passive: true});
  }

  over(event) {
    const index = this.tokens.indexOf(event.target);
    if (index === null) this.hide();
    else this.show(index);
  }

  sync(changes) {
    if (changes.has("run")) this.hide();
  }

  hide() {
    this.node.hidden = true;
    this.shown = null;
  }

  show(index) {
    if (index === null || index === this.shown) return;
    const {store} = this.app;
    const row = store.tokens[index];
    const {code, name, label, why} = headline(row);
    fill(this.node,
      h("div.card-head", {}, badge(row, code), h("strong", {}, label), h("span.muted", {}, `#${row.token_id}`)),
      h("p.tier-name", {}, name),
      h("p.why", {}, why),
      h("dl.facts", {}, shortFacts(store, row).map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])));
    this.node.hidden = false;
    this.shown = index;
    this.place(this.tokens.spans[index]);
  }

  // The text moved: the card goes with its token, and leaves with it.
  follow() {
    if (this.shown === null) return;
    const box = this.tokens.scroll.getBoundingClientRect();
    const span = this.tokens.spans[this.shown].getBoundingClientRect();
    if (span.bottom < box.top || span.top > box.bottom) this.hide();
    else this.place(this.tokens.spans[this.shown]);
  }

  // Below the token, or above it where there is no room; always inside the window.
  place(span) {
    const rects = span.getClientRects();
    const at = rects.length ? rects[0] : span.getBoundingClientRect();
    const {offsetWidth: width, offsetHeight: height} = this.node;
    const below = at.bottom + GAP;
    const top = below + height < window.innerHeight ? below : at.top - GAP - height;
    const origin = this.node.offsetParent ? this.node.offsetParent.getBoundingClientRect() : {left: 0, top: 0};
    this.node.style.left = `${clamp(at.left, GAP, Math.max(GAP, document.documentElement.clientWidth - width - GAP)) - origin.left}px`;
    this.node.style.top = `${Math.max(GAP, top) - origin.top}px`;
  }
}
