"""Numbers on the page against the definitions of the trace, and the question whether the slim tier pays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from sample_trees import cure_run
from viasd_core.trace import CycleEvent, Trace
from viz import wire


def flat(value: Any, name: str = "") -> dict[str, float]:
    """{"a.b": number} of nested objects; a number that is not known is -1."""
    if not isinstance(value, dict):
        return {name: -1.0 if value is None else value}
    return {
        key: number for part, item in value.items() for key, number in flat(item, f"{name}.{part}").items()
    }


MAKERS = [sample_traces.via_sd_trace, sample_traces.strict_trace, sample_traces.tree_trace]


@pytest.mark.parametrize("make", MAKERS)
def test_totals_of_an_unfinished_run_follow_the_definitions(page: Page, make: Callable[[], Trace]) -> None:
    trace = make()
    page.evaluate("value => push(value)", wire.batch("r", 1, wire.trace_messages(trace)[:-1]))
    run = json.loads(page.evaluate("__viasd.exportFiles()")["run.json"])
    assert flat(run["totals"]) == pytest.approx(flat(trace.summary()))
    assert run["complete"] is False
    assert run["text"] == trace.text


def timed_trace(
    method: str = "via-sd", *, full_us: int = 900, calls: int = 1, ranks: tuple[int, ...] = (0, 0, 0, 1)
) -> Trace:
    """Two cycles of four kept drafts each; q runs in `calls` of them and audits the first cycle's tokens."""
    trace = Trace()
    for number in range(2):
        called = int(number < calls)
        phases = {"draft": 400, "slim": 300, "full": full_us * called}
        row = sample_traces.cycle_row(
            number, 4, 4, 8 + 4 * number, region_a=4, full_forwards=called, phase_us=phases
        )
        tokens = tuple(
            sample_traces.draft(number, slot, f" w{slot}", "accepted_slim", "A", 4 * number + slot)
            for slot in range(4)
        )
        audits = (
            tuple(sample_traces.audit(slot, rank=rank) for slot, rank in enumerate(ranks))
            if number == 0
            else ()
        )
        trace.add(
            CycleEvent(row, tokens, audits=audits if called else (), finish="length" if number else None)
        )
    return sample_traces.finish_run(trace, method, {})


def costs(page: Page) -> dict[str, str]:
    names = page.locator(".cost-name").all_text_contents()
    values = page.locator(".cost .num").all_text_contents()
    return dict(zip(names, values, strict=True))


def test_the_cost_of_three_tiers_stands_against_an_estimate_of_two(
    page: Page, show: Callable[..., None]
) -> None:
    show(page, timed_trace())
    keep = 3 / 4
    two_tier_run = (1 - keep**5) / (1 - keep)
    three, two = (400 + 300 + 0.5 * 900) / 4, (400 + 900) / two_tier_run
    limit = ((400 + 900) * 4 / two_tier_run - 400 - 300) / 900
    expect(page.locator(".pays .sentence")).to_contain_text("Pays here")
    assert costs(page) == {
        "three tiers, this run": f"{three / 1000:.3f} ms",
        "two tiers, estimate": f"{two / 1000:.3f} ms",
        "full forward a token": "0.900 ms",
    }
    words = f"0.50 times a cycle and the break-even is {limit:.2f}"
    expect(page.locator(".pays .sentence")).to_contain_text(words)
    expect(page.locator(".pays")).to_contain_text("the full verifier keeps 75 % of 4 judged drafts")


def test_a_slim_verifier_as_slow_as_the_full_one_does_not_pay(page: Page, show: Callable[..., None]) -> None:
    show(page, timed_trace(full_us=200, ranks=(0, 0, 0, 0)))
    expect(page.locator(".pays .sentence")).to_contain_text("Does not pay here")
    expect(page.locator(".pays .sentence")).to_contain_text("even without any full forward")


def test_an_unknown_full_verifier_is_said_to_be_unknown(page: Page, show: Callable[..., None]) -> None:
    show(page, timed_trace(calls=0))
    expect(page.locator(".pays")).to_contain_text(
        "The full verifier has not run yet, so its time is unknown."
    )
    expect(page.locator(".cost")).to_have_count(0)


def test_a_verifier_that_ran_over_trees_only_is_not_said_to_have_rested(
    page: Page, show: Callable[..., None]
) -> None:
    trace = cure_run()
    trace.cycles = [replace(row, phase_us=row.phase_us | {"full": 0, "tree": 500}) for row in trace.cycles]
    show(page, trace)
    expect(page.locator(".pays")).to_contain_text("The full verifier ran over trees only")


def test_passes_over_trees_are_counted_with_their_own_time(page: Page, show: Callable[..., None]) -> None:
    """One plain forward behind a last, empty draft must not stand for all the tree passes."""
    trace = cure_run()
    *grown, last = trace.cycles
    trace.cycles = [replace(row, phase_us={"draft": 100, "tree": 9000}) for row in grown]
    trace.cycles.append(replace(last, phase_us={"draft": 100, "full": 700}))
    show(page, trace)
    cycles, tokens = len(trace.cycles), len(trace.token_ids)
    own = (100 * cycles + 9000 * len(grown) + 700) / tokens
    expect(page.locator(".pays .sentence")).to_contain_text("Speculation does not pay here")
    shown = {name: float(value.split()[0]) for name, value in costs(page).items()}
    assert shown == pytest.approx({"two tiers, this run": own / 1000, "full forward a token": 0.7}, rel=0.01)


def test_without_a_judged_draft_two_tiers_are_not_estimated(page: Page, show: Callable[..., None]) -> None:
    trace = timed_trace()
    trace.tokens = [replace(row, audit_rank=None, audit_logp=None, audit_kl=None) for row in trace.tokens]
    show(page, trace)
    expect(page.locator(".pays")).to_contain_text("so two tiers cannot be estimated")
    assert list(costs(page)) == ["three tiers, this run", "full forward a token"]


def test_plain_decoding_has_nothing_to_compare(page: Page, show: Callable[..., None]) -> None:
    trace = Trace()
    row = sample_traces.cycle_row(0, 0, 1, 5, full_forwards=1, phase_us={"full": 700})
    trace.add(CycleEvent(row, (sample_traces.drawn(0, 0, "x", "target", 0),), finish="length"))
    show(page, sample_traces.finish_run(trace, "ar", {}))
    expect(page.locator(".pays")).to_contain_text("Plain decoding: nothing is drafted")


def test_a_redrawn_draft_counts_as_refused_only_when_that_is_known(
    page: Page, show: Callable[..., None]
) -> None:
    """Greedy: when q's argmax is the redrawn token, q refuses the draft; otherwise nobody knows."""

    def judged(rank: int) -> Any:
        trace = Trace()
        phases = {"draft": 400, "slim": 300, "full": 900}
        cycle = sample_traces.cycle_row(0, 2, 2, 6, region_a=1, region_b=1, full_forwards=1, phase_us=phases)
        rows = (
            sample_traces.draft(0, 0, "a", "accepted_slim", "A", 0),
            sample_traces.draft(0, 1, "b", "rejected", "B", None),
            sample_traces.drawn(0, 1, "c", "regenerated_slim", 1),
        )
        audits = (sample_traces.audit(0), sample_traces.audit(1, rank=rank))
        trace.add(CycleEvent(cycle, rows, audits=audits, finish="length"))
        show(page, sample_traces.finish_run(trace, "via-sd", {}), f"run-{rank}")
        return page.locator(".pays")

    expect(judged(0)).to_contain_text("keeps 50 % of 2 judged drafts")
    expect(judged(3)).to_contain_text("keeps 100 % of 1 judged draft,")
