// Do the repairs pay? Extra tokens against extra time, and the rate that CURE maximises
// (arXiv 2608.00531, eq. 1): (E[a] + 1) / (C_d + C_v), from the means of the measured phases:
//   C_d = draft + tree + resync, C_v = full + gate, E[a] = kept drafts a cycle.
// Branch 0 alone would have kept E[a] less the extra tokens, without tree and resync.

import { mean, share } from "./summary.js";
import { number, ratio } from "./dom.js";
import { repairedCycles } from "./tree_data.js";

const us = (row, phase) => row.phase_us[phase] || 0;

// Everything in microseconds; `wider` is null while no cycle without a repair stands beside one with it.
export function repairBill(store, summary, until = Infinity) {
  const {repair, cycles, phases_us: spent} = summary;
  const repaired = new Set(repairedCycles(store));
  const verified = store.cycles.map((row, index) => [row, repaired.has(index)]).filter(([row]) => row.cycle <= until && us(row, "full") > 0);
  const verifying = (with_repair) => mean(verified.filter(([, was]) => was === with_repair).map(([row]) => us(row, "full")));
  const [wide, plain] = [verifying(true), verifying(false)];
  const each = (...phases) => share(phases.reduce((sum, phase) => sum + spent[phase], 0), cycles);
  const accepted = repair.accepted_per_step;
  return {
    extra: repair.extra_tokens,
    tried: repair.tried,
    won: repair.won,
    paid: spent.tree + spent.resync,
    wider: wide === null || plain === null ? null : wide - plain,
    accepted,
    accepted0: accepted - share(repair.extra_tokens, cycles),
    drafting: each("draft", "tree", "resync"),
    drafting0: each("draft"),
    verifying: each("full", "gate"),
  };
}

// Tokens a second.
export function rate(accepted, ...costs) {
  const spent = costs.reduce((sum, cost) => sum + cost, 0);
  return spent > 0 ? (1e6 * (accepted + 1)) / spent : null;
}

const ms = (value) => `${number(value / 1000, 3)} ms`;

// The line on top, and what stands behind it.
export function billSentences(bill) {
  const line = `${bill.extra} extra token${bill.extra === 1 ? "" : "s"} gained / ${ms(bill.paid)} extra paid`;
  const each = bill.extra ? `${ms(bill.paid / bill.extra)} for each` : "";
  const counts = `${bill.won} of ${bill.tried} repaired cycle${bill.tried === 1 ? "" : "s"} won`;
  return {line, note: [each, counts, widerWords(bill)].filter(Boolean).join(" · "), formula: formulaWords(bill)};
}

function widerWords({wider, tried}) {
  if (!tried) return "";
  if (wider === null) return "the wider verification is not counted: no cycle without a repair to compare with";
  return `verifying took ${ms(Math.abs(wider))} ${wider < 0 ? "less" : "more"} in a cycle with a repair (not counted; mean against mean)`;
}

function formulaWords({accepted, accepted0, drafting, drafting0, verifying}) {
  const own = rate(accepted, drafting, verifying);
  if (own === null) return "The paper's rate (E[a] + 1) / (C_d + C_v) is unknown: no times were recorded.";
  const alone = rate(accepted0, drafting0, verifying);
  const without = alone === null ? "" : `; branch 0 alone about ${number(alone, 3)}, with the same verifying time`;
  return `(E[a] + 1) / (C_d + C_v) = (${ratio(accepted, 2)} + 1) / (${ms(drafting)} + ${ms(verifying)}) = ${number(own, 3)} tokens/s${without}.`;
}
