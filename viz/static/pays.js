// Does the slim tier pay? Cost per token of three tiers against two, and against the full verifier alone
// (VIA-SD, arXiv 2606.12243, cost model of B.20 with measured times):
//   three tiers: (draft + t_slim + rho t_q) / m_via        two tiers: (draft + t_q) / m_sd
// draft is the drafting time of a cycle, rho the full forwards a cycle. m_sd is not measured in a three-tier
// run: it is estimated from how often the full verifier would have kept a drafted token.

import { number, ratio } from "./dom.js";
import { mean, share, stands } from "./summary.js";

// Probability that the full verifier keeps a drafted token: a list of 0..1, one for every draft it judged.
export function keepChances(store, until = Infinity) {
  const chances = [];
  store.tokens.forEach((row, index) => {
    if (row.cycle > until) return;
    if (row.region === "C") chances.push(Number(row.verdict === "accepted_full"));
    else if (row.region === "A" && stands(row, until) && row.audit_rank !== null) chances.push(auditChance(row));
    else if (row.region === "B" && knownRefusal(store, index)) chances.push(0);
  });
  return chances;
}

function auditChance(row) {
  return row.audit_accept ?? Number(row.audit_rank === 0);
}

// A draft replaced by the slim verifier was refused for sure when the replacement is the full verifier's argmax.
function knownRefusal(store, index) {
  const slot = store.tokens[index].slot;
  const [, end] = store.spans[store.tokens[index].at];
  for (let next = index + 1; next < end; next += 1) {
    const row = store.tokens[next];
    if (row.slot === slot && row.verdict === "regenerated_slim") return row.audit_rank === 0;
  }
  return false;
}

// Tokens a cycle of two-tier speculation: kept drafts before the first refusal, and the token after them.
export function expectedRun(chance, drafted) {
  if (chance >= 1) return drafted + 1;
  return (1 - chance ** (drafted + 1)) / (1 - chance);
}

export function breakEven(store, summary, until = Infinity) {
  const phases = summary.phases_us;
  const tQ = fullForwardTime(store, until);
  if (!summary.cycles) return {unknown: "There are no cycles yet."};
  if (tQ <= 0 && phases.tree > 0) return {unknown: "The full verifier ran over trees only, so the time of a plain forward is unknown."};
  if (tQ <= 0) return {unknown: "The full verifier has not run yet, so its time is unknown."};
  const draft = phases.draft / summary.cycles;
  const plain = {name: "full forward a token", us: tQ, measured: true};
  if (store.run.method === "ar") return {unknown: "Plain decoding: nothing is drafted, so there is nothing to compare."};
  if (!summary.slim_forwards) {
    const own = {name: "two tiers, this run", us: (draft + verifying(store, summary, until, tQ)) / summary.mean_committed, measured: true};
    return {rows: [own, plain], ...verdictTwo(own.us, plain.us)};
  }
  if (phases.tree > 0) {
    const slim = phases.slim / summary.cycles;
    const own = {name: "three tiers, this run", us: (draft + slim + verifying(store, summary, until, tQ)) / summary.mean_committed, measured: true};
    return {rows: [own, plain], unknown: "The verifiers ran over trees, for which two tiers cannot be estimated."};
  }
  return threeTiers(store, summary, until, draft, tQ, plain);
}

// The full verifier's time in a cycle. A pass over a tree has its own phase, and costs more than a plain forward.
function verifying(store, summary, until, tQ) {
  if (!summary.phases_us.tree) return tQ * share(summary.full_forwards, summary.cycles);
  const plain = store.cycles.filter((row) => row.cycle <= until && row.phase_us.full > 0).length;
  return (tQ * plain + summary.phases_us.tree) / summary.cycles;
}

// The full verifier runs at most once a cycle, except that the last one may settle the rest; that time is not
// in the phase, so the mean goes over cycles, not over forwards.
function fullForwardTime(store, until) {
  return mean(store.cycles.filter((row) => row.cycle <= until && row.phase_us.full > 0).map((row) => row.phase_us.full)) ?? 0;
}

function threeTiers(store, summary, until, draft, tQ, plain) {
  const tSlim = summary.phases_us.slim / summary.slim_forwards;
  const slim = tSlim * share(summary.slim_forwards, summary.cycles); // an empty draft asks no slim verifier
  const rho = share(summary.full_forwards + summary.settle_forwards, summary.cycles);
  const via = {name: "three tiers, this run", us: (draft + slim + rho * tQ) / summary.mean_committed, measured: true};
  const chances = keepChances(store, until);
  const judged = chances.length;
  if (!judged) return {rows: [via, plain], unknown: "No drafted token has been judged by the full verifier yet, so two tiers cannot be estimated."};
  const chance = mean(chances);
  const seen = store.cycles.filter((row) => row.cycle <= until);
  const mSd = mean(seen.map((row) => expectedRun(chance, row.drafted)));
  const two = {name: "two tiers, estimate", us: (draft + tQ) / mSd, measured: false};
  const limit = ((draft + tQ) * summary.mean_committed / mSd - draft - slim) / tQ;
  const facts = {tQ, tSlim, draft, rho, mVia: summary.mean_committed, mSd, chance, judged, limit};
  return {rows: [via, two, plain], facts, ...verdictThree(via.us, two.us, facts)};
}

function verdictThree(via, two, {rho, limit, tSlim, tQ}) {
  const pays = via < two;
  const compare = `${number(via / 1000)} ms a token against about ${number(two / 1000)} ms with two tiers`;
  if (limit <= 0) {
    return {pays, sentence: `Does not pay here: ${compare}, because even without any full forward the slim one (${ratio(tSlim / tQ, 2)} of a full one) costs too much for the tokens it settles.`};
  }
  const calls = `the full verifier runs ${ratio(rho, 2)} times a cycle and the break-even is ${ratio(limit, 2)}`;
  return {pays, sentence: `${pays ? "Pays" : "Does not pay"} here: ${compare}, because ${calls}.`};
}

function verdictTwo(own, plain) {
  const pays = own < plain;
  return {pays, sentence: `${pays ? "Speculation pays" : "Speculation does not pay"} here: ${number(own / 1000)} ms a token against ${number(plain / 1000)} ms for one full forward a token.`};
}
