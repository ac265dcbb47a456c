"""Checks of regions A, B and C, of the gate that chose them, and of the audit by the full verifier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from .settings import gate_thresholds
from .trace import CycleRow, TokenRow, Trace

EXACT = 1e-12  # thresholds are copied or subtracted from 1 once
_TWO_TIER = ("sd", "lossy-sd", "block", "cure", "eagle2")  # cure: without tiers


def regions_match_counts(trace: Trace) -> Iterator[str]:
    """Counts taken at gate time equal the rows' regions, cycle by cycle; two tiers know region C only."""
    rows = _by_cycle(trace)
    method = trace.run.get("method")
    two_tier = method in _TWO_TIER and not _has_gate(trace)
    for cycle in trace.cycles:
        for problem in _count_problems(cycle, rows[cycle.cycle]):
            yield f"cycle {cycle.cycle}: {problem}"
        if method == "ar" and cycle.examined:
            yield f"cycle {cycle.cycle}: plain decoding examined {cycle.examined} drafts"
        if two_tier and cycle.region_a + cycle.region_b + cycle.slim_forwards:
            yield f"cycle {cycle.cycle}: method {method} has no slim verifier, but the cycle used one"


def _has_gate(trace: Trace) -> bool:
    """Whether a slim verifier and VIA-SD's gates take part."""
    return trace.run.get("method") == "via-sd" or bool(trace.run.get("settings", {}).get("tiers"))


def _by_cycle(trace: Trace) -> dict[int, list[TokenRow]]:
    rows: dict[int, list[TokenRow]] = defaultdict(list)
    for row in trace.tokens:
        rows[row.cycle].append(row)
    return rows


def _count_problems(cycle: CycleRow, rows: list[TokenRow]) -> Iterator[str]:
    counted = {"A": cycle.region_a, "B": cycle.region_b, "C": cycle.region_c}
    for region, count in counted.items():
        found = sum(row.region == region for row in rows)
        if found != count:
            yield f"region {region} counts {count} tokens, its rows show {found}"
    # A discarded row keeps its region but no longer tells whether the full verifier accepted it.
    c_rows = [row.verdict for row in rows if row.region == "C"]
    unknown = c_rows.count("discarded")
    rejected = c_rows.count("rejected")
    if not rejected <= cycle.region_c_rejected <= rejected + unknown:
        yield f"region_c_rejected is {cycle.region_c_rejected}, its rows show {rejected}"
    for verdict, limit in (
        ("regenerated_slim", cycle.region_b),
        ("rewritten_full", cycle.region_c_rejected),
        ("bonus", 1),
    ):
        made = sum(row.verdict == verdict for row in rows)
        if made > limit:
            yield f"{made} {verdict} tokens, at most {limit} can be"


def gate_decides_regions(trace: Trace) -> Iterator[str]:
    """VIA-SD: recorded ratio and thresholds give the region: C iff r < thr2, else A iff r >= thr1, else B.

    Without regeneration what would be B escalates to C; with after_escalation = q every draft behind the
    first C of a cycle is C, whatever its ratio.
    """
    settings = trace.run.get("settings", {})
    examined = [row for row in trace.tokens if row.region]
    if not _has_gate(trace) or all(row.slim_ratio is None for row in examined):
        return
    cycles = {cycle.cycle: cycle for cycle in trace.cycles}
    escalated: dict[int, int] = {}  # cycle -> slot of its first C
    for row in examined:
        if row.region == "C":
            escalated[row.cycle] = min(row.slot, escalated.get(row.cycle, row.slot))
    for row in examined:
        where = f"cycle {row.cycle}, slot {row.slot}"
        if row.slim_ratio is None or row.thr1 is None or row.thr2 is None:
            yield f"{where}: an examined token lacks slim_ratio, thr1 or thr2"
            continue
        expected = region_of(row.slim_ratio, row.thr1, row.thr2, settings.get("regenerate", True))
        if settings.get("after_escalation") == "q" and row.slot > escalated.get(row.cycle, row.slot):
            expected = "C"
        sibling = row.source == "repair" and row.region == "C"  # found by q beside the child that was gated
        if row.region != expected and not sibling:
            numbers = f"ratio {row.slim_ratio!r}, thresholds {row.thr1!r} and {row.thr2!r}"
            yield f"{where}: region {row.region}, but {numbers} give {expected}"
        yield from _threshold_problems(row, cycles.get(row.cycle), settings, where)


def region_of(ratio: float, thr1: float, thr2: float, regenerate: bool) -> str:
    """The region of a ratio under two thresholds; without regeneration B is C."""
    if ratio < thr2:
        return "C"
    if ratio >= thr1:
        return "A"
    return "B" if regenerate else "C"


def _threshold_problems(
    row: TokenRow, cycle: CycleRow | None, settings: Mapping[str, Any], where: str
) -> Iterator[str]:
    """The thresholds used are those of the cycle's alphas under the run's gate convention."""
    if row.thr1 is None or row.thr2 is None or settings.get("core_thresholds") is not None:
        return
    if cycle is None or cycle.alpha1 is None or cycle.alpha2 is None:
        return
    thr1, thr2 = gate_thresholds(cycle.alpha1, cycle.alpha2, settings.get("gate", "direct"))
    if abs(row.thr1 - thr1) > EXACT or abs(row.thr2 - thr2) > EXACT:
        used = f"{row.thr1!r} and {row.thr2!r}"
        yield f"{where}: thresholds {used} are not those of alpha1 and alpha2, {thr1!r} and {thr2!r}"


def tiers_hold(trace: Trace) -> Iterator[str]:
    """With several slim verifiers: each is asked at most once a cycle, behind all before it; only they settle
    regions A and B, and only tokens that fell through all of them are in region C.
    """
    counted = {cycle.cycle: cycle.tier_forwards for cycle in trace.cycles if cycle.tier_forwards}
    sizes = {len(forwards) for forwards in counted.values()}
    if len(sizes) > 1 or any(len(cycle.tier_us) != len(cycle.tier_forwards) for cycle in trace.cycles):
        yield "cycles.csv counts different numbers of slim verifiers"
        return
    for cycle in trace.cycles:
        forwards = cycle.tier_forwards
        if forwards and sum(forwards) != cycle.slim_forwards:
            yield f"cycle {cycle.cycle}: tier_forwards sum to {sum(forwards)}, not to slim_forwards"
        if list(forwards) != sorted(forwards, reverse=True) or any(count not in (0, 1) for count in forwards):
            yield f"cycle {cycle.cycle}: tier_forwards are {forwards}; a tier runs once, after those before"
        if any(spent < 0 for spent in cycle.tier_us):
            yield f"cycle {cycle.cycle}: a slim verifier took a time below 0"
    most = max(sizes, default=0)
    for row in trace.tokens:
        forwards = counted.get(row.cycle, ())
        if row.tier is not None and not 0 < row.tier <= most:
            yield f"cycle {row.cycle}, slot {row.slot}: tier {row.tier} of {most} slim verifiers"
        elif row.tier is not None and not forwards[row.tier - 1]:
            yield f"cycle {row.cycle}, slot {row.slot}: slim verifier {row.tier} settled it but did not run"
        if row.tier is not None and row.source == "draft" and row.region not in ("A", "B"):
            yield f"cycle {row.cycle}, slot {row.slot}: a slim verifier settled it, but its region is C"
        if forwards and row.tier is None and row.region in ("A", "B"):
            yield f"cycle {row.cycle}, slot {row.slot}: region {row.region}, but no slim verifier settled it"
        if forwards and row.region == "C" and sum(forwards) != most:
            yield f"cycle {row.cycle}, slot {row.slot}: region C, but not every slim verifier was asked"


def audit_is_complete(trace: Trace) -> Iterator[str]:
    """A finished run through VIA-SD's tiers with its final audit on has judged every emitted token."""
    settings = trace.run.get("settings", {})
    finished = bool(trace.run.get("complete")) and trace.finish not in (None, "cancelled")
    if not _has_gate(trace) or not finished or not settings.get("final_audit", True):
        return
    missing = [row.out_pos for row in trace.emitted if row.audit_rank is None]
    if missing:
        yield f"{len(missing)} output tokens were never audited, the first at {missing[0]}"
