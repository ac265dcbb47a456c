// A laid-out tree as SVG: pills for tokens, thick edges for the winner, diamonds for uncertain positions.
// Everything a model wrote becomes a text node.

import { clamp, isNumber, ratio, svg } from "./dom.js";
import { oneLine } from "./shown_text.js";

const LEFT = 46; // room for the anchor and the name of the base line
const TOP = 24;
const PILL = 24; // pixels high
const LINE = 46;
const GAP = 14; // between two pills, where edges turn
const CHARACTER = 6.8; // width of the 11 px monospace font
const NARROWEST = 62;
const WIDEST = 84;
const BEND = 5;
const DIAMOND = {least: 4, most: 7.5};

// {node: <svg>, marks: one <g> a place}. `doubt` holds tau, the depths that were repaired and how far branch 0 alone
// would have come (null: not known); `name(place)` is what a screen reader says of it.
export function drawTree(layout, room, doubt, name) {
  const column = clamp(Math.floor((room - LEFT - 8) / Math.max(1, layout.depth)), NARROWEST, WIDEST);
  const at = (place) => ({x: LEFT + (place.depth - 1) * column + GAP, y: TOP + place.line * LINE + PILL / 2, wide: column - GAP});
  const width = LEFT + layout.depth * column + 8;
  const height = TOP + Math.max(1, layout.lines) * LINE;
  const marks = layout.places.map((place) => drawNode(place, at(place), doubtAt(layout, place, doubt), name(place)));
  const edges = layout.places.map((place) => drawEdge(layout, place, at));
  edges.sort((one, two) => one.best - two.best); // the winner lies on top
  const ends = layout.places.filter((place) => stopsHere(place, doubt)).map((place) => stopMark(at(place)));
  const node = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, class: "tree", role: "group"},
    baseLine(width), edges.map((edge) => edge.node), anchor(), ends, marks);
  return {node, marks};
}

function baseLine(width) {
  const y = TOP + PILL / 2;
  return svg("line", {class: "tree-base", x1: LEFT - 22, y1: y, x2: width - 4, y2: y});
}

function anchor() {
  const y = TOP + PILL / 2;
  return [
    svg("circle", {class: "tree-anchor", cx: LEFT - 20, cy: y, r: 5}),
    svg("text", {class: "tree-name", x: 2, y: TOP - 9, "aria-hidden": "true"}, "branch 0"),
  ];
}

function drawEdge(layout, place, at) {
  const {x: toX, y: toY} = at(place);
  const parent = layout.places[place.parent];
  const from = parent ? at(parent) : null;
  const [fromX, fromY] = from ? [from.x + from.wide, from.y] : [LEFT - 15, TOP + PILL / 2];
  const best = Number(place.row.on_best_path);
  const kind = ["tree-edge", best ? "best" : "", place.row.branch > 0 ? "repair" : "", place.row.accepted ? "kept" : ""].filter(Boolean).join(" ");
  return {best, node: svg("path", {class: kind, d: route(fromX, fromY, toX, toY)})};
}

function route(fromX, fromY, toX, toY) {
  if (fromY === toY) return `M${fromX} ${fromY}H${toX}`;
  const turn = toX - GAP / 2;
  const down = Math.sign(toY - fromY) * BEND;
  return `M${fromX} ${fromY}H${turn - BEND}Q${turn} ${fromY} ${turn} ${fromY + down}V${toY - down}Q${turn} ${toY} ${turn + BEND} ${toY}H${toX}`;
}

// Where branch 0 alone would have stopped: the bar stands before the first of its nodes that it would not have kept.
function stopsHere({row, depth}, {kept0}) {
  return kept0 !== null && row.branch === 0 && depth === kept0 + 1;
}

function stopMark({x, y}) {
  return svg("line", {class: "tree-stop", x1: x - 1.5, y1: y - 17, x2: x - 1.5, y2: y + 17});
}

// The diamond of a place, if any. A repaired position that is in no node of branch 0 has it on its first fork,
// without a margin.
function doubtAt({places}, place, {tau, repaired}) {
  const {row, depth, first} = place;
  if (row.is_ufp) return {margin: row.margin, tau, solid: repaired.has(depth)};
  if (!first || !repaired.has(depth) || places.some((one) => one.row.branch === 0 && one.depth === depth)) return null;
  return places.find((one) => one.first && one.depth === depth) === place ? {margin: null, tau, solid: true} : null;
}

function drawNode({row, first}, {x, y, wide}, doubt, name) {
  const top = y - PILL / 2;
  const kind = ["tree-node", row.accepted ? "kept" : "lost", row.on_best_path ? "best" : "", row.branch > 0 ? "repair" : ""].filter(Boolean).join(" ");
  const word = svg("svg", {x: x + 2, y: top, width: wide - 4, height: PILL},
    svg("text", {x: (wide - 4) / 2, y: PILL / 2 + 4, "text-anchor": "middle"}, cutToFit(row.text, wide - 10) || "∅"));
  return svg("g", {class: kind, role: "button", tabindex: -1, "aria-label": name},
    svg("rect", {x, y: top, width: wide, height: PILL, rx: 6}),
    word,
    first ? tag(row.branch, x, top - 5) : null,
    doubt ? diamond(doubt, first ? x + 34 : x + 8, top - 8) : null);
}

// The fork that marks such tokens in the text, as a shape, and the number of the branch.
function tag(branch, x, y) {
  return [
    svg("path", {class: "tree-fork", d: `M${x + 1} ${y - 9}v3q0 2 3 2q3 0 3 -2v-3M${x + 4} ${y - 4}v4`}),
    svg("text", {class: "tree-tag", x: x + 11, y}, branch),
  ];
}

function cutToFit(text, room) {
  const points = [...oneLine(text, 16)];
  const wide = (point) => (point.codePointAt(0) >= 0x1100 ? 2 : 1);
  const total = points.reduce((sum, point) => sum + wide(point), 0);
  const most = Math.floor(room / CHARACTER);
  if (total <= most) return points.join("");
  let used = 1; // the dots
  return `${points.filter((point) => (used += wide(point)) <= most).join("")}…`;
}

// The smaller the margin, the larger the diamond; solid where a repair was tried.
function diamond({margin, tau, solid}, x, y) {
  const scale = isNumber(tau) && tau > 0 ? tau : 1;
  const doubt = isNumber(margin) ? clamp(1 - margin / scale, 0, 1) : 0;
  const half = DIAMOND.least + doubt * (DIAMOND.most - DIAMOND.least);
  return [
    svg("path", {class: solid ? "tree-ufp" : "tree-ufp hollow", d: `M${x - half} ${y}L${x} ${y - half}L${x + half} ${y}L${x} ${y + half}Z`}),
    isNumber(margin) ? svg("text", {class: "tree-margin", x: x + half + 3, y: y + 4}, ratio(margin, 2)) : null,
  ];
}
