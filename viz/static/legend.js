// Chips: a tier each, with its count; pressing one takes its marking out of the text. Then the view options.

import { h, setText } from "./dom.js";
import { Pace } from "./pace.js";
import { summarise } from "./summary.js";
import { TIERS, TIER_CLASS } from "./words.js";

const LIVE_MS = 150;

export class Legend {
  constructor(app) {
    this.app = app;
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.chips = TIERS.map((tier) => this.tierChip(tier));
    this.repair = h("span.chip.plain", {hidden: true, title: "Tokens of a repair branch, whatever their tier"});
    this.hidden = h("button.chip.plain", {type: "button", hidden: true, onclick: () => this.nextHidden(), title: "Special tokens and trimmed stop strings are not part of the text; press to inspect them"});
    this.retracted = h("span.chip.plain", {hidden: true, title: "Shown, then taken back by strict mode"});
    this.ghosts = h("button.chip.option", {type: "button", "aria-pressed": "false", title: "Show rejected and discarded drafts in the text", onclick: () => app.setOption("ghosts", !app.options.ghosts)});
    this.patterns = h("button.chip.option", {type: "button", "aria-pressed": "false", title: "Tell the tiers apart without colour", onclick: () => app.setOption("patterns", !app.options.patterns)}, "Patterns only");
    this.node = h("div.tier-chips", {role: "group", "aria-label": "Tiers; press one to take it out of the marking"},
      this.chips.map((chip) => chip.node), this.repair, this.retracted, this.hidden, h("span.gap", {}), this.ghosts, this.patterns);
  }

  tierChip(tier) {
    const code = TIER_CLASS[tier.code];
    const count = h("span.count", {});
    const node = h("button.chip.tier", {type: "button", "aria-pressed": "true", title: `${tier.name}: press to leave out, with Shift to see it alone`, onclick: (event) => this.toggle(code, event.shiftKey)},
      h("span.swatch.t", {"aria-hidden": "true"}, tier.code), h("span.long", {}, tier.name), h("span.short", {}, tier.short), count);
    node.querySelector(".swatch").classList.add(code);
    return {tier, code, node, count};
  }

  toggle(code, alone) {
    const codes = Object.values(TIER_CLASS);
    const off = new Set(this.app.options.off);
    if (alone) {
      const wasAlone = off.size === codes.length - 1 && !off.has(code);
      this.app.setOption("off", wasAlone ? new Set() : new Set(codes.filter((other) => other !== code)));
      return;
    }
    if (!off.delete(code)) off.add(code);
    this.app.setOption("off", off);
  }

  nextHidden() {
    const {app} = this;
    const found = app.store.tokens.map((row, index) => (row.emitted && !row.shown ? index : -1)).filter((index) => index >= 0);
    const after = found.find((index) => app.row === null || index > app.row);
    app.select(after ?? found[0], true);
  }

  sync(changes) {
    if (changes.has("run") || changes.has("options")) this.pace.now();
    else if (changes.has("data") || changes.has("head")) this.pace.ask();
  }

  draw() {
    const {app} = this;
    const {counts, new_tokens: total} = summarise(app.store, app.until);
    for (const {tier, code, node, count} of this.chips) {
      const found = counts[tier.verdict];
      setText(count, found ? `${found} · ${Math.round((100 * found) / total)} %` : "0");
      node.classList.toggle("none", !found);
      node.setAttribute("aria-pressed", String(!app.options.off.has(code)));
    }
    const rows = app.store.tokens.filter((row) => row.cycle <= app.until);
    const ghosts = rows.filter((row) => row.verdict === "rejected" || row.verdict === "discarded").length;
    this.badge(this.repair, rows.filter((row) => row.emitted && row.branch > 0).length, "Ψ repair");
    this.badge(this.retracted, rows.filter((row) => row.verdict === "retracted").length, "taken back");
    this.badge(this.hidden, rows.filter((row) => row.emitted && !row.shown).length, "not in the text");
    setText(this.ghosts, `× Rejected drafts ${ghosts}`);
    this.ghosts.setAttribute("aria-pressed", String(app.options.ghosts));
    this.patterns.setAttribute("aria-pressed", String(app.options.patterns));
  }

  badge(node, count, words) {
    node.hidden = !count;
    setText(node, `${words} ${count}`);
  }
}
