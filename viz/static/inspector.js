// The pinned token: everything known of it, read out once when the reader picks it.

import { fill, h, setIcon, setText } from "./dom.js";
import { headline, longFacts } from "./facts.js";
import { TIER_CLASS } from "./words.js";

export function badge(row, code) {
  const node = h("span.badge.t", {"aria-hidden": "true"}, code);
  node.classList.add(TIER_CLASS[code] || "x");
  return node;
}

export class Inspector {
  constructor(app) {
    this.app = app;
    this.drawn = null;
    this.close = h("button.icon", {type: "button", "aria-label": "Unpin (Escape)", title: "Unpin (Escape)", onclick: () => app.unpin()});
    setIcon(this.close, "close");
    this.title = h("h3", {}, "Token");
    this.body = h("div.inspector-body", {});
    this.spoken = h("p.sr", {"aria-live": "polite"});
    this.node = h("section.inspector", {"aria-label": "Inspector"}, h("div.panel-head", {}, this.title, h("span.gap", {}), this.close), this.body, this.spoken);
  }

  sync(changes) {
    if (!["cursor", "data", "run"].some((change) => changes.has(change))) return;
    const {app} = this;
    const row = app.pinned && app.row !== null ? app.store.tokens[app.row] : null;
    this.close.hidden = !row;
    this.node.classList.toggle("pinned", Boolean(row));
    const key = row ? `${app.store.id} ${app.row} ${row.verdict} ${row.audit_rank}` : "";
    if (key === this.drawn) return;
    this.drawn = key;
    if (row) this.draw(row);
    else this.hint();
  }

  hint() {
    setText(this.title, "Token");
    setText(this.spoken, "");
    fill(this.body, h("p.muted", {}, "Click a token to see who wrote it and why. Arrow keys move by token, with Shift by cycle; Escape unpins."));
  }

  draw(row) {
    const {store} = this.app;
    const {code, name, label, why} = headline(row);
    setText(this.title, row.emitted ? `Token ${row.place}` : "Draft");
    fill(this.body,
      h("p.big-token", {}, label),
      h("p.tier-name", {}, badge(row, code), ` ${name}`),
      h("p.why", {}, why),
      h("dl.facts", {}, longFacts(store, row).map(([term, value, hint]) => [h("dt", {title: hint}, term), h("dd", {title: hint}, value)])));
    setText(this.spoken, `${label}, ${name}. ${why}`);
  }
}
