// The numbers of a run, by the definitions of viasd_core.trace (DEFINITIONS), up to a cycle of a replay.

import { repairTotals } from "./repair_gains.js";

const SLIM_DECIDED = new Set(SCHEMA.slimDecided);

// Whether a token stands once cycle number `until` is done; it may have been taken back later.
export function stands(row, until) {
  if (row.cycle > until) return false;
  return row.emitted || (row.gone !== null && row.gone > until);
}

export function verdictAt(row, until) {
  return row.gone !== null && row.gone > until ? row.was : row.verdict;
}

export function isSlimDecided(row) {
  return SLIM_DECIDED.has(row.verdict) || (row.verdict === "bonus" && row.source === "slim_sample");
}

export function share(part, whole) {
  return whole ? part / whole : 0;
}

export function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

export function summarise(store, until = Infinity) {
  const cycles = store.cycles.filter((row) => row.cycle <= until);
  const emitted = store.tokens.filter((row) => stands(row, until));
  const sum = (field) => cycles.reduce((total, row) => total + row[field], 0);
  const regions = {A: sum("region_a"), B: sum("region_b"), C: sum("region_c_accepted") + sum("region_c_rejected")};
  const examined = regions.A + regions.B + regions.C;
  const called = cycles.filter((row) => row.full_forwards + row.settle_forwards > 0).length;
  return {
    new_tokens: emitted.length,
    cycles: cycles.length,
    draft_forwards: sum("draft_forwards"),
    slim_forwards: sum("slim_forwards"),
    full_forwards: sum("full_forwards"),
    settle_forwards: sum("settle_forwards"),
    escalating_cycles: cycles.filter((row) => row.region_c_accepted + row.region_c_rejected > 0).length,
    drafted: sum("drafted"),
    counts: countTiers(emitted, until),
    regions,
    examined,
    rejection_rate: share(regions.B + sum("region_c_rejected"), examined),
    region_c_share: share(regions.C, examined),
    escalation_rate: share(called, cycles.length),
    mean_committed: share(emitted.length, cycles.length),
    mixture: {A: share(regions.A, examined), B: share(regions.B, examined), C: share(regions.C, examined)},
    audit: summariseAudit(emitted, until, sum("settle_forwards")),
    repair: summariseRepair(store, cycles, emitted, until),
    ...summariseTiers(cycles, emitted, until),
    phases_us: sumPhases(cycles),
    end_us: cycles.length ? endOf(cycles[cycles.length - 1]) : 0,
  };
}

function countTiers(emitted, until) {
  const counts = Object.fromEntries(SCHEMA.emitted.map((verdict) => [verdict, 0]));
  for (const row of emitted) counts[verdictAt(row, until)] += 1;
  return counts;
}

function summariseAudit(emitted, until, settles) {
  const judged = emitted.filter((row) => row.audit_rank !== null && (row.audit_cycle ?? 0) <= until);
  const slim = judged.filter(isSlimDecided);
  return {
    judged: judged.length,
    slim: slim.length,
    agree: mean(slim.map((row) => Number(row.audit_rank === 0))),
    mean_log_q: mean(slim.map((row) => row.audit_logp).filter((value) => value !== null)),
    mean_kl: mean(slim.map((row) => row.audit_kl).filter((value) => value !== null)),
    settle_forwards: settles,
  };
}

// Totals of each slim verifier; nothing for runs without one, and for traces from before there could be several.
function summariseTiers(cycles, emitted, until) {
  const tiers = {};
  const most = Math.max(0, ...cycles.map((row) => row.tier_forwards.length));
  for (let tier = 1; tier <= most; tier += 1) {
    const total = (field) => cycles.reduce((sum, row) => sum + (row[field][tier - 1] ?? 0), 0);
    const settled = emitted.filter((row) => row.tier === tier).map((row) => verdictAt(row, until));
    const count = (verdict) => settled.filter((one) => one === verdict).length;
    tiers[tier] = {
      forwards: total("tier_forwards"),
      ms: total("tier_us") / 1000,
      accepted: count("accepted_slim"),
      regenerated: count("regenerated_slim"),
    };
  }
  return most ? {tiers} : {};
}

// Whether a token is the first of its repair branch in the text.
export function startsRepair(store, index) {
  const row = store.tokens[index];
  const before = store.tokens[index - 1];
  return row.branch > 0 && (!before || before.at !== row.at || before.branch !== row.branch);
}

function summariseRepair(store, cycles, emitted, until) {
  const tree = store.tree.filter((row) => row.cycle <= until);
  const kept = emitted.filter((row) => ["accepted_slim", "accepted_full"].includes(verdictAt(row, until))).length;
  return {
    ...repairTotals(cycles, tree),
    accepted_per_step: share(kept, cycles.length),
    accepted_per_step_with_bonus: share(emitted.length, cycles.length),
  };
}

export function sumPhases(cycles) {
  const phases = Object.fromEntries(SCHEMA.phases.map((phase) => [phase, 0]));
  for (const row of cycles) for (const phase of SCHEMA.phases) phases[phase] += row.phase_us[phase] || 0;
  return phases;
}

export function cycleTime(row) {
  return SCHEMA.phases.reduce((total, phase) => total + (row.phase_us[phase] || 0), 0);
}

export function endOf(row) {
  return row.t_start_us + cycleTime(row);
}

// What a trace must satisfy for its colours to be believed; each entry is [sentence, holds].
export function selfChecks(store, summary, until = Infinity) {
  const tiers = Object.values(summary.counts).reduce((total, count) => total + count, 0);
  const cycles = store.cycles.filter((row) => row.cycle <= until);
  const committed = cycles.reduce((total, row) => total + row.committed, 0);
  const room = cycles.reduce((total, row) => total + row.gamma, 0);
  const kept = summary.counts.accepted_slim + summary.counts.accepted_full;
  const checks = [
    [`tiers sum to ${tiers} = ${summary.new_tokens} tokens`, tiers === summary.new_tokens],
    [`cycles committed ${committed} = ${summary.new_tokens}`, committed === summary.new_tokens],
    [`kept drafts ${kept} ≤ drafted ${summary.drafted}`, kept <= summary.drafted],
    [`drafted ${summary.drafted} ≤ cycles × γ = ${room}`, summary.drafted <= room],
  ];
  const totals = store.run.totals;
  if (store.ended && until === Infinity && totals && typeof totals === "object") {
    checks.push([`run.json counts ${totals.new_tokens} tokens`, totals.new_tokens === summary.new_tokens]);
  }
  return checks;
}

// Why the slim verifier settled nothing, when that is so.
export function emptySlim(store, summary) {
  const slim = summary.counts.accepted_slim + summary.counts.regenerated_slim;
  if (store.run.method !== "via-sd" || !summary.cycles || slim) return "";
  if (!summary.slim_forwards) {
    return summary.drafted
      ? "The slim verifier never ran although tokens were drafted."
      : "The slim verifier settled nothing: the drafter proposed no token in any cycle.";
  }
  const ratios = store.tokens.map((row) => row.slim_ratio).filter((ratio) => ratio !== null);
  const best = ratios.length ? Math.max(...ratios.slice(0, 50000)) : 0;
  const last = store.cycles[store.cycles.length - 1];
  return `The slim verifier settled nothing: its best ratio was ${best.toFixed(2)}, below α₂ = ${last.alpha2}. `
    + "Lower α₂, skip fewer layers, or choose a searched layer mask.";
}
