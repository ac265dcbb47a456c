"""Whether branch 0 would have won: told from the record, and not claimed where nobody judged it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_trees
from cure.cure_toys import table_parts
from scripted import TableRunner, near, random_table, run
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viewer_site import at_cycle


def test_a_repair_that_won_is_told_with_what_branch_0_would_have_kept(cure: Page) -> None:
    at_cycle(cure, 1)
    expect(cure.locator(".tree-where")).to_have_text("cycle 1 · repair 1 of 3")
    expect(cure.locator(".tree-verdict")).to_have_text(
        "Repair 1 won: 3 drafted tokens kept, 2 more than branch 0, which would have stopped after 1 of 4."
    )
    expect(cure.locator(".tree-bill")).to_have_text(
        "2 repair branches at position 2 (margin 0.25); 1 uncertain position below τ 1.00. Cost: 9 rows "
        "verified of at most 90, 5 of them for repair; draft 3.25 ms, tree 12.7 ms, resync 0.700 ms, "
        "2.35 ms more than the median cycle without a repair."
    )
    expect(cure.locator(".tree-stop")).to_have_count(1)


def test_a_repair_that_lost_is_told_as_branch_0_winning(cure: Page) -> None:
    at_cycle(cure, 2)
    expect(cure.locator(".tree-verdict")).to_have_text(
        "Branch 0 won: it kept 2 of 3, and no repair got further."
    )
    expect(cure.locator(".tree-node.best")).to_have_count(2)
    expect(cure.locator(".tree-node.best.repair")).to_have_count(0)


SPOKEN: dict[str, tuple[dict[str, Any], str, int]] = {  # changes of cycle 1, the sentence, bars
    "branch 0 kept as many": (
        {"branch0_kept": 3},
        "Repair 1 was taken: 3 drafted tokens kept. Branch 0 alone would have kept as many of 4, so nothing "
        "was gained.",
        1,
    ),
    "branch 0 was better": (
        {"branch0_kept": 4},
        "Branch 0 would have won: alone it would have kept 4 of 4. Repair 1 was taken: 3 drafted tokens "
        "kept.",
        0,
    ),
    "nobody asked": (
        {"alpha1": 0.5, "alpha2": 0.3, "drafted": 5},  # an end of sequence cut branch 0 short, not a repair
        "Repair 1 was taken: 3 drafted tokens kept. Whether branch 0 would have won is not known: it needed "
        "a verdict of the full verifier that was not asked for or not recorded.",
        0,
    ),
}


@pytest.mark.parametrize(("changes", "sentence", "bars"), SPOKEN.values(), ids=SPOKEN)
def test_what_branch_0_alone_would_have_kept_is_told_from_the_record_and_not_from_the_path(
    page: Page, show: Callable[..., None], changes: dict[str, Any], sentence: str, bars: int
) -> None:
    trace = sample_trees.cure_run()
    trace.cycles[1] = replace(trace.cycles[1], **changes)
    show(page, trace)
    at_cycle(page, 1)
    expect(page.locator(".tree-verdict")).to_have_text(sentence)
    expect(page.locator(".tree-stop")).to_have_count(bars)


@pytest.fixture
def left_out(page: Page, show: Callable[..., None]) -> tuple[Page, Trace]:
    """A page that shows a run of the engine whose trees leave out branch 0, and the run."""
    q = random_table(8, 2, 2, scale=1.5)
    parts = table_parts(TableRunner(q), near(q, 0.6, 3))
    settings = Settings(method="cure", max_new_tokens=60, tau_margin=2.0, branch0=False)
    trace = run(parts, [2], settings)
    show(page, trace)
    return page, trace


def test_of_a_branch_0_that_was_left_out_nothing_is_claimed(left_out: tuple[Page, Trace]) -> None:
    page, trace = left_out
    expect(page.locator(".tree-pays")).to_contain_text("extra tokens not known / ")
    expect(page.locator(".tree-note")).to_contain_text(
        "; it is not known of each what branch 0 alone would have kept"
    )
    expect(page.locator(".tree-rate")).not_to_contain_text("branch 0 alone")
    said = set()
    by_cycle = {row.cycle: row for row in trace.cycles}
    for cycle in reversed(sorted({row.cycle for row in trace.tree if row.branch})):
        page.get_by_role("button", name="previous repair").click()
        expect(page.locator(".tree-where")).to_contain_text(f"cycle {cycle} ·")
        rows = [row for row in trace.tree if row.cycle == cycle]
        path = [row for row in rows if row.on_best_path]
        winner = max((row.branch for row in path), default=0)
        taken = f"Repair {winner} was taken" if winner else "No repair was taken"
        expect(page.locator(".tree-verdict")).to_have_text(
            f"{taken}: {len(path)} drafted token{'' if len(path) == 1 else 's'} kept. Branch 0 was not "
            "verified, so whether it would have won is not known."
        )
        expect(page.locator(".tree-stop")).to_have_count(0)
        ufps = by_cycle[cycle].ufps
        expect(page.locator(".tree-bill")).to_contain_text(
            f"; {ufps} uncertain position{'' if ufps == 1 else 's'} below τ 2.00."
        )
        said.add(bool(winner))
    assert said == {True, False}


def test_a_repaired_position_without_a_node_keeps_its_diamond(left_out: tuple[Page, Trace]) -> None:
    """On its first fork and in the strip, without a margin: the token was not verified."""
    page, _ = left_out
    page.get_by_role("button", name="previous repair").click()
    forks = page.locator(".tree-node:has(.tree-fork)")
    expect(forks.first).to_be_visible()
    expect(forks.first.locator(".tree-ufp:not(.hollow)")).to_have_count(1)
    expect(page.locator(".tree-node .tree-ufp:not(.hollow)")).to_have_count(1)
    expect(forks.first.locator(".tree-margin")).to_have_count(0)
    column = page.locator(
        '.margin-column[aria-label$="token not verified · margin unknown · uncertain, repaired"]'
    )
    expect(column).to_have_count(1)
