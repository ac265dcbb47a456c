// Which share of the drafts at each position of their block was kept: the browser's counterpart of
// viasd_core.trace_positions, up to a cycle of a replay, as a table whose rows carry a bar.

import { fill, h, percent, setText } from "./dom.js";
import { verdictAt } from "./summary.js";

const {definition: DEFINITION, accepted: ACCEPTED, drafted: DRAFTED, most: MOST} = SCHEMA.positions;
const NONE = "No draft has been examined yet.";
const PLAIN = "Plain decoding: nothing is drafted.";
const READING = "n: examined drafts. Those behind the end of a block are never examined, so n falls.";

// [{position, examined, accepted}], from 1 to the last position at which a draft stood.
export function acceptanceByPosition(store, until = Infinity) {
  const counts = [];
  for (const row of store.tokens) {
    if (row.cycle > until || !DRAFTED.includes(row.source) || row.slot < 0 || row.slot >= MOST) continue;
    while (counts.length <= row.slot) counts.push({position: counts.length + 1, examined: 0, accepted: 0});
    if (!row.region) continue;
    counts[row.slot].examined += 1;
    counts[row.slot].accepted += Number(ACCEPTED.includes(verdictAt(row, until)));
  }
  return counts;
}

// Rows are kept and rewritten, so that a reader's place in the table outlasts a running decode.
export class PositionTable {
  constructor() {
    this.lines = [];
    this.total = new Line("all");
    this.body = h("tbody", {});
    this.note = h("p.muted.small-print", {});
    const head = h("tr", {}, h("th", {scope: "col"}, h("span", {"aria-hidden": "true"}, "#"), h("span.sr", {}, "position in the draft")), h("th", {scope: "col"}, "share accepted"), h("th", {scope: "col"}, "accepted of n"));
    const table = h("table.positions", {}, h("caption.sr", {}, "Acceptance by draft position"), h("thead", {}, head), this.body, h("tfoot", {}, this.total.node));
    this.scroll = h("div.table-scroll", {tabindex: 0, role: "region", "aria-label": "Acceptance by draft position"}, table);
    this.node = h("div.block.positions-block", {}, h("h4", {title: DEFINITION, tabindex: 0}, "Acceptance by draft position"), this.scroll, this.note);
  }

  show(counts, method) {
    const total = {examined: sum(counts, "examined"), accepted: sum(counts, "accepted")};
    this.scroll.hidden = !total.examined;
    setText(this.note, total.examined ? READING : method === "ar" ? PLAIN : NONE);
    if (this.lines.length !== counts.length) {
      this.lines = counts.map(({position}) => this.lines[position - 1] || new Line(position));
      fill(this.body, this.lines.map((line) => line.node));
    }
    counts.forEach((count, index) => this.lines[index].show(count));
    this.total.show(total);
  }
}

function sum(counts, field) {
  return counts.reduce((total, count) => total + count[field], 0);
}

class Line {
  constructor(name) {
    this.level = h("i.position-level", {});
    this.share = h("span.num", {});
    this.count = h("td.num", {});
    const bar = h("span.position-bar", {}, h("span.position-track", {"aria-hidden": "true"}, this.level), this.share);
    this.node = h("tr", {}, h("th", {scope: "row"}, name), h("td", {}, bar), this.count);
  }

  show({examined, accepted}) {
    this.node.classList.toggle("muted", !examined);
    this.level.style.width = `${examined ? (100 * accepted) / examined : 0}%`;
    setText(this.share, percent(examined ? accepted / examined : null));
    setText(this.count, examined ? `${accepted} of ${examined}` : "none");
  }
}
