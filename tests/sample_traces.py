"""Small traces written by hand, consistent in every number, for tests that read, check or show one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from viasd_core.trace import (
    DEFINITIONS,
    SCHEMA,
    AuditRow,
    CycleEvent,
    CycleRow,
    EventRow,
    TokenRow,
    Trace,
    TreeRow,
)

PROMPT_IDS = [11, 12, 13, 14]
ALPHA1, ALPHA2 = 0.5, 0.3
RATIOS = {"A": 0.8, "B": 0.4, "C": 0.1}
_MADE_BY = {
    "regenerated_slim": "slim_sample",
    "rewritten_full": "full",
    "bonus": "slim_sample",
    "target": "full",
}


def draft(
    cycle: int, slot: int, text: str, verdict: str, region: str, out_pos: int | None, **more: Any
) -> TokenRow:
    """A drafted token; an examined one carries the ratio that puts it in its region."""
    gate: dict[str, Any] = {"slim_ratio": RATIOS[region], "thr1": ALPHA1, "thr2": ALPHA2} if region else {}
    row = TokenRow(
        cycle=cycle,
        slot=slot,
        token_id=100 * (cycle + 1) + slot,
        text=text,
        data=text.encode(),
        source="draft",
        verdict=verdict,
        emitted=out_pos is not None,
        out_pos=out_pos,
        region=region,
        logp_draft=-0.25,
        logp_slim=-0.1 - 0.2 if region else None,
        logp_full=-1.5 if region == "C" else None,
        p_used=0.1 + 0.2,
        t_us=1000 * (cycle + 1),
        **gate,
    )
    return replace(row, **more)


def drawn(cycle: int, slot: int, text: str, verdict: str, out_pos: int | None, **more: Any) -> TokenRow:
    """A token that a verifier drew."""
    row = TokenRow(
        cycle=cycle,
        slot=slot,
        token_id=100 * (cycle + 1) + 50 + slot,
        text=text,
        data=text.encode(),
        source=_MADE_BY.get(verdict, "full"),
        verdict=verdict,
        emitted=out_pos is not None,
        out_pos=out_pos,
        rand_u=1 / 3,
        t_us=1000 * (cycle + 1),
    )
    return replace(row, **more)


def cycle_row(number: int, drafted: int, committed: int, kv_len: int, **more: Any) -> CycleRow:
    row = CycleRow(
        cycle=number,
        t_start_us=1000 * number,
        phase_us={"draft": 120, "slim": 340 if drafted else 0, "host": 40},
        gamma=4,
        alpha1=ALPHA1,
        alpha2=ALPHA2,
        skip_ratio=0.2,
        temperature=0.0,
        param_version=0,
        drafted=drafted,
        committed=committed,
        kv_len=kv_len,
        draft_forwards=drafted,
        slim_forwards=int(drafted > 0),
        mask_id="even-2",
    )
    return replace(row, **more)


def audit(out_pos: int, *, slim: bool = True, rank: int = 0) -> AuditRow:
    return AuditRow(out_pos, rank, -0.1 * (rank + 1), None, 0.01 * (out_pos + 1) if slim else None)


def finish_run(trace: Trace, method: str, settings: dict[str, Any]) -> Trace:
    """Fill run.json's content from the rows, as a recorder does at the end of a run."""
    trace.run = {
        "schema": SCHEMA,
        "run_id": "5f0c4b1e-0000-4000-8000-000000000001",
        "definitions": DEFINITIONS,
        "method": method,
        "settings": {"max_new_tokens": 64, "temperature": 0.0, "stop": [], **settings},
        "prompt": "What do plants eat?",
        "prompt_tokens": len(PROMPT_IDS),
        "prompt_token_ids": PROMPT_IDS,
        "token_ids": trace.token_ids,
        "text": trace.text,
        "finish_reason": trace.finish,
        "complete": trace.finish is not None,
        "models": {"verifier": "toy-q", "drafter": "toy-p"},
        "n_layers": 6,
        "mask": "110111",
        "r_eff": 0.125,
        "wall_s": 0.5,
        "ttft_s": 0.05,
        "tokens_per_s": len(trace.token_ids) / 0.5,
        "totals": trace.summary(),
    }
    return trace


def via_sd_trace() -> Trace:
    """Four cycles with every tier, a character split over two tokens, a hidden EOS and a finished audit."""
    trace = Trace()
    trace.add(
        CycleEvent(
            cycle_row(0, 3, 3, 7, region_a=2, region_b=1, n_q=3, n_s=6, debt=3),
            (
                draft(0, 0, "Pl", "accepted_slim", "A", 0),
                draft(0, 1, "ants", "accepted_slim", "A", 1, alt=((5, -0.5), (6, -2.25))),
                draft(0, 2, " drink", "rejected", "B", None),
                drawn(0, 2, " eat", "regenerated_slim", 2),
            ),
        )
    )
    counts = {"region_a": 1, "region_c_accepted": 1, "region_c_rejected": 1, "full_forwards": 1}
    trace.add(
        CycleEvent(
            cycle_row(1, 4, 3, 10, n_q=9, n_s=9, reason="region C", **counts),
            (
                draft(1, 0, "", "accepted_slim", "A", 3, data=b"\xf0\x9f"),
                draft(1, 1, "\U0001f331", "accepted_full", "C", 4, data=b"\x8c\xb1"),
                draft(1, 2, "!", "rejected", "C", None),
                draft(1, 3, "!", "discarded", "", None),
                drawn(1, 2, ".", "rewritten_full", 5),
            ),
            audits=(
                audit(0),
                audit(1, rank=2),
                audit(2),
                audit(3),
                audit(4, slim=False),
                audit(5, slim=False),
            ),
            events=(EventRow(1500, 1, "param_change", "alpha1", "0.5", "0.5"),),
        )
    )
    trace.add(
        CycleEvent(
            cycle_row(2, 3, 4, 14, region_a=3, n_q=9, n_s=13, debt=4),
            (
                draft(2, 0, "\n", "accepted_slim", "A", 6),
                draft(2, 1, "NA", "accepted_slim", "A", 7),
                draft(2, 2, " =1+1", "accepted_slim", "A", 8),
                drawn(2, 3, " so", "bonus", 9),
            ),
        )
    )
    trace.add(
        CycleEvent(
            cycle_row(3, 0, 1, 15, n_q=14, n_s=14, full_forwards=1, reason="empty draft"),
            (drawn(3, 0, "<eos>", "target", 10, shown=False),),
            audits=(audit(6), audit(7), audit(8, rank=1), audit(9), audit(10, slim=False)),
            finish="eos",
        )
    )
    return finish_run(trace, "via-sd", {"strict": False, "final_audit": True, "regenerate": True})


def tiered_trace() -> Trace:
    """The run of `via_sd_trace` with two slim verifiers; the second is asked, and settles, where q is."""
    trace = via_sd_trace()
    asked_both = {row.cycle for row in trace.cycles if row.region_c}
    for index, row in enumerate(trace.cycles):
        if row.slim_forwards:
            both = row.cycle in asked_both
            times = (200, 140) if both else (340, 0)
            trace.cycles[index] = replace(
                row, slim_forwards=1 + both, tier_forwards=(1, int(both)), tier_us=times
            )
    for index, token in enumerate(trace.tokens):
        if token.region in ("A", "B") or token.source == "slim_sample":
            trace.tokens[index] = replace(token, tier=2 if token.cycle in asked_both else 1)
    return finish_run(trace, "via-sd", {**trace.run["settings"], "tiers": [0.6, 0.2]})


def strict_trace() -> Trace:
    """Strict takes two emitted tokens back, so a cycle commits less than nothing."""
    trace = Trace()
    trace.add(
        CycleEvent(
            cycle_row(0, 3, 3, 7, region_a=3, n_q=3, n_s=6, debt=3),
            tuple(draft(0, slot, "abc"[slot], "accepted_slim", "A", slot) for slot in range(3)),
        )
    )
    trace.add(
        CycleEvent(
            cycle_row(
                1, 1, -1, 6, region_a=1, retracted=2, settle_forwards=1, n_q=5, n_s=5, reason="debt cap"
            ),
            (
                draft(1, 0, "d", "discarded", "A", None),
                drawn(1, 0, "B", "target", 1),
            ),
            audits=(audit(0), audit(1, slim=False)),
            retracted=(1, 2),
            finish="length",
        )
    )
    return finish_run(trace, "via-sd", {"max_new_tokens": 2, "strict": True, "final_audit": True})


def tree_trace() -> Trace:
    """CURE: a cycle whose repair keeps two more drafted tokens than branch 0, and one without a gain."""
    trace = Trace()
    marks = {"region_c_accepted": 3, "full_forwards": 1, "alpha1": None, "alpha2": None, "slim_forwards": 0}
    marks |= {"skip_ratio": None, "tau_margin": 1.0, "v_max": 90}
    trace.add(
        CycleEvent(
            cycle_row(0, 3, 4, 8, tree_nodes=5, n_q=7, n_s=0, **marks),
            (
                _plain(draft(0, 0, "x", "accepted_full", "C", 0, node=0)),
                _plain(draft(0, 1, "y", "accepted_full", "C", 1, **_repair(3, 0))),
                _plain(draft(0, 2, "z", "accepted_full", "C", 2, **_repair(4, 3))),
                drawn(0, 3, "!", "bonus", 3, source="full"),
                _plain(draft(0, 1, "q", "discarded", "", None, token_id=7, is_ufp=True, node=1, parent=0)),
                _plain(draft(0, 2, "r", "discarded", "", None, token_id=8, node=2, parent=1)),
            ),
            tree=(
                _node(0, 0, -1, 1, 0, 100, "x", 2.0, kept=True),
                _node(0, 1, 0, 2, 0, 7, "q", 0.2, is_ufp=True),
                _node(0, 2, 1, 3, 0, 8, "r", 1.5),
                _node(0, 3, 0, 2, 1, 101, "y", None, kept=True),
                _node(0, 4, 3, 3, 1, 102, "z", 3.0, kept=True),
            ),
        )
    )
    marks |= {"region_c_accepted": 1}
    trace.add(
        CycleEvent(
            cycle_row(1, 1, 2, 10, tree_nodes=2, n_q=9, n_s=0, **marks),
            (
                _plain(draft(1, 0, "u", "accepted_full", "C", 4, is_ufp=True, node=0, alt=((9, -1.5),))),
                drawn(1, 1, "v", "bonus", 5, source="full"),
            ),
            tree=(
                _node(1, 0, -1, 1, 0, 200, "u", 0.5, is_ufp=True, kept=True),
                _node(1, 1, -1, 1, 1, 9, "w", None),
            ),
            finish="length",
        )
    )
    return finish_run(trace, "cure", {"max_new_tokens": 6})


def _repair(node: int, parent: int) -> dict[str, Any]:
    return {"source": "repair", "branch": 1, "node": node, "parent": parent}


def _node(
    cycle: int,
    node: int,
    parent: int,
    depth: int,
    branch: int,
    token_id: int,
    text: str,
    margin: float | None,
    *,
    is_ufp: bool = False,
    kept: bool = False,
) -> TreeRow:
    """A verified node; `kept` ones are accepted and on the best path."""
    return TreeRow(
        cycle, node, parent, depth, branch, token_id, text, -0.25, margin, is_ufp, True, kept, kept
    )  # fmt: skip


def _plain(row: TokenRow) -> TokenRow:
    """Without the slim verifier's numbers: two tiers."""
    return replace(row, slim_ratio=None, thr1=None, thr2=None, logp_slim=None)
