from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sample_traces
from viasd_core.paths import PRESETS
from viasd_core.trace import CycleEvent, Trace
from viasd_core.trace_positions import acceptance_by_position

RECORDED = sorted((PRESETS / "traces").glob("*.zip"))


def triples(trace: Trace) -> list[tuple[int, int, int]]:
    return [(row["position"], row["examined"], row["accepted"]) for row in acceptance_by_position(trace)]


def test_every_position_counts_its_failures_and_leaves_out_what_nobody_examined() -> None:
    """The first position read 1.0 elsewhere, because failures were left out (llama.cpp 25818)."""
    assert triples(sample_traces.via_sd_trace()) == [(1, 3, 3), (2, 3, 3), (3, 3, 1), (4, 0, 0)]


def test_a_draft_that_passed_and_was_dropped_or_taken_back_is_examined_and_not_accepted() -> None:
    assert triples(sample_traces.strict_trace()) == [(1, 2, 1), (2, 1, 0), (3, 1, 0)]


def test_drafts_on_a_repair_branch_stand_at_their_own_depth() -> None:
    assert triples(sample_traces.tree_trace()) == [(1, 2, 2), (2, 1, 1), (3, 1, 1)]


def test_plain_decoding_and_an_empty_trace_have_no_positions() -> None:
    trace = Trace()
    row = sample_traces.cycle_row(0, 0, 1, 5, full_forwards=1)
    trace.add(CycleEvent(row, (sample_traces.drawn(0, 0, "x", "target", 0),), finish="length"))
    assert acceptance_by_position(trace) == acceptance_by_position(Trace()) == []


def test_a_position_that_no_gamma_reaches_does_not_fill_the_memory() -> None:
    trace = Trace(
        tokens=[sample_traces.draft(0, slot, "x", "rejected", "C", None) for slot in (0, 10**12, -1)]
    )
    assert triples(trace) == [(1, 1, 0)]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_positions_of_a_recorded_run_sum_to_its_totals(path: Path) -> None:
    trace = Trace.load(path)
    counts = acceptance_by_position(trace)
    totals = trace.summary()
    assert len(counts) == max(cycle.gamma for cycle in trace.cycles)
    assert sum(row["examined"] for row in counts) == totals["examined"]
    kept = totals["counts"]["accepted_slim"] + totals["counts"]["accepted_full"]
    assert sum(row["accepted"] for row in counts) == kept
    assert counts[0]["examined"] == sum(cycle.examined > 0 for cycle in trace.cycles)


def test_counting_needs_no_torch() -> None:
    code = "import sys, viasd_core.trace_positions; print({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
