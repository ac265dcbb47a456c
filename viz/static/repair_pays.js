// Do the repairs pay? Extra tokens against extra time, and the rate that CURE maximises
// (arXiv 2608.00531, eq. 1): (E[a] + 1) / (C_d + C_v), E[a] = kept drafts a cycle, from the measured phases:
//   C_d = draft + resync, C_v = slim + tree + full + gate, means over the cycles.
// Extra time is an estimate: repaired cycles times the difference of two medians, that of a cycle with a repair
// and that of a cycle without one.

import { cycleTime, share } from "./summary.js";
import { number, ratio } from "./dom.js";
import { repairedCycles } from "./tree_data.js";

const DRAFTING = ["draft", "resync"];
const VERIFYING = ["slim", "tree", "full", "gate"];

// Time of a cycle without the prompt's prefill, microseconds.
function spentOn(row) {
  return cycleTime(row) - (row.phase_us.prefill || 0);
}

function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((one, two) => one - two);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// Median time of a cycle with and without a repair branch, microseconds; null where there is none.
export function medianTimes(store, until = Infinity) {
  const repaired = new Set(repairedCycles(store));
  const times = [[], []];
  store.cycles.forEach((row, index) => {
    if (row.cycle <= until && row.drafted) times[Number(repaired.has(index))].push(spentOn(row));
  });
  return {plain: median(times[0]), repaired: median(times[1])};
}

// Times in microseconds; `paid` is null while no cycle without a repair stands beside one with it.
export function repairBill(store, summary, until = Infinity) {
  const {repair, cycles, phases_us: spent} = summary;
  const {plain, repaired} = medianTimes(store, until);
  const each = (phases) => share(phases.reduce((sum, phase) => sum + spent[phase], 0), cycles);
  return {
    cycles,
    extra: repair.extra_tokens,
    tried: repair.tried,
    won: repair.won,
    paid: plain === null || repaired === null ? null : repair.tried * (repaired - plain),
    resync: spent.resync,
    accepted: repair.accepted_per_step,
    drafting: each(DRAFTING),
    verifying: each(VERIFYING),
  };
}

// Tokens a second; null where no time was recorded.
export function rate(accepted, spent) {
  return spent > 0 ? (1e6 * (accepted + 1)) / spent : null;
}

const ms = (value) => `${number(value / 1000, 3)} ms`;

// The line on top, what stands behind it, and the rate.
export function billSentences(bill) {
  const gained = bill.extra === null ? "extra tokens not known" : `${bill.extra} extra token${bill.extra === 1 ? "" : "s"} gained`;
  if (!bill.tried) return {line: "0 extra tokens gained / 0 ms extra paid", note: "No repair has been tried yet.", formula: formulaWords(bill)};
  const cycles = `${bill.tried} repaired cycle${bill.tried === 1 ? "" : "s"}`;
  const wins = bill.won === null ? `${cycles}; it is not known of each what branch 0 alone would have kept` : `${bill.won} of ${cycles} won`;
  if (bill.paid === null) {
    return {line: `${gained} / extra time not known`, note: `${wins} · every cycle had a repair, so there is none to compare with; resync alone took ${ms(bill.resync)}`, formula: formulaWords(bill)};
  }
  const each = bill.extra ? `${ms(bill.paid / bill.extra)} for each · ` : "";
  return {line: `${gained} / about ${ms(bill.paid)} extra paid`, note: `${each}${wins} · extra: median repaired cycle less median cycle without a repair`, formula: formulaWords(bill)};
}

function formulaWords({accepted, extra, cycles, paid, drafting, verifying}) {
  const own = rate(accepted, drafting + verifying);
  if (own === null) return "The paper's rate (E[a] + 1) / (C_d + C_v) is not known: no times were recorded.";
  const alone = paid === null || extra === null ? null : rate(accepted - share(extra, cycles), drafting + verifying - share(paid, cycles));
  const without = alone === null ? "" : `; branch 0 alone about ${number(alone, 3)}`;
  return `(E[a] + 1) / (C_d + C_v) = (${ratio(accepted, 2)} + 1) / (${ms(drafting)} + ${ms(verifying)}) = ${number(own, 3)} tokens/s${without}.`;
}

// What one tree cost: rows, phases, and the difference from a cycle without a repair.
export function costSentence(store, cycle, {nodes, length0}) {
  const phases = ["draft", "slim", "tree", "resync"].filter((phase) => cycle.phase_us[phase] > 0).map((phase) => `${phase} ${ms(cycle.phase_us[phase])}`);
  const {plain} = medianTimes(store);
  const more = plain === null ? 0 : spentOn(cycle) - plain;
  const compared = plain === null ? [] : [`${ms(Math.abs(more))} ${more < 0 ? "less" : "more"} than the median cycle without a repair`];
  const budget = cycle.v_max === null ? "" : ` of at most ${cycle.v_max}`;
  const times = [...phases, ...compared].join(", ");
  return `Cost: ${nodes} rows verified${budget}, ${nodes - length0} of them for repair${times ? `; ${times}` : ""}.`;
}
