// What is known of one token, as label and value; the card and the inspector both read it.

import { milliseconds, number, percent, probability, ratio } from "./dom.js";
import { madeBy, reason, tierCode, verdictName } from "./words.js";
import { tokenLabel } from "./shown_text.js";
import { cycleTime } from "./summary.js";

export function headline(row) {
  return {code: tierCode(row), name: verdictName(row), label: tokenLabel(row), why: reason(row)};
}

// [[label, value, explanation]]
export function shortFacts(store, row) {
  return [
    ["p · q′ · q", `${probability(row.logp_draft)} · ${probability(row.logp_slim)} · ${probability(row.logp_full)}`, "drafter, slim verifier, full verifier, at temperature 1"],
    ...tierFacts(store, row),
    ...ratioFacts(row),
    ...auditFacts(row),
    ["place", placeOf(row), ""],
    ["cycle", `${row.cycle}, slot ${row.slot} · ${milliseconds(cycleTime(store.cycles[row.at]))}`, "time of the whole cycle"],
    ...(row.top2_margin === null ? [] : [["margin", `${number(row.top2_margin, 3)} nats`, "top-1 minus top-2 of the drafter, nats"]]),
  ];
}

export function longFacts(store, row) {
  return [
    ["token id", String(row.token_id), ""],
    ["bytes", bytesOf(row), ""],
    ["proposed by", madeBy(row), ""],
    ...shortFacts(store, row),
    ...(row.p_used === null ? [] : [["p used", ratio(row.p_used), "processed probability it was drawn or tested with"]]),
    ...(row.rand_u === null ? [] : [["u", ratio(row.rand_u, 4), "the uniform number of the draw or test"]]),
    ...(row.entropy_draft === null ? [] : [["entropy", `${number(row.entropy_draft, 3)} nats`, "of the drafter's distribution"]]),
    ...(row.alt.length ? [["others", row.alt.map(([id, logp]) => `#${id} ${probability(logp)}`).join("  "), "the drafter's next best token ids"]] : []),
    ...(row.branch > 0 ? [["branch", `repair ${row.branch}`, ""]] : []),
    ...(row.shown ? [] : [["in the text", "no: a special token, or part of a trimmed stop string", ""]]),
  ];
}

function placeOf(row) {
  if (row.emitted) return `token ${row.place}`;
  return row.place === null ? "not in the output" : `was token ${row.place}, taken back in cycle ${row.gone}`;
}

// Which of several slim verifiers settled it; nothing where there is one.
function tierFacts(store, row) {
  const cycle = store.cycles[row.at];
  const count = cycle ? cycle.tier_forwards.length : 0;
  if (row.tier === null || count < 2) return [];
  return [["tier", `slim verifier ${row.tier} of ${count}`, "slim verifiers are asked in turn, the weakest first"]];
}

function ratioFacts(row) {
  if (row.slim_ratio === null) return [];
  const thresholds = [row.thr1 === null ? "" : `τ₁ ${ratio(row.thr1, 2)}`, row.thr2 === null ? "" : `τ₂ ${ratio(row.thr2, 2)}`];
  return [["slim ratio", [ratio(row.slim_ratio), ...thresholds].filter(Boolean).join(" · "), "q′ of the draft over the largest q′, against both thresholds"]];
}

function auditFacts(row) {
  if (row.audit_rank === null) return [];
  const agrees = row.audit_rank === 0 ? "full verifier agrees" : `full verifier ranks it ${row.audit_rank + 1}`;
  const accept = row.audit_accept === null ? "" : `, would keep it ${percent(row.audit_accept)}`;
  return [["audit", `${agrees}, q = ${probability(row.audit_logp)}${accept}`, `judged afterwards, in cycle ${row.audit_cycle}`]];
}

function bytesOf(row) {
  const bytes = row.data.match(/../g) || [];
  return bytes.length > 16 ? `${bytes.slice(0, 16).join(" ")} … (${bytes.length})` : bytes.join(" ") || "none";
}
