// One cycle in full: a row for every drafted position and drawn token, and where its time went.

import { fill, h, milliseconds, number, probability, ratio } from "./dom.js";
import { reason, tierCode, verdictName, PHASE_NAMES } from "./words.js";
import { oneLine, tokenLabel } from "./shown_text.js";
import { badge } from "./inspector.js";
import { MarginStrip } from "./margins.js";
import { Pace } from "./pace.js";

const SHOWN_ROWS = 80;
const LIVE_MS = 250;

export class CyclePanel {
  constructor(app) {
    this.app = app;
    this.drawn = "";
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.title = h("h3", {});
    this.note = h("p.cycle-note", {});
    this.body = h("tbody", {});
    this.phases = h("div.phases", {});
    this.margins = new MarginStrip(app);
    const head = ["#", "token", "p", "q′", "q", "slim ratio", "verdict", "why"].map((name) => h("th", {scope: "col", title: HINTS[name] || ""}, name));
    this.table = h("table.cycle", {}, h("thead", {}, h("tr", {}, head)), this.body);
    this.back = h("button.small", {type: "button", onclick: () => app.pinCycle(app.focusCycle - 1)}, "‹ previous cycle");
    this.next = h("button.small", {type: "button", onclick: () => app.pinCycle(app.focusCycle + 1)}, "next cycle ›");
    this.node = h("section.cycle-panel", {"aria-label": "Cycle in detail"},
      h("div.panel-head", {}, this.title, h("span.gap", {}), this.back, this.next), this.note, this.phases, h("div.table-scroll", {tabindex: 0, role: "region", "aria-label": "Drafted positions of the cycle"}, this.table), this.margins.node);
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest("tr");
      if (line) app.select(Number(line.dataset.row), true);
    });
  }

  sync(changes) {
    if (!["data", "head", "cursor", "run"].some((change) => changes.has(change))) return;
    const {app} = this;
    if (app.store.live && !app.pinned && app.head === null) this.pace.ask();
    else this.pace.now();
  }

  draw() {
    const {app} = this;
    const index = app.focusCycle;
    const key = `${app.store.id} ${index} ${app.row} ${app.pinned} ${app.store.ended}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const {store} = app;
    const cycle = store.cycles[index];
    this.node.hidden = !cycle;
    if (!cycle) return;
    this.back.disabled = index <= 0;
    this.next.disabled = index >= store.cycles.length - 1;
    fill(this.title, `Cycle ${cycle.cycle}`);
    fill(this.note, cycleWords(cycle));
    const [from, to] = store.spans[index];
    const end = Math.min(to, from + SHOWN_ROWS);
    const lines = [];
    for (let at = from; at < end; at += 1) lines.push(this.line(store.tokens[at], at));
    if (to > end) lines.push(h("tr", {}, h("td", {colspan: 8}, `and ${to - end} more rows`)));
    fill(this.body, lines);
    fill(this.phases, phaseBar(cycle.phase_us));
    this.margins.show(store, index);
  }

  line(row, index) {
    const dim = row.verdict === "discarded" ? " dim" : "";
    const now = this.app.pinned && this.app.row === index ? " now" : "";
    const drawn = row.source !== "draft" && row.source !== "repair";
    return h("tr", {class: `${row.verdict}${dim}${now}`, "data-row": index},
      h("td.num", {}, row.slot),
      h("td.word", {title: tokenLabel(row)}, drawn ? h("span.muted", {"aria-hidden": "true"}, "↳ ") : null, oneLine(row.text, 24) || tokenLabel(row), row.shown ? null : h("span.muted", {}, " (hidden)")),
      h("td.num", {}, probability(row.logp_draft)),
      h("td.num", {}, probability(row.logp_slim)),
      h("td.num", {}, probability(row.logp_full)),
      h("td", {}, ratioBar(row)),
      h("td.verdict", {}, badge(row, tierCode(row)), ` ${verdictName(row)}`),
      h("td.why", {}, reason(row)));
  }
}

const HINTS = {
  p: "the drafter's probability, temperature 1",
  "q′": "the slim verifier's probability, temperature 1",
  q: "the full verifier's probability, temperature 1; empty where it was not asked",
  "slim ratio": "q′ of the draft over the largest q′; ticks at τ₂ and τ₁",
};

function cycleWords(cycle) {
  const knob = (name, value) => (value === null ? [] : [`${name} ${trim(value)}`]);
  const facts = [
    `drafted ${cycle.drafted} of γ ${cycle.gamma}`,
    `committed ${cycle.committed}`,
    ...knob("α₁", cycle.alpha1),
    ...knob("α₂", cycle.alpha2),
    ...knob("skip", cycle.skip_ratio),
    ...knob("T", cycle.temperature),
    ...knob("τ margin", cycle.tau_margin),
    ...knob("V max", cycle.v_max),
    ...(cycle.retracted ? [`took back ${cycle.retracted}`] : []),
    ...(cycle.debt ? [`debt ${cycle.debt} rows`] : []),
  ];
  const called = cycle.full_forwards + cycle.settle_forwards;
  const why = called ? `Full verifier called${cycle.reason ? `: ${oneLine(cycle.reason, 200)}` : ""}.` : "Full verifier not called.";
  return `${facts.join(" · ")}. ${why}`;
}

function trim(value) {
  return String(Number(value.toPrecision(4)));
}

// The ratio as a bar with a tick at each threshold; the number stands beside it.
export function ratioBar(row) {
  if (row.slim_ratio === null) return h("span.muted", {}, "–");
  const place = (value) => `${100 * Math.max(0, Math.min(1, value))}%`;
  const tick = (name, value) => (value === null ? null : h(`i.tick.${name}`, {style: {left: place(value)}, title: `${name === "one" ? "τ₁" : "τ₂"} ${ratio(value, 2)}`}));
  return h("span.ratio", {},
    h("span.track", {"aria-hidden": "true"}, h("i.level", {style: {width: place(row.slim_ratio)}}), tick("two", row.thr2), tick("one", row.thr1)),
    h("span.num", {}, ratio(row.slim_ratio)));
}

export function phaseBar(phases) {
  const total = SCHEMA.phases.reduce((sum, phase) => sum + (phases[phase] || 0), 0);
  if (!total) return h("p.muted", {}, "No times were recorded.");
  const used = SCHEMA.phases.filter((phase) => phases[phase] > 0);
  const part = (phase) => h(`i.phase.ph-${phase}`, {style: {flex: `${phases[phase]} 0 0`}, title: `${phase} ${milliseconds(phases[phase])}`});
  const label = (phase) => h("span.phase-label", {}, h(`i.dot.ph-${phase}`, {}), `${PHASE_NAMES[phase]} ${milliseconds(phases[phase])}`);
  return [h("div.phase-bar", {role: "img", "aria-label": used.map((phase) => `${phase} ${milliseconds(phases[phase])}`).join(", ")}, used.map(part)),
    h("div.phase-labels", {}, used.map(label), h("span.phase-label.muted", {}, `total ${milliseconds(total)}`))];
}

