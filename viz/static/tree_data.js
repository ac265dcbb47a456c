// The draft trees of a run by cycle, what each of them gained and cost, and where a node stands in the text.

import { keptOnBest, keptOnBranch0 } from "./summary.js";
import { isNumber, milliseconds, number, ratio } from "./dom.js";

const indexes = new WeakMap(); // store -> {seen rows, seen cycles, rows by cycle number, cycles with a repair}
const DRAFTED = new Set(SCHEMA.positions.drafted);

function indexOf(store) {
  if (!indexes.has(store)) indexes.set(store, {rows: 0, cycles: 0, trees: new Map(), repaired: []});
  const index = indexes.get(store);
  for (; index.rows < store.tree.length; index.rows += 1) {
    const row = store.tree[index.rows];
    if (!index.trees.has(row.cycle)) index.trees.set(row.cycle, []);
    index.trees.get(row.cycle).push(row);
  }
  for (; index.cycles < store.cycles.length; index.cycles += 1) {
    if (treeOf(index, store.cycles[index.cycles]).some((row) => row.branch > 0)) index.repaired.push(index.cycles);
  }
  return index;
}

function treeOf(index, cycle) {
  return cycle ? index.trees.get(cycle.cycle) || [] : [];
}

// Tree rows of the cycle at an index.
export function treeAt(store, at) {
  return treeOf(indexOf(store), store.cycles[at]);
}

// Indices of the cycles whose tree holds a repair branch, ascending.
export function repairedCycles(store) {
  return indexOf(store).repaired;
}

// Index of the token row that a tree row became, or null when it is in no row.
export function tokenOf(store, at, row) {
  const found = drafts(store, at).find((index) => isSame(store, at, store.tokens[index], row));
  return found ?? null;
}

// The tree row of a drafted token, or null.
export function rowOf(store, tokenIndex) {
  const token = store.tokens[tokenIndex];
  if (!token || !DRAFTED.has(token.source)) return null;
  return treeAt(store, token.at).find((row) => isSame(store, token.at, token, row)) ?? null;
}

// Index of the emitted token that stands at a depth of the block, or null.
export function standsAt(store, at, depth) {
  const [from, to] = store.spans[at];
  for (let index = from; index < to; index += 1) {
    if (store.tokens[index].emitted && store.tokens[index].slot === depth - 1) return index;
  }
  return null;
}

function drafts(store, at) {
  const [from, to] = store.spans[at];
  const found = [];
  for (let index = from; index < to; index += 1) if (DRAFTED.has(store.tokens[index].source)) found.push(index);
  return found;
}

// By node where the trace names nodes, else by place.
function isSame(store, at, token, row) {
  if (token.node >= 0) return token.node === row.node;
  return token.branch === row.branch && token.slot === row.depth - 1 && token.token_id === row.token_id;
}

// What one tree was for: kept drafts on the best path and on branch 0, rows, branches, uncertain positions.
export function judge(rows) {
  const best = rows.filter(keptOnBest);
  return {
    kept: best.length,
    kept0: rows.filter(keptOnBranch0).length,
    length0: rows.filter((row) => row.branch === 0).length,
    nodes: rows.length,
    branches: new Set(rows.filter((row) => row.branch > 0).map((row) => row.branch)).size,
    winner: rows.reduce((most, row) => (row.on_best_path ? Math.max(most, row.branch) : most), 0),
    chosen: rows.filter((row) => row.is_ufp).sort((one, two) => one.depth - two.depth),
  };
}

// Whether branch 0 would have won, and how far it would have got; then the bill.
export function treeSentences(rows, cycle) {
  const tree = judge(rows);
  const drafts = `${tree.kept} drafted token${tree.kept === 1 ? "" : "s"}`;
  const extra = tree.kept - tree.kept0;
  const verdict = extra > 0
    ? `Repair ${tree.winner} won: ${drafts} kept, ${extra} more than branch 0, which would have stopped after ${tree.kept0} of ${tree.length0}.`
    : `Branch 0 won: it kept ${tree.kept0} of ${tree.length0}, and no repair got further.`;
  const marks = tree.chosen.map((row) => `position ${row.depth}${isNumber(row.margin) ? `, margin ${ratio(row.margin, 2)}` : ""}`);
  const below = isNumber(cycle.tau_margin) ? ` below τ ${ratio(cycle.tau_margin, 2)}` : "";
  const where = marks.length ? `Uncertain${below}: ${marks.slice(0, 4).join("; ")}${marks.length > 4 ? " …" : ""}. ` : "";
  const spent = ["tree", "resync"].filter((phase) => cycle.phase_us[phase] > 0).map((phase) => `${phase} ${milliseconds(cycle.phase_us[phase])}`);
  const budget = isNumber(cycle.v_max) ? ` of at most ${cycle.v_max}` : "";
  const bill = `${where}${tree.branches} repair branch${tree.branches === 1 ? "" : "es"}; ${tree.nodes} rows verified${budget}, ${tree.nodes - tree.length0} of them for repair; ${spent.join(", ") || "no extra time was recorded"}.`;
  return {verdict, bill};
}

// Why there is nothing to draw.
export function emptySentence(rows, cycle) {
  if (!rows.length) return "No tree in this cycle.";
  const least = rows.filter((row) => row.branch === 0 && isNumber(row.margin)).reduce((found, row) => Math.min(found, row.margin), Infinity);
  const known = Number.isFinite(least) && isNumber(cycle.tau_margin);
  if (known && least >= cycle.tau_margin) return `No repair in this cycle: the smallest margin, ${number(least, 3)}, is not below τ ${ratio(cycle.tau_margin, 2)}.`;
  return `No repair in this cycle: branch 0 alone was verified, ${rows.length} row${rows.length === 1 ? "" : "s"}.`;
}
