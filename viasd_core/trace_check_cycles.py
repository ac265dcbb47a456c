"""Checks of the cycle rows and of the layer-mask search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .trace import CycleRow, TokenRow, Trace

_COUNTS = (
    "t_start_us", "gamma", "drafted", "region_a", "region_b", "region_c_accepted", "region_c_rejected",
    "retracted", "draft_forwards", "slim_forwards", "full_forwards", "settle_forwards", "tree_nodes",
    "kv_len", "n_q", "n_s", "debt",
)  # fmt: skip


def cycles_hold(trace: Trace) -> Iterator[str]:
    """Cycles are numbered, ordered in time and bounded by gamma; what they commit is what the rows show."""
    rows: dict[int, list[TokenRow]] = defaultdict(list)
    for row in trace.tokens:
        rows[row.cycle].append(row)
    strict = bool(trace.run.get("settings", {}).get("strict"))
    kv_len: int = trace.run.get("prompt_tokens", 0)
    started = 0
    for index, cycle in enumerate(trace.cycles):
        where = f"cycle {cycle.cycle}"
        kv_len += cycle.committed
        if cycle.cycle != index:
            yield f"{where}: expected cycle {index}; cycles are numbered from 0 without gaps"
        if cycle.t_start_us < started:
            yield f"{where}: starts at {cycle.t_start_us} us, before the cycle ahead of it"
        if cycle.kv_len != kv_len:
            yield f"{where}: kv_len is {cycle.kv_len}, prompt and committed tokens make {kv_len}"
        started = cycle.t_start_us
        for problem in (*_bounds(cycle), *_commits(cycle, rows[cycle.cycle], strict)):
            yield f"{where}: {problem}"
    strays = sorted({row.cycle for row in trace.tokens} - {cycle.cycle for cycle in trace.cycles})
    if strays:
        yield f"tokens.csv has rows of cycle {strays[0]}, which cycles.csv does not list"
    taken_back = sum(row.verdict == "retracted" for row in trace.tokens)
    recorded = sum(cycle.retracted for cycle in trace.cycles)
    if taken_back != recorded:
        yield f"cycles retracted {recorded} tokens, {taken_back} rows are marked so"


def _bounds(cycle: CycleRow) -> Iterator[str]:
    for name in _COUNTS:
        if getattr(cycle, name) < 0:
            yield f"{name} is {getattr(cycle, name)}, below 0"
    for phase, spent in cycle.phase_us.items():
        if spent < 0:
            yield f"phase {phase} took {spent} us, below 0"
    accepted = cycle.region_a + cycle.region_c_accepted
    offered = max(cycle.drafted, cycle.tree_nodes)
    if cycle.drafted > cycle.gamma:
        yield f"drafted {cycle.drafted} tokens, more than gamma {cycle.gamma}"
    if accepted > cycle.drafted:
        yield f"accepted {accepted} of {cycle.drafted} drafted tokens"
    if cycle.examined > offered:
        yield f"examined {cycle.examined} of {offered} drafted tokens"
    if cycle.region_c and not cycle.full_forwards + cycle.settle_forwards:
        yield f"{cycle.region_c} tokens in region C, but the full verifier did not run"
    cached = max(cycle.n_q, cycle.n_s)
    if cached >= max(1, cycle.kv_len):
        yield f"a verifier holds {cached} rows, but the last of {cycle.kv_len} tokens is never cached"


def _commits(cycle: CycleRow, rows: list[TokenRow], strict: bool) -> Iterator[str]:
    given = sum(row.emitted or row.verdict == "retracted" for row in rows)
    if given - cycle.retracted != cycle.committed:
        yield f"committed is {cycle.committed}, its rows make {given} new less {cycle.retracted} retracted"
    if not strict and cycle.committed < 1:
        yield f"committed {cycle.committed} tokens; every cycle commits at least one unless strict"
    if not strict and cycle.retracted:
        yield f"retracted {cycle.retracted} tokens; only strict takes tokens back"
    if cycle.tree_nodes:
        return
    drafts = sum(row.source == "draft" for row in rows)
    if drafts != cycle.drafted:
        yield f"drafted is {cycle.drafted}, but tokens.csv has {drafts} draft rows"
    drawn = {row.slot for row in rows if row.source != "draft"}
    for row in rows:
        if row.verdict == "rejected" and row.slot not in drawn:
            yield f"the draft rejected at slot {row.slot} has no row that replaces it"


def masks_hold(trace: Trace) -> Iterator[str]:
    """A search's best cost is the least so far, and its masks have the verifier's length."""
    best = float("inf")
    layers = trace.run.get("n_layers")
    lengths = None if layers is None else (layers, 2 * layers)  # of layers, or of attentions and MLPs
    wanted = "digits 0 or 1" if layers is None else f"{layers} digits 0 or 1, or {2 * layers}"
    for row in trace.dimr:
        best = min(best, row.cost)
        if row.best_cost != best:
            yield f"dimr.csv: step {row.step} has best_cost {row.best_cost!r}, the least so far is {best!r}"
        if set(row.mask) - {"0", "1"} or (lengths is not None and len(row.mask) not in lengths):
            yield f"dimr.csv: step {row.step} has the mask {row.mask!r}, expected {wanted}"
    mask = trace.run.get("mask")
    if mask and (set(mask) - {"0", "1"} or (lengths is not None and len(mask) not in lengths)):
        yield f"run.json: mask is {mask!r}, expected {wanted}"
