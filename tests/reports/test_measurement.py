"""Reports about what is counted and shown, each as a test named after its symptom."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from oracle.models import hf_greedy, loop_of, pair, prompt, run
from oracle.scripted import drafting
from viasd_core.live import LiveSettings
from viasd_core.parts import parts_of
from viasd_core.settings import Settings

SD = Settings(method="sd", gamma=4, max_new_tokens=20)


@pytest.mark.parametrize("right", range(5))
def test_acceptance_is_always_shown_as_100_percent(right: int) -> None:
    """llama.cpp #22506: counted anew from the rows, and equal to what was arranged."""
    ids, truth = prompt(6), hf_greedy("llama", 6, 40)
    parts = drafting(parts_of(pair("llama", "none")), ids + list(truth), [right])
    trace = run(parts, ids, SD)
    verdicts = Counter(row.verdict for row in trace.tokens)
    accepted = sum(row.region_c_accepted for row in trace.cycles)
    examined = sum(row.examined for row in trace.cycles)
    totals = trace.summary()
    assert verdicts["accepted_full"] == accepted == totals["counts"]["accepted_full"]
    assert verdicts["rejected"] == examined - accepted == verdicts["rewritten_full"]
    whole = [row for row in trace.cycles if row.drafted == SD.gamma]
    assert whole and all(row.region_c_accepted == right for row in whole)
    assert totals["rejection_rate"] == pytest.approx((examined - accepted) / examined)


@pytest.mark.parametrize("drafter", ["model", "nested"])
def test_counted_forwards_are_not_the_forwards_that_ran(drafter: str) -> None:
    """llama.cpp #22506, for cost: draft, slim, full and settle forwards are what the runners really did."""
    settings = Settings(max_new_tokens=30, mask="1011", alpha1=0.2, alpha2=0.02, debt_cap=6)
    loop = loop_of(pair("llama", drafter), prompt(6), settings)
    verifier, calls = loop.run.verifier, Counter[str]()
    for name in ("full", "settle"):
        setattr(verifier, name, counted(getattr(verifier, name), name, calls))
    (slim,) = verifier.slims
    object.__setattr__(slim, "run", counted(slim.run, "slim", calls))  # frozen
    rows, finish = [], None
    while finish is None:
        event = loop.step()
        rows.append(event.cycle)
        finish = event.finish
    assert sum(row.full_forwards + row.settle_forwards for row in rows) == calls["full"] + calls["settle"]
    assert sum(row.slim_forwards for row in rows) == calls["slim"]
    assert sum(row.draft_forwards for row in rows) == sum(row.drafted for row in rows)
    assert calls["settle"] <= 1 and calls["slim"] > calls["full"] > 0


def counted(call: object, name: str, calls: Counter[str]) -> object:
    def wrapper(*args: object) -> object:
        calls[name] += 1
        return call(*args)  # type: ignore[operator]

    return wrapper


def test_second_run_starts_with_the_draft_length_the_first_ended_with() -> None:
    """transformers #28759, #40739: a schedule or a slider of one run never outlives it."""
    source, ids = pair("llama", "model"), prompt(6)
    live = LiveSettings(SD)
    first = loop_of(source, ids, SD, live)
    first.step()
    live.update(gamma=1)
    assert first.step().cycle.drafted == 1
    assert loop_of(source, ids, SD).step().cycle.drafted == SD.gamma == 4


@pytest.mark.parametrize("settings", [SD, Settings(mask="even", strict=True, max_new_tokens=20)])
@pytest.mark.parametrize("counts", [[0], [0, 3], [2, 0, 0], [1, 0, 5]])
def test_empty_proposals_raise_an_index_error(counts: list[int], settings: Settings) -> None:
    """vLLM #7047: a drafter may offer nothing, now and then or always."""
    ids, truth = prompt(6), hf_greedy("llama", 6, 20)
    parts = drafting(parts_of(pair("llama", "none")), ids + list(truth), [1, 4], counts)
    trace = run(parts, ids, settings)
    assert trace.token_ids == list(truth)
    empty = [row for row in trace.cycles if not row.drafted]
    assert empty and all(row.full_forwards == 1 and row.draft_forwards == 0 for row in empty)


def test_no_drafter_at_all_raises() -> None:
    """vLLM #7047."""
    parts = replace(parts_of(pair("llama", "none")), drafter=None)
    assert run(parts, prompt(6), SD).token_ids == list(hf_greedy("llama", 6, 20))
