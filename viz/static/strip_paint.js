// Paints the cycle strip: one cell a cycle, height = tokens committed, fill = mix of tiers; ticks where a knob
// was applied, triangles where a repair branch won. With more cycles than pixels a cell stands for several.

import { startsRepair } from "./summary.js";
import { TIERS, TIER_CLASS } from "./words.js";

const SMALLEST_CELL = 2;
const LARGEST_CELL = 40;
export const TOP = 10;

// cells: [{from, to, counts, height, ticks, repair}], width of a cell in pixels, tallest height.
export function layoutStrip(store, width) {
  const count = store.cycles.length;
  const each = Math.max(1, Math.ceil(count / Math.max(1, Math.floor(width / SMALLEST_CELL))));
  const cells = [];
  const marks = marksOf(store);
  for (let from = 0; from < count; from += each) {
    const to = Math.min(count, from + each);
    const counts = countCell(store, from, to);
    const total = Object.values(counts).reduce((sum, value) => sum + value, 0);
    const inside = marks.filter((mark) => mark.at >= from && mark.at < to);
    cells.push({from, to, counts, height: total / (to - from), marks: inside});
  }
  const cellWidth = Math.min(LARGEST_CELL, width / Math.max(1, cells.length));
  const tallest = Math.max(1, ...cells.map((cell) => cell.height));
  return {cells, each, cellWidth, tallest};
}

function countCell(store, from, to) {
  const counts = {};
  const end = store.spans[to - 1][1];
  for (let index = store.spans[from][0]; index < end; index += 1) {
    const row = store.tokens[index];
    if (row.emitted) counts[row.verdict] = (counts[row.verdict] || 0) + 1;
  }
  return counts;
}

function marksOf(store) {
  const place = new Map(store.cycles.map((row, index) => [row.cycle, index]));
  const knobs = store.events.filter((row) => row.type === "param_change" && place.has(row.cycle));
  const repairs = store.tokens.filter((row, index) => row.emitted && startsRepair(store, index));
  const retracts = store.cycles.filter((row) => row.retracted > 0);
  return [
    ...knobs.map((row) => ({kind: "knob", at: place.get(row.cycle), row})),
    ...repairs.map((row) => ({kind: "repair", at: row.at})),
    ...retracts.map((row) => ({kind: "retract", at: place.get(row.cycle), row})),
  ];
}

export function paintStrip(context, layout, look, state) {
  const {width, height, ratio} = state;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const base = height - 1;
  const room = base - TOP;
  context.fillStyle = look.line;
  context.fillRect(0, base, width, 1);
  const gap = layout.cellWidth > 12 ? 2 : layout.cellWidth > 4 ? 1 : 0;
  layout.cells.forEach((cell, index) => {
    const x = index * layout.cellWidth;
    context.globalAlpha = cell.from > state.head ? 0.25 : 1;
    paintCell(context, cell, x, layout.cellWidth - gap, base, room / layout.tallest, look);
    context.globalAlpha = 1;
    for (const mark of cell.marks) paintMark(context, mark, x + (layout.cellWidth - gap) / 2, look);
  });
  paintCursor(context, layout, state, look);
}

function paintCell(context, cell, x, width, base, unit, look) {
  const cycles = cell.to - cell.from;
  let y = base;
  for (const tier of TIERS) {
    const count = cell.counts[tier.verdict] || 0;
    if (!count) continue;
    const tall = (count / cycles) * unit;
    context.fillStyle = look.fills[TIER_CLASS[tier.code]];
    context.fillRect(x, y - tall, width, tall);
    y -= tall;
  }
}

function paintMark(context, mark, x, look) {
  context.fillStyle = mark.kind === "repair" ? look.repair : look.ink;
  context.beginPath();
  if (mark.kind === "knob") {
    context.rect(x - 0.75, 0, 1.5, TOP - 2);
  } else if (mark.kind === "repair") {
    triangle(context, x, 1, TOP - 3);
  } else {
    triangle(context, x, TOP - 3, 1);
  }
  context.fill();
}

function triangle(context, x, tip, base) {
  context.moveTo(x, tip);
  context.lineTo(x + 4, base);
  context.lineTo(x - 4, base);
}

function paintCursor(context, layout, {head, focus, height, pinned}, look) {
  const place = (index) => Math.floor(index / layout.each) * layout.cellWidth;
  if (pinned && focus >= 0) {
    context.strokeStyle = look.accent;
    context.lineWidth = 1.5;
    context.strokeRect(place(focus) - 0.5, TOP - 2, Math.max(3, layout.cellWidth), height - TOP + 1);
  }
  if (head >= 0) {
    context.fillStyle = look.accent;
    context.fillRect(place(head) + layout.cellWidth - 1, TOP - 6, 2, height - TOP + 6);
  }
}
