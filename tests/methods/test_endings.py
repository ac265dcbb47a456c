"""How a run ends inside the loop: EOS and stop strings from every source, limits, contexts, bad prompts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scripted import (
    Letters,
    Table,
    TableRunner,
    constant_table,
    greedy_text,
    near,
    random_table,
    run,
    scripted_parts,
)
from viasd_core.decode import decode
from viasd_core.errors import MaskError, PromptError
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

EOS = 5
COUNT = 12


def counting(favourite_gap: float = 6.0) -> Table:
    """Behind token i comes i + 1 (mod 12), almost surely."""
    logits = torch.zeros(COUNT + 1, COUNT, dtype=torch.float64)
    for token in range(COUNT):
        logits[token + 1, (token + 1) % COUNT] = favourite_gap
    return Table(logits, 1)


COUNTER = counting()
SHIFTED = Table(COUNTER.logits.roll(1, 1), 1)  # always one too far: every draft is wrong


def ended(
    *,
    start: int = 0,
    drafter: Table = COUNTER,
    small: Table = COUNTER,
    eos: tuple[int, ...] = (EOS,),
    **changes: Any,
) -> Trace:
    chosen: dict[str, Any] = {"mask": "101", "gamma": 4, "max_new_tokens": 30} | changes
    settings = Settings(**chosen)
    trace = run(scripted_parts(TableRunner(COUNTER, small), drafter, eos=eos), [start], settings)
    assert check(trace) == []
    return trace


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("method", ["ar", "sd", "via-sd"])
def test_an_eos_at_any_offset_of_a_block_ends_the_run_there(method: str, start: int) -> None:
    changes = {"mask": "101"} if method == "via-sd" else {}
    settings = Settings(method=method, gamma=4, max_new_tokens=30, **changes)  # type: ignore[arg-type]
    trace = run(scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER, eos=(EOS,)), [start], settings)
    assert trace.token_ids == list(range(start + 1, EOS + 1))
    assert trace.finish == "eos"
    assert not trace.emitted[-1].shown and trace.text == "bcdef"[start : EOS - 1]
    assert check(trace) == []


def test_an_eos_written_by_q_ends_the_run() -> None:
    trace = ended(start=EOS - 1, drafter=SHIFTED, core_thresholds=(2.0, 2.0))
    assert [row.verdict for row in trace.emitted] == ["rewritten_full"] and trace.finish == "eos"


def test_an_eos_written_by_the_slim_verifier_ends_the_run_and_is_audited() -> None:
    trace = ended(start=EOS - 1, drafter=SHIFTED, core_thresholds=(0.9, 0.0))
    assert [row.verdict for row in trace.emitted] == ["regenerated_slim"] and trace.finish == "eos"
    assert trace.emitted[0].audit_rank == 0 and trace.cycles[-1].settle_forwards == 1


@pytest.mark.parametrize("source", ["q-if-called", "slim"])
def test_an_eos_in_the_bonus_ends_the_run(source: str) -> None:
    thresholds = (2.0, 2.0) if source == "q-if-called" else (0.0, 0.0)
    trace = ended(start=0, bonus=source, core_thresholds=thresholds, bonus_threshold=0.5)
    assert trace.token_ids == [1, 2, 3, 4, EOS]
    assert trace.emitted[-1].verdict == "bonus" and trace.finish == "eos"


def test_an_eos_that_ends_a_full_block_earns_no_bonus() -> None:
    for method, changes in (("sd", {}), ("via-sd", {"mask": "101", "bonus": "slim", "bonus_threshold": 0.0})):
        settings = Settings(method=method, gamma=4, max_new_tokens=30, **changes)  # type: ignore[arg-type]
        trace = run(scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER, eos=(4,)), [0], settings)
        assert trace.token_ids == [1, 2, 3, 4] and trace.finish == "eos"


def test_nothing_behind_a_drafted_eos_is_examined() -> None:
    trace = ended(start=2, gamma=8)
    assert [row.token_id for row in trace.tokens] == [3, 4, EOS]
    assert trace.cycles[0].drafted == 3


def test_a_rejected_eos_draft_does_not_end_the_run() -> None:
    trace = ended(start=3, drafter=SHIFTED, core_thresholds=(2.0, 2.0), max_new_tokens=1)
    assert trace.tokens[0].token_id == EOS and trace.tokens[0].verdict == "rejected"
    assert trace.token_ids == [4] and trace.finish == "length"


@pytest.mark.parametrize("stop", ["c", "cd", "bcd", "de"])
@pytest.mark.parametrize("method", ["ar", "sd", "via-sd"])
def test_a_stop_string_in_mid_block_trims_the_text_and_discards_the_rest(method: str, stop: str) -> None:
    changes = {"mask": "101"} if method == "via-sd" else {}
    settings = Settings(method=method, gamma=6, stop=(stop,), **changes)  # type: ignore[arg-type]
    trace = run(scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER), [0], settings)
    letters = "bcdefghij"
    assert trace.finish == "stop" and trace.text == letters[: letters.index(stop)]
    assert trace.token_ids == list(range(1, letters.index(stop) + len(stop) + 1))
    assert check(trace) == []


def test_streamed_text_never_shows_a_stop_string_that_grows_over_cycles() -> None:
    settings = Settings(mask="101", gamma=1, stop=("def",), max_new_tokens=30)
    parts = scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER)
    pieces = [(event.text, event.text_retract) for event in decode(parts, [0], settings)]
    assert "".join(piece for piece, _ in pieces) == "bc"
    assert all(dropped == 0 for _, dropped in pieces)


def test_a_multi_byte_character_split_over_tokens_streams_whole() -> None:
    spell = Letters({1: b"\xf0\x9f", 2: b"\x98", 3: b"\x80"})
    parts = scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER, spell=spell)
    settings = Settings(mask="101", gamma=1, max_new_tokens=4)
    assert [event.text for event in decode(parts, [0], settings)] == ["", "", "😀", "e"]
    trace = run(parts, [0], settings)
    assert [row.text for row in trace.emitted] == ["", "", "😀", "e"] and trace.text == "😀e"


@pytest.mark.parametrize("limit", range(1, 10))
@pytest.mark.parametrize("bonus", ["none", "slim"])
def test_a_block_never_crosses_the_limit_and_hits_it_exactly(limit: int, bonus: str) -> None:
    trace = ended(eos=(), max_new_tokens=limit, bonus=bonus, bonus_threshold=0.0)
    assert trace.token_ids == list(range(1, limit + 1)) and trace.finish == "length"
    assert sum(cycle.drafted for cycle in trace.cycles) <= limit


def test_the_end_of_the_context_is_named_as_such() -> None:
    runner = TableRunner(COUNTER, COUNTER, n_ctx=9)
    trace = run(scripted_parts(runner, COUNTER), [0, 1, 2], Settings(mask="101", max_new_tokens=30))
    assert trace.token_ids == [3, 4, 5, 6, 7, 8] and trace.finish == "context"


def test_a_limit_that_falls_on_the_context_end_is_the_limit() -> None:
    runner = TableRunner(COUNTER, COUNTER, n_ctx=9)
    trace = run(scripted_parts(runner, COUNTER), [0, 1, 2], Settings(mask="101", max_new_tokens=6))
    assert trace.finish == "length"


@pytest.mark.parametrize("method", ["sd", "via-sd"])
def test_text_that_outgrows_the_drafters_context_goes_on_with_q_alone_and_says_so_once(method: str) -> None:
    q = random_table(6, 2, 3)
    settings = Settings(method=method, max_new_tokens=20, gamma=4)
    if method == "via-sd":
        settings = settings.with_(mask="101", strict=True)
    parts = scripted_parts(TableRunner(q, near(q, 0.5, 4)), near(q, 0.5, 5), n_ctx=10)
    trace = run(parts, [1, 2], settings)
    assert trace.token_ids == greedy_text(q, [1, 2], 20)
    notes = [event for event in trace.events if event.key == "drafter"]
    assert len(notes) == 1 and "outgrew the drafter's context" in notes[0].new
    assert trace.summary()["counts"]["target"] >= 8


def test_an_empty_prompt_starts_from_bos_or_is_refused() -> None:
    parts = scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER)
    with pytest.raises(PromptError, match="the prompt is empty"):
        decode(parts, [], Settings(mask="101"))
    from dataclasses import replace

    trace = run(replace(parts, bos_id=3), [], Settings(mask="101", max_new_tokens=2))
    assert trace.token_ids == [4, 5]


@pytest.mark.parametrize("prompt", [[0, COUNT], [-1]])
def test_a_prompt_with_an_id_outside_the_vocabulary_is_refused(prompt: list[int]) -> None:
    with pytest.raises(PromptError, match=r"outside the pair's vocabulary of 12 ids"):
        decode(scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER), prompt, Settings(mask="101"))


def test_a_prompt_as_long_as_the_context_is_refused_and_one_shorter_runs() -> None:
    parts = scripted_parts(TableRunner(COUNTER, COUNTER, n_ctx=6), COUNTER)
    with pytest.raises(PromptError, match="6 tokens long and the model's context holds 6; shorten it to 5"):
        decode(parts, [0] * 6, Settings(mask="101"))
    assert run(parts, [0] * 5, Settings(mask="101")).token_ids == [1]


def test_a_mask_that_does_not_fit_is_refused_before_the_first_event() -> None:
    with pytest.raises(MaskError, match="give 3 characters 0 or 1"):
        decode(scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER), [0], Settings(mask="1011"))


def test_a_closed_run_leaves_the_models_ready_for_the_next() -> None:
    parts = scripted_parts(TableRunner(COUNTER, COUNTER), COUNTER)
    settings = Settings(mask="101", max_new_tokens=8)
    whole = run(parts, [0], settings).token_ids
    events = decode(parts, [0], settings)
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert run(parts, [0], settings).token_ids == whole


def test_verdicts_of_greedy_decoding_without_a_drafter_are_all_target() -> None:
    trace = run(
        scripted_parts(TableRunner(COUNTER, COUNTER), None), [0], Settings(mask="101", max_new_tokens=4)
    )
    assert [row.verdict for row in trace.emitted] == ["target"] * 4


def test_a_uniform_row_draws_every_token() -> None:
    """No id is lost to slicing or padding."""
    flat = constant_table([0.25] * 4)
    trace = run(
        scripted_parts(TableRunner(flat, flat), flat),
        [0],
        Settings(mask="101", temperature=1.0, max_new_tokens=200),
    )
    assert set(trace.token_ids) == {0, 1, 2, 3}
