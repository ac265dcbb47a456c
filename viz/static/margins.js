// The drafter's margins over a block as a strip of bars: which positions lie below tau, which were repaired. One tab
// stop; arrows, Home and End walk along the bars, Enter and Space do what a click does.

import { clamp, fill, h, isNumber, ratio, svg } from "./dom.js";
import { tokenLabel } from "./shown_text.js";
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
    this.columns = [];
    this.stop = 0; // index of the column that is the tab stop
    this.title = h("h4", {title: "top-1 minus top-2 log-probability of the drafter, nats; below τ the position is uncertain"}, "Margins of the draft");
    this.open = h("button.small", {type: "button", hidden: true, onclick: () => app.tell("viasd:tree", {})}, "Show the tree");
    this.scroll = h("div.margin-scroll", {});
    this.node = h("div.margins", {hidden: true}, h("div.panel-head", {}, this.title, h("span.gap", {}), this.open), this.scroll);
    this.scroll.addEventListener("click", (event) => this.pick(this.indexOf(event.target)));
    this.scroll.addEventListener("keydown", (event) => this.key(event));
  }

  show(store, at) {
    const focused = this.scroll.contains(document.activeElement);
    if (at !== this.at) this.stop = 0;
    this.at = at;
    const tree = treeAt(store, at);
    const marks = marginsOf(store, at, tree).slice(0, MOST);
    this.node.hidden = !marks.length;
    this.open.hidden = !tree.some((row) => row.branch > 0);
    const {node, columns} = drawStrip(marks, store.cycles[at].tau_margin, this.pinnedPosition());
    fill(this.scroll, node);
    this.columns = columns;
    this.makeStop(Math.min(this.stop, columns.length - 1));
    if (focused) columns[this.stop]?.focus({preventScroll: true}); // what was focused has been drawn anew
  }

  makeStop(index) {
    this.columns[this.stop]?.setAttribute("tabindex", -1);
    this.stop = Math.max(0, index);
    this.columns[this.stop]?.setAttribute("tabindex", 0);
  }

  indexOf(target) {
    return target instanceof Element ? this.columns.indexOf(target.closest(".margin-column")) : -1;
  }

  pinnedPosition() {
    const {app} = this;
    const row = app.pinned && app.row !== null ? app.store.tokens[app.row] : null;
    return row ? row.slot + 1 : null;
  }

  key(event) {
    const current = this.indexOf(event.target);
    if (current < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.columns.length - 1;
    const next = {ArrowLeft: Math.max(0, current - 1), ArrowRight: Math.min(last, current + 1), Home: 0, End: last}[event.key];
    if (next === undefined && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (next === undefined) this.pick(current);
    else this.go(next);
  }

  go(index) {
    this.makeStop(index);
    this.columns[index].focus();
  }

  // Goes to the token that stands at a column's position.
  pick(column) {
    if (column < 0) return;
    this.go(column);
    const index = standsAt(this.app.store, this.at, Number(this.columns[column].dataset.position));
    if (index !== null) this.app.select(index, true);
  }
}

// [{position, label, margin, uncertain, repaired}] of branch 0: from the tree, else from the drafted tokens. A repaired
// position that is in no node of branch 0 has neither token nor margin.
function marginsOf(store, at, tree) {
  const nodes = tree.filter((row) => row.branch === 0 && isNumber(row.margin));
  const repaired = repairedDepths(tree);
  const verified = new Set(tree.filter((row) => row.branch === 0).map((row) => row.depth));
  const left = isNumber(store.cycles[at].tau_margin) ? [...repaired].filter((depth) => !verified.has(depth)) : [];
  if (nodes.length || left.length) {
    return [
      ...nodes.map((row) => ({position: row.depth, label: tokenLabel({text: row.text, data: ""}), margin: row.margin, uncertain: row.is_ufp, repaired: repaired.has(row.depth)})),
      ...left.map((position) => ({position, label: "token not verified", margin: null, uncertain: true, repaired: true})),
    ].sort((one, two) => one.position - two.position);
  }
  const [from, to] = store.spans[at];
  return store.tokens.slice(from, to)
    .filter((row) => row.branch === 0 && row.source === "draft" && isNumber(row.top2_margin))
    .map((row) => ({position: row.slot + 1, label: tokenLabel(row), margin: row.top2_margin, uncertain: row.is_ufp, repaired: false}));
}

function drawStrip(marks, tau, pinned) {
  const known = isNumber(tau) && tau > 0;
  const finite = marks.map((mark) => mark.margin).filter(Number.isFinite);
  const full = known ? 2 * tau : Math.max(...finite, 1e-9);
  const width = LEFT + marks.length * COLUMN + 4;
  const height = TOP + BARS + BELOW;
  const level = (margin) => TOP + BARS * (1 - (isNumber(margin) ? clamp(margin / full, 0, 1) : 0));
  const columns = marks.map((mark, index) => drawColumn(mark, LEFT + index * COLUMN, level(mark.margin), mark.position === pinned));
  const line = known ? [
    svg("line", {class: "margin-tau", x1: LEFT - 4, x2: width, y1: level(tau), y2: level(tau)}),
    svg("text", {class: "margin-name", x: 0, y: level(tau) + 4}, `τ ${ratio(tau, 2)}`),
  ] : null;
  const node = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, class: "margin-strip", role: "group", "aria-label": spoken(marks, tau, known)}, columns, line);
  return {node, columns};
}

function drawColumn({position, label, margin, uncertain, repaired}, x, y, pinned) {
  const words = [`position ${position}`, label, isNumber(margin) ? `margin ${ratio(margin, 2)}` : "margin unknown"];
  const name = [...words, uncertain ? `uncertain, ${repaired ? "repaired" : "not repaired"}` : ""].filter(Boolean).join(" · ");
  const middle = x + COLUMN / 2;
  const base = TOP + BARS;
  return svg("g", {class: pinned ? "margin-column now" : "margin-column", "data-position": position, role: "button", tabindex: -1, "aria-label": name},
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
