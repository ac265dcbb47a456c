"""What repairs gain and cost, beside the tree: running figures against the trace's own definitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_trees
from cure.cure_toys import table_parts
from scripted import TableRunner, near, random_table, run
from viasd_core.settings import Settings
from viasd_core.trace import CycleRow, Trace
from viz import wire


def spent(row: CycleRow) -> int:
    return sum(us for phase, us in row.phase_us.items() if phase != "prefill")


def paid_ms(trace: Trace) -> float:
    """Repaired cycles times the difference of the two medians."""
    repaired = {row.cycle for row in trace.tree if row.branch}
    with_repair = [spent(row) for row in trace.cycles if row.cycle in repaired]
    without = [spent(row) for row in trace.cycles if row.drafted and row.cycle not in repaired]
    return len(with_repair) * (median(with_repair) - median(without)) / 1000


def until(trace: Trace, cycle: int) -> Trace:
    return Trace(
        tokens=[row for row in trace.tokens if row.cycle <= cycle],
        cycles=[row for row in trace.cycles if row.cycle <= cycle],
        tree=[row for row in trace.tree if row.cycle <= cycle],
    )


def line(trace: Trace) -> str:
    extra = trace.summary()["repair"]["extra_tokens"]
    return (
        f"{extra} extra token{'' if extra == 1 else 's'} gained / about {three(paid_ms(trace))} ms extra paid"
    )


def three(value: float) -> str:
    """Three significant digits and at most three decimals, as the page prints numbers below 1000."""
    if value == int(value):
        return str(int(value))
    return f"{value:.{min(3, max(0, 2 - math.floor(math.log10(value))))}f}"


def formula(trace: Trace) -> str:
    """(E[a] + 1) / (C_d + C_v) from the phases of the trace."""
    kept = trace.summary()["repair"]["accepted_per_step"]
    extra = trace.summary()["repair"]["extra_tokens"] / len(trace.cycles)

    def each(*phases: str) -> float:
        return mean(sum(row.phase_us.get(phase, 0) for phase in phases) / 1000 for row in trace.cycles)

    drafting, verifying = each("draft", "resync"), each("slim", "tree", "full", "gate")
    rate = 1000 * (kept + 1) / (drafting + verifying)
    alone = 1000 * (kept - extra + 1) / (drafting + verifying - paid_ms(trace) / len(trace.cycles))
    return (
        f"(E[a] + 1) / (C_d + C_v) = ({kept:.2f} + 1) / ({three(drafting)} ms + {three(verifying)} ms) = "
        f"{three(rate)} tokens/s; branch 0 alone about {three(alone)}."
    )


@pytest.fixture
def cure(page: Page, show: Callable[..., None]) -> Page:
    show(page, sample_trees.cure_run())
    return page


def test_the_figures_of_a_whole_run_follow_its_trace(cure: Page) -> None:
    trace = sample_trees.cure_run()
    expect(cure.locator(".tree-pays")).to_have_text(line(trace))
    expect(cure.locator(".tree-rate")).to_have_text(formula(trace))
    each = paid_ms(trace) / trace.summary()["repair"]["extra_tokens"]
    expect(cure.locator(".tree-note")).to_have_text(
        f"{three(each)} ms for each · 2 of 3 repaired cycles won · "
        "extra: median repaired cycle less median cycle without a repair"
    )


def test_the_figures_run_with_the_run(page: Page) -> None:
    trace = sample_trees.cure_run()
    messages = wire.trace_messages(trace)
    pays, rate = page.locator(".tree-pays"), page.locator(".tree-rate")
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:2]))
    expect(pays).to_have_text("0 extra tokens gained / 0 ms extra paid")
    for cycle in range(1, 5):
        page.evaluate("value => push(value)", wire.batch("r", cycle + 2, [messages[cycle + 1]]))
        expect(pays).to_have_text(line(until(trace, cycle)))
        expect(rate).to_have_text(formula(until(trace, cycle)))


def test_the_figures_follow_a_replay(cure: Page) -> None:
    cure.locator("canvas.strip").focus()
    cure.keyboard.press("Home")
    expect(cure.locator(".tree-note")).to_have_text("No repair has been tried yet.")
    cure.keyboard.press("ArrowRight")
    expect(cure.locator(".tree-pays")).to_have_text(line(until(sample_trees.cure_run(), 1)))


def test_the_newest_repair_stays_in_view_while_a_run_decodes(page: Page) -> None:
    messages = wire.trace_messages(sample_trees.cure_run())
    page.evaluate("value => push(value)", wire.batch("r", 1, messages[:-1]))
    expect(page.locator(".tree-where")).to_have_text("cycle 3 · repair 3 of 3")
    expect(page.locator(".tree-node")).to_have_count(35)
    page.evaluate("value => push(value)", wire.batch("r", len(messages), messages[-1:]))
    expect(page.locator(".tree-where")).to_have_text("cycle 4 · 3 repairs in this run")
    expect(page.locator(".tree-body")).to_be_hidden()


def test_a_run_that_begins_says_that_nothing_was_tried(page: Page) -> None:
    start = wire.start_event({"method": "cure"})
    page.evaluate("value => push(value)", wire.batch("r", 1, [start]))
    expect(page.locator(".tree-panel")).to_be_visible()
    expect(page.locator(".tree-note")).to_have_text("No repair has been tried yet.")


def test_extra_time_is_not_guessed_without_a_cycle_to_compare_with(
    page: Page, show: Callable[..., None]
) -> None:
    trace = sample_trees.run_of([sample_trees.block_of(seed, 8, 20, right=0) for seed in (1, 2)])
    show(page, trace)
    extra = trace.summary()["repair"]["extra_tokens"]
    expect(page.locator(".tree-pays")).to_have_text(f"{extra} extra tokens gained / extra time not known")
    expect(page.locator(".tree-note")).to_contain_text("resync alone took 1.40 ms")
    expect(page.locator(".tree-rate")).not_to_contain_text("branch 0 alone")


def test_without_times_there_is_no_rate(page: Page, show: Callable[..., None]) -> None:
    trace = sample_trees.cure_run()
    trace.cycles = [replace(row, phase_us={}) for row in trace.cycles]
    show(page, trace)
    expect(page.locator(".tree-rate")).to_contain_text("is not known: no times were recorded")


@pytest.mark.parametrize("options", [{}, {"max_positions": 3}, {"temperature": 1.0}])
def test_trees_of_the_engine_are_drawn_whole_and_counted_as_it_counts(
    page: Page, options: dict[str, Any]
) -> None:
    """A streamed run of table models, its cycles timed by a clock that counts nodes."""
    q = random_table(8, 2, 5, scale=1.5)
    parts = table_parts(TableRunner(q), near(q, 0.6, 6))
    trace = run(parts, [5], Settings(method="cure", max_new_tokens=60, tau_margin=0.25, **options))
    trace.cycles = [replace(row, phase_us={"tree": 100 * row.tree_nodes}) for row in trace.cycles]
    for number, message in enumerate(wire.trace_messages(trace), 1):
        page.evaluate("value => push(value)", wire.batch("r", number, [message]))
    expect(page.locator(".tree-pays")).to_have_text(line(trace))
    repaired = sorted({row.cycle for row in trace.tree if row.branch})
    assert len(repaired) > 3
    for place, cycle in reversed(list(enumerate(repaired, 1))):
        page.get_by_role("button", name="previous repair").click()
        expect(page.locator(".tree-where")).to_have_text(f"cycle {cycle} · repair {place} of {len(repaired)}")
        rows = [row for row in trace.tree if row.cycle == cycle]
        expect(page.locator(".tree-node")).to_have_count(len(rows))
        expect(page.locator(".tree-node.best")).to_have_count(sum(row.on_best_path for row in rows))
        gain = sum(row.accepted and row.branch > 0 for row in rows)
        verdict = page.locator(".tree-verdict")
        expect(verdict).to_contain_text(f"{gain} more than branch 0" if gain else "Branch 0 won")
