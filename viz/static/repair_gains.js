// What repairs gained against branch 0 alone, as viasd_core.trace_repairs counts it. Null: not known.

import { byCycle } from "./store.js";

export function repairTotals(cycles, tree) {
  const trees = byCycle(tree);
  const numbered = new Map(cycles.map((row) => [row.cycle, row]));
  const repaired = [...trees].filter(([, rows]) => rows.some((row) => row.branch > 0));
  const gains = repaired.map(([number, rows]) => gainOf(numbered.get(number), rows));
  return {
    ufps: totalIfKnown([...trees].map(([number, rows]) => uncertainPositions(numbered.get(number), rows))),
    tried: repaired.length,
    won: totalIfKnown(gains.map((gain) => (gain === null ? null : Number(gain > 0)))),
    extra_tokens: totalIfKnown(gains),
    nodes: cycles.reduce((sum, row) => sum + row.tree_nodes, 0),
    resyncs: repaired.filter(([, rows]) => rows.some((row) => row.branch > 0 && row.on_best_path)).length,
  };
}

export function keptOnPath(rows) {
  return rows.filter((row) => row.accepted && row.on_best_path).length;
}

// Whether the whole block stands in the tree, as branch 0.
function holdsBlock(cycle, rows) {
  return rows.filter((row) => row.branch === 0).length === cycle.drafted;
}

// Drafted tokens that branch 0 alone would have kept on the same verifier rows.
export function keptOnBranch0(cycle, rows) {
  if (!cycle || cycle.branch0_kept !== null) return cycle ? cycle.branch0_kept : null;
  if (cycle.alpha1 !== null || !holdsBlock(cycle, rows)) return null;
  return rows.filter((row) => row.accepted && row.branch === 0).length;
}

// Positions of the block with a margin below tau.
export function uncertainPositions(cycle, rows) {
  if (!cycle || cycle.ufps !== null) return cycle ? cycle.ufps : null;
  return holdsBlock(cycle, rows) ? rows.filter((row) => row.is_ufp).length : null;
}

function gainOf(cycle, rows) {
  const alone = keptOnBranch0(cycle, rows);
  return alone === null ? null : Math.max(0, keptOnPath(rows) - alone);
}

function totalIfKnown(values) {
  return values.includes(null) ? null : values.reduce((sum, value) => sum + value, 0);
}
