// The drafter's margins over a block as a strip of bars: which positions lie below tau, which were repaired.

import { clamp, fill, h, isNumber, ratio, svg } from "./dom.js";
import { repairedDepths, standsAt, treeAt } from "./tree_data.js";

const COLUMN = 34;
const BARS = 46;
const TOP = 14; // room for the diamonds
const BELOW = 32; // position and number under a bar
const LEFT = 46; // the name of the line at tau
const MOST = 64; // positions drawn

export class MarginStrip {
  constructor(app) {
    this.app = app;
    this.at = -1;
    this.title = h("h4", {title: "top-1 minus top-2 log-probability of the drafter, nats; below τ the position is uncertain"}, "Margins of the draft");
    this.open = h("button.small", {type: "button", hidden: true, onclick: () => app.tell("viasd:tree", {})}, "Show the tree");
    this.scroll = h("div.margin-scroll", {tabindex: 0, role: "region", "aria-label": "Margins of the draft"});
    this.node = h("div.margins", {hidden: true}, h("div.panel-head", {}, this.title, h("span.gap", {}), this.open), this.scroll);
    this.scroll.addEventListener("click", (event) => this.click(event));
  }

  show(store, at) {
    this.at = at;
    const tree = treeAt(store, at);
    const marks = marginsOf(store, at, tree);
    this.node.hidden = !marks.length;
    this.open.hidden = !tree.some((row) => row.branch > 0);
    if (marks.length) fill(this.scroll, drawStrip(marks.slice(0, MOST), store.cycles[at].tau_margin, this.pinnedPosition()));
  }

  pinnedPosition() {
    const {app} = this;
    const row = app.pinned && app.row !== null ? app.store.tokens[app.row] : null;
    return row ? row.slot + 1 : null;
  }

  click(event) {
    const column = event.target.closest("[data-position]");
    if (!column) return;
    const index = standsAt(this.app.store, this.at, Number(column.dataset.position));
    if (index !== null) this.app.select(index, true);
  }
}

// [{position, margin, uncertain, repaired}] of branch 0: from the tree, else from the drafted tokens.
function marginsOf(store, at, tree) {
  const nodes = tree.filter((row) => row.branch === 0 && isNumber(row.margin));
  const repaired = repairedDepths(tree);
  if (nodes.length) {
    return nodes.map((row) => ({position: row.depth, margin: row.margin, uncertain: row.is_ufp, repaired: repaired.has(row.depth)}))
      .sort((one, two) => one.position - two.position);
  }
  const [from, to] = store.spans[at];
  return store.tokens.slice(from, to)
    .filter((row) => row.branch === 0 && row.source === "draft" && isNumber(row.top2_margin))
    .map((row) => ({position: row.slot + 1, margin: row.top2_margin, uncertain: row.is_ufp, repaired: false}));
}

function drawStrip(marks, tau, pinned) {
  const known = isNumber(tau) && tau > 0;
  const finite = marks.map((mark) => mark.margin).filter(Number.isFinite);
  const full = known ? 2 * tau : Math.max(...finite, 1e-9);
  const width = LEFT + marks.length * COLUMN + 4;
  const height = TOP + BARS + BELOW;
  const level = (margin) => TOP + BARS * (1 - clamp(margin / full, 0, 1));
  const columns = marks.map((mark, index) => drawColumn(mark, LEFT + index * COLUMN, level(mark.margin), mark.position === pinned));
  const line = known ? [
    svg("line", {class: "margin-tau", x1: LEFT - 4, x2: width, y1: level(tau), y2: level(tau)}),
    svg("text", {class: "margin-name", x: 0, y: level(tau) + 4}, `τ ${ratio(tau, 2)}`),
  ] : null;
  return svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, class: "margin-strip", role: "img", "aria-label": spoken(marks, tau, known)}, columns, line);
}

function drawColumn({position, margin, uncertain, repaired}, x, y, pinned) {
  const middle = x + COLUMN / 2;
  const base = TOP + BARS;
  return svg("g", {class: pinned ? "margin-column now" : "margin-column", "data-position": position},
    svg("rect", {class: "margin-hit", x, y: 0, width: COLUMN, height: base + BELOW}),
    svg("rect", {class: uncertain ? "margin-bar below" : "margin-bar", x: x + 7, y: Math.min(y, base - 1), width: COLUMN - 14, height: Math.max(1, base - y)}),
    uncertain ? svg("path", {class: repaired ? "tree-ufp" : "tree-ufp hollow", d: `M${middle - 5} ${y - 7}l5 -5l5 5l-5 5Z`}) : null,
    svg("text", {class: uncertain ? "margin-value below" : "margin-value", x: middle, y: base + 13, "text-anchor": "middle"}, ratio(margin, 2)),
    svg("text", {class: "margin-name", x: middle, y: base + 27, "text-anchor": "middle"}, position));
}

function spoken(marks, tau, known) {
  const list = (found) => found.map((mark) => `${mark.position} (${ratio(mark.margin, 2)})`).join(", ") || "none";
  const below = ` Uncertain${known ? ` (below τ ${ratio(tau, 2)})` : ""}: ${list(marks.filter((mark) => mark.uncertain))}.`;
  return `Margins of ${marks.length} drafted position${marks.length === 1 ? "" : "s"}.${below} Repaired: ${list(marks.filter((mark) => mark.repaired))}.`;
}
