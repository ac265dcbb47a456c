// What was said about the found mask on texts the search never saw. Any value may come from a file, so each is
// looked at before it is shown.

import { fill, h, isNumber, number, percent, setText } from "./dom.js";
import { oneLine } from "./shown_text.js";

const OTHERS = [["even", "even"], ["contiguous", "contiguous"], ["random", "random (5 masks)"]];
const REGIONS = {A: "A kept", B: "B redrawn", C: "C escalated"};
const NOTE = 'On held-out texts. Cost is nats a position; "agrees" is how often the first choice is the full verifier\'s; the regions are shares of the full verifier\'s own tokens. Of random masks, costs and agreement are medians, the regions means.';

export class HeldOut {
  constructor() {
    this.note = h("p.empty", {});
    this.body = h("div.held-body", {});
    this.node = h("section.held-out", {"aria-label": "Held-out numbers"}, h("h4", {}, "Beside other masks of its size"), this.note, this.body);
    this.drawn = undefined;
  }

  draw(search) {
    const held = object(search.found?.held_out);
    this.node.hidden = !search.found && !search.live;
    setText(this.note, held ? NOTE : search.found && !search.live ? "Not judged yet: Judge does that, on texts the search never saw." : "Judged when the search has ended.");
    if (this.drawn === held) return;
    this.drawn = held;
    fill(this.body, held ? [table(held), facts(held)] : []);
  }
}

function object(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
}

function table(held) {
  const others = object(held.others) || {};
  const rows = [["found", held], ...OTHERS.map(([key, name]) => [name, object(others[key]) || {}])];
  const head = ["mask", "cost", "a window", "agrees", ...Object.values(REGIONS)].map((name) => h("th", {scope: "col"}, name));
  const line = ([name, numbers]) => h("tr", {}, h("th", {scope: "row"}, name),
    [number(numbers.cost, 4), number(numbers.block_cost, 4), percent(numbers.agreement, 1), ...Object.keys(REGIONS).map((key) => percent(object(numbers.regions)?.[key], 1))].map((text) => h("td.num", {}, text)));
  return h("div.table-scroll", {tabindex: "0", role: "region", "aria-label": "Held-out numbers of masks"},
    h("table.held", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(line))));
}

function facts(held) {
  const guess = object(held.predicted) || {};
  const gain = object(held.tier_gain) || {};
  const times = (value) => (isNumber(value) ? `${number(value, 3)} times` : "–");
  const pairs = [
    ["predicted cycles that call q (ρ)", percent(guess.rho)],
    ["weights skipped (r_eff)", percent(held.r_eff, 1)],
    ["tokens a cycle", `${number(guess.committed, 3)} (speculative decoding: ${number(guess.committed_by_sd, 3)})`],
    ["speed over speculative decoding", times(guess.speed)],
    ["gain of the tier", isNumber(gain.value) ? `${number(gain.value, 3)} nats a position` : oneLine(String(gain.reason ?? "–"), 120)],
  ];
  return h("dl.facts", {}, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}
