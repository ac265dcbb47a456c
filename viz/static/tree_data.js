// The draft trees of a run by cycle, what each of them gained and cost, and where a node stands in the text.

import { keptOnBranch0, keptOnPath, uncertainPositions } from "./repair_gains.js";
import { isNumber, number, ratio } from "./dom.js";

const indexes = new WeakMap(); // store -> {seen rows, seen cycles, rows by cycle number, cycles with a repair}
const MOST_NAMED = 6; // positions in a sentence
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

// Depths at which repairs were tried: where a branch leaves branch 0.
export function repairedDepths(rows) {
  const branch = new Map(rows.map((row) => [row.node, row.branch]));
  return new Set(rows.filter((row) => row.branch > 0 && !branch.get(row.parent)).map((row) => row.depth));
}

// What one tree was for: kept drafts on the path and on branch 0 alone (null: not known), whether the run verified
// branch 0 at all, rows, branches, repaired positions.
export function judge(rows, cycle, run) {
  const depths = repairedDepths(rows);
  return {
    kept: keptOnPath(rows),
    kept0: keptOnBranch0(cycle, rows),
    length0: rows.filter((row) => row.branch === 0).length,
    verified0: run.settings?.branch0 !== false,
    nodes: rows.length,
    branches: new Set(rows.filter((row) => row.branch > 0).map((row) => row.branch)).size,
    winner: rows.reduce((most, row) => (row.on_best_path ? Math.max(most, row.branch) : most), 0),
    uncertain: uncertainPositions(cycle, rows),
    repaired: [...depths].sort((one, two) => one - two).map((depth) => ({depth, margin: marginAt(rows, depth)})),
  };
}

function marginAt(rows, depth) {
  return rows.find((row) => row.branch === 0 && row.depth === depth)?.margin ?? null;
}

// Whether branch 0 would have won, and how far it would have got; then where repairs were tried.
export function treeSentences(tree, cycle) {
  const marks = tree.repaired.map(({depth, margin}) => `${depth}${isNumber(margin) ? ` (margin ${ratio(margin, 2)})` : ""}`);
  const positions = `position${marks.length === 1 ? "" : "s"} ${marks.slice(0, MOST_NAMED).join(", ")}${marks.length > MOST_NAMED ? " …" : ""}`;
  const below = isNumber(cycle.tau_margin) ? ` below τ ${ratio(cycle.tau_margin, 2)}` : "";
  const uncertain = tree.uncertain === null ? "how many positions were uncertain is not known" : `${tree.uncertain} uncertain position${tree.uncertain === 1 ? "" : "s"}${below}`;
  const where = `${tree.branches} repair branch${tree.branches === 1 ? "" : "es"} at ${positions}; ${uncertain}.`;
  return {verdict: verdictOn(tree), where};
}

function verdictOn({kept, kept0, length0, verified0, winner}) {
  const drafts = `${kept} drafted token${kept === 1 ? "" : "s"} kept`;
  const taken = winner ? `Repair ${winner} was taken: ${drafts}.` : `No repair was taken: ${drafts}.`;
  if (!verified0) return `${taken} Branch 0 was not verified, so whether it would have won is not known.`;
  if (kept0 === null) return `${taken} Whether branch 0 would have won is not known: it needed a verdict of the full verifier that was not asked for or not recorded.`;
  if (kept > kept0) return `Repair ${winner} won: ${drafts}, ${kept - kept0} more than branch 0, which would have stopped after ${kept0} of ${length0}.`;
  if (kept < kept0) return `Branch 0 would have won: alone it would have kept ${kept0} of ${length0}. ${taken}`;
  if (winner) return `${taken} Branch 0 alone would have kept as many of ${length0}, so nothing was gained.`;
  return `Branch 0 won: it kept ${kept0} of ${length0}, and no repair got further.`;
}

// Why there is nothing to draw.
export function emptySentence(rows, cycle) {
  if (!rows.length) return "No tree in this cycle.";
  const least = rows.filter((row) => row.branch === 0 && isNumber(row.margin)).reduce((found, row) => Math.min(found, row.margin), Infinity);
  const known = Number.isFinite(least) && isNumber(cycle.tau_margin);
  if (known && least >= cycle.tau_margin) return `No repair in this cycle: the smallest margin, ${number(least, 3)}, is not below τ ${ratio(cycle.tau_margin, 2)}.`;
  return `No repair in this cycle: branch 0 alone was verified, ${rows.length} row${rows.length === 1 ? "" : "s"}.`;
}
