// The running figures of a run, and whether the slim tier pays.

import { fill, h, isNumber, number, percent, ratio, setText } from "./dom.js";
import { emptySlim, selfChecks, summarise } from "./summary.js";
import { breakEven } from "./pays.js";
import { phaseBar } from "./cycle.js";
import { acceptanceByPosition, PositionTable } from "./positions.js";
import { Pace } from "./pace.js";

const LIVE_MS = 250;
const PAYS_HINT = "Cost a token: (draft + t_q′ + ρ t_q) / m with three tiers against (draft + t_q) / m with two. Times t are means of the measured phases; "
  + "m is tokens a cycle. For two tiers m is estimated as (1 − a^(γ+1)) / (1 − a), a = how often the full verifier keeps a drafted token, from the audit and region C.";

export class Numbers {
  constructor(app) {
    this.app = app;
    this.pace = new Pace(LIVE_MS, () => this.draw());
    this.tiles = h("div.tiles", {});
    this.mixture = h("div.block", {});
    this.positions = new PositionTable();
    this.phases = h("div.block", {});
    this.pays = h("div.block.pays", {});
    this.checks = h("p.checks", {});
    this.warning = h("p.warning", {hidden: true});
    this.node = h("section.numbers", {"aria-label": "Numbers of the run"}, this.warning, this.mixture, this.positions.node, this.phases, this.pays, this.checks);
  }

  sync(changes) {
    if (!["data", "head", "run"].some((change) => changes.has(change))) return;
    if (changes.has("run")) this.pace.now();
    else this.pace.ask();
  }

  draw() {
    const {app} = this;
    const summary = summarise(app.store, app.until);
    fill(this.tiles, tiles(app, summary));
    fill(this.mixture, mixtureBlock(summary));
    this.positions.show(acceptanceByPosition(app.store, app.until), app.store.run.method);
    fill(this.phases, h("h4", {title: "measured time of all cycles shown"}, "Where the time goes"), phaseBar(summary.phases_us));
    fill(this.pays, paysBlock(breakEven(app.store, summary, app.until)));
    this.drawChecks(summary);
  }

  drawChecks(summary) {
    const {app} = this;
    const checks = selfChecks(app.store, summary, app.until);
    const broken = checks.filter(([, holds]) => !holds);
    this.checks.classList.toggle("bad", broken.length > 0);
    setText(this.checks, broken.length
      ? `Self-check failed: ${broken.map(([words]) => words).join("; ")}. Do not trust the colours of this run.`
      : `Self-check: ${checks.map(([words]) => words).join(", ")}.`);
    const warnings = [emptySlim(app.store, summary), ...app.store.problems.slice(0, 3)].filter(Boolean);
    this.warning.hidden = !warnings.length;
    setText(this.warning, warnings.join(" "));
  }
}

function tiles(app, summary) {
  const {store} = app;
  const speed = app.head === null && isNumber(store.run.tokens_per_s) ? store.run.tokens_per_s : summary.new_tokens / (summary.end_us / 1e6);
  const define = SCHEMA.definitions;
  const audit = summary.audit;
  return [
    tile("tokens/s", number(speed), define.tokens_per_s, `${summary.new_tokens} tokens`),
    tile("tokens a cycle", ratio(summary.mean_committed, 2), define.mean_committed, `${summary.cycles} cycles`),
    tile("rejected", percent(summary.rejection_rate, 1), define.rejection_rate, `of ${summary.examined} examined`),
    tile("cycles that asked q", percent(summary.escalation_rate, 1), define.escalation_rate, `${summary.full_forwards} + ${summary.settle_forwards} forwards`),
    tile("audit agreement", percent(audit.agree, 1), define["audit.agree"], audit.slim ? `${audit.slim} slim tokens judged` : "no slim token judged"),
  ];
}

function tile(name, value, definition, note) {
  return h("div.tile", {title: definition, tabindex: 0, "aria-label": `${name}: ${value}. ${definition}`}, h("span.tile-name", {}, name), h("span.tile-value", {}, value), h("span.tile-note", {}, note));
}

function mixtureBlock({mixture, regions, examined}) {
  const words = {A: "kept by slim", B: "redrawn by slim", C: "sent to full"};
  const title = h("h4", {title: SCHEMA.definitions.mixture}, "Examined drafts by region");
  if (!examined) return [title, h("p.muted", {}, "No draft has been examined yet.")];
  const parts = Object.keys(words).filter((region) => regions[region]);
  return [title,
    h("div.phase-bar", {role: "img", "aria-label": parts.map((region) => `region ${region} ${percent(mixture[region])}`).join(", ")},
      parts.map((region) => h(`i.phase.region-${region}`, {style: {flex: `${regions[region]} 0 0`}, title: `region ${region}: ${regions[region]}`}))),
    h("div.phase-labels", {}, Object.entries(words).map(([region, meaning]) => h("span.phase-label", {}, h(`i.dot.region-${region}`, {}), `region ${region}, ${meaning}: ${percent(mixture[region])}`)))];
}

function paysBlock({rows = [], unknown = "", pays, sentence = "", facts = null}) {
  const most = Math.max(...rows.map((row) => row.us), 1e-9);
  const bars = rows.map((row) => h("div.cost", {},
    h("span.cost-name", {}, row.name),
    h("span.cost-track", {}, h(row.measured ? "i.cost-level" : "i.cost-level.estimate", {style: {width: `${(100 * row.us) / most}%`}})),
    h("span.num", {}, `${number(row.us / 1000)} ms`)));
  return [
    h("h4", {title: PAYS_HINT, tabindex: 0}, "Does it pay? ", h("span.muted", {}, "time a token")),
    bars,
    sentence ? h("p.sentence", {}, h(pays ? "span.yes" : "span.no", {"aria-hidden": "true"}, pays ? "✓ " : "✗ "), sentence) : null,
    unknown ? h("p.muted", {}, unknown) : null,
    facts ? h("p.muted.small-print", {}, estimateWords(facts)) : null,
  ];
}

function estimateWords({chance, judged, mSd, mVia, tQ, tSlim, draft}) {
  return `Estimate: the full verifier keeps ${percent(chance)} of ${judged} judged draft${judged === 1 ? "" : "s"}, so two tiers would commit about ${number(mSd, 3)} tokens a cycle (three tiers: ${number(mVia, 3)}). `
    + `A cycle drafts for ${number(draft / 1000)} ms; one slim forward takes ${number(tSlim / 1000)} ms, one full forward ${number(tQ / 1000)} ms.`;
}
