"""Which suffix stands behind a repair: told by the drafter or measured, and said by every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cure.cure_toys import SLOTS, TableBlockDrafter, table_parts
from drafters.runs import block_pair
from scripted import TableRunner, greedy_text, near, random_table
from viasd_core import suffix_choice
from viasd_core.decode import Loop, generate
from viasd_core.drafters.base import Redrawn
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair
from viasd_core.parts import Parts
from viasd_core.presets import shipped_config
from viasd_core.probs import Noise, Sampling
from viasd_core.recording import encode_prompt, record
from viasd_core.settings import Settings
from viasd_core.suffix_choice import better, compare_suffixes, note, remember, will_measure, with_suffix
from viasd_core.trace_check import check

CURE = Settings(method="cure", max_new_tokens=12)
PROMPT = "the and"
TEXT = 40


class DeafDrafter(TableBlockDrafter):
    """Knows nothing of a substituted token: behind it stands one token again and again."""

    def redraw(self, known: Sequence[Sequence[int]], count: int, sampling: Sampling, noise: Noise) -> Redrawn:
        redrawn = super().redraw(known, count, sampling, noise)
        tokens = torch.zeros_like(redrawn.tokens)
        for lane, told in enumerate(known):
            tokens[lane, : len(told)] = torch.tensor(told)
        return replace(redrawn, tokens=tokens)


def parts_of_tables(seed: int, *, deaf: bool = False) -> Parts:
    q = random_table(8, 2, seed, scale=1.5)
    drafter = near(q, 0.6, seed + 1)
    parts = table_parts(TableRunner(q), drafter)
    return replace(parts, drafter=lambda verifier, capacity: DeafDrafter(drafter)) if deaf else parts


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int:
    return next(
        (at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), len(ours)
    )


def scores_by_definition(seed: int, prompt: list[int]) -> dict[str, Any]:
    """Drafts and suffixes said token by token out of the tables, without a cache or a run."""
    q = random_table(8, 2, seed, scale=1.5)
    drafter = near(q, 0.6, seed + 1)
    text = prompt + greedy_text(q, prompt, TEXT)
    kept, repairs, positions = {"S1": 0, "S2": 0}, 0, 0
    for known in range(len(prompt), len(text)):
        ahead = text[known : known + SLOTS - 1]
        draft = greedy_text(drafter, text[:known], len(ahead))
        place = first_difference(draft, ahead)
        behind = ahead[place + 1 :]
        if behind:
            anew = greedy_text(drafter, text[: known + place + 1], len(behind))
            kept["S1"] += first_difference(draft[place + 1 :], behind)
            kept["S2"] += first_difference(anew, behind)
            repairs, positions = repairs + 1, positions + len(behind)
    agreement = {name: count / positions for name, count in kept.items()}
    return {"agreement": agreement, "repairs": repairs, "positions": positions}


def test_scores_are_the_shares_of_suffix_tokens_that_the_verifier_says_too() -> None:
    for seed in (1, 4, 11, 12):
        found = compare_suffixes(parts_of_tables(seed), [1], TEXT)
        assert found == scores_by_definition(seed, [1])
        assert found["repairs"] > 3
        assert seed == 1 or 0 < found["agreement"]["S1"] < found["agreement"]["S2"] < 1


def test_a_drafter_that_listens_gets_s2_and_one_that_does_not_s1() -> None:
    listens = compare_suffixes(parts_of_tables(4), [1], TEXT)
    deaf = compare_suffixes(parts_of_tables(4, deaf=True), [1], TEXT)
    assert (better(listens), better(deaf)) == ("S2", "S1")
    assert listens["agreement"]["S1"] == deaf["agreement"]["S1"]
    assert deaf["agreement"]["S2"] < deaf["agreement"]["S1"] < listens["agreement"]["S2"]
    assert better({"agreement": {"S1": 0.25, "S2": 0.25}}) == "S1", "a pass for nothing"


def test_where_nothing_could_be_compared_the_draft_is_reused() -> None:
    q = random_table(8, 2, 0, scale=1.5)
    right = compare_suffixes(table_parts(TableRunner(q), q), [1], TEXT)
    full = compare_suffixes(parts_of_tables(0), [1] * parts_of_tables(0).runner.n_ctx, TEXT)
    for found in (right, full):
        assert found == {"agreement": {"S1": 0.0, "S2": 0.0}, "repairs": 0, "positions": 0}
        assert better(found) == "S1"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Parts]:
    """The parts that a measurement was made with; every one finds S2 the better."""
    calls: list[Parts] = []

    def compare(parts: Parts, prompt_ids: Sequence[int]) -> dict[str, Any]:
        calls.append(parts)
        return {"agreement": {"S1": 0.125, "S2": 0.25}, "repairs": 7, "positions": 16}

    monkeypatch.setattr(suffix_choice, "compare_suffixes", compare)
    return calls


def used_by(pair: ModelPair, settings: Settings) -> str:
    trace = record(pair, PROMPT, settings, prompt_ids=encode_prompt(pair, PROMPT))
    assert check(trace) == []
    return str(trace.run["settings"]["suffix"])


def test_a_drafter_trained_with_a_known_prefix_gets_s2_without_a_measurement(
    tmp_path: Path, measured: list[Parts]
) -> None:
    pair = block_pair(tmp_path, known_prefix=True)
    assert not will_measure(pair, CURE)
    settings, said = with_suffix(pair, CURE)
    assert settings == CURE.with_(suffix="S2")
    assert said == {"suffix_choice": {"choice": "S2", "known_prefix": True}}
    assert note(said["suffix_choice"]) is None
    assert measured == []


def test_one_that_only_saw_masks_is_measured_once_and_every_run_says_what_was_found(
    tmp_path: Path, measured: list[Parts]
) -> None:
    pair = block_pair(tmp_path)
    assert will_measure(pair, CURE)
    traces = [record(pair, PROMPT, CURE, prompt_ids=encode_prompt(pair, PROMPT)) for _ in range(2)]
    for trace in traces:
        assert trace.run["settings"]["suffix"] == "S2"
        assert trace.run["suffix_choice"] == {
            "choice": "S2", "known_prefix": False, "agreement": {"S1": 0.125, "S2": 0.25}, "repairs": 7,
            "positions": 16,
        }  # fmt: skip
    assert len(measured) == 1 and not will_measure(pair, CURE)
    said = note(traces[0].run["suffix_choice"])
    assert said is not None and "suffix S2 was chosen" in said
    assert "of 16 tokens behind 7 repairs" in said and "12.5% with S1" in said and "25.0% with S2" in said


def test_a_real_measurement_decides_what_a_run_of_the_pair_does(tmp_path: Path) -> None:
    pair = block_pair(tmp_path)
    found = with_suffix(pair, CURE)[1]["suffix_choice"]
    assert found["positions"] > 20 and set(found["agreement"]) == {"S1", "S2"}
    assert found["choice"] == better(found) == used_by(pair, CURE)
    ids = encode_prompt(pair, PROMPT)
    wide = CURE.with_(tau_margin=5.0)
    explicit = [
        event.cycle.draft_forwards for event in generate(pair, ids, wide.with_(suffix=found["choice"]))
    ]
    assert [event.cycle.draft_forwards for event in generate(pair, ids, wide)] == explicit


@pytest.mark.parametrize("choice", ["S1", "S2"])
def test_a_library_call_decodes_with_what_was_found(choice: str, tmp_path: Path) -> None:
    pair = block_pair(tmp_path)
    remember(pair, {"choice": choice, "known_prefix": False, "agreement": {"S1": 0.0, "S2": 0.0}})
    ids = encode_prompt(pair, PROMPT)
    events = list(generate(pair, ids, CURE.with_(tau_margin=50.0)))
    most = max(event.cycle.draft_forwards for event in events)
    assert most == {"S1": 1, "S2": 2}[choice], "a suffix drawn anew costs a pass"


def test_what_the_user_names_and_what_other_methods_do_is_left_alone(
    tmp_path: Path, measured: list[Parts]
) -> None:
    pair = block_pair(tmp_path)
    for settings in (CURE.with_(suffix="S1"), CURE.with_(suffix="S2"), Settings(method="block"), Settings()):
        assert with_suffix(pair, settings) == (settings, {})
    assert used_by(pair, CURE.with_(suffix="S1")) == "S1"
    assert measured == []


def test_the_choice_costs_no_more_than_two_drafter_passes_a_token() -> None:
    passes = 0

    class Counting(TableBlockDrafter):
        def draft(self, *given: Any) -> Any:
            nonlocal passes
            passes += 1
            return super().draft(*given)

        def redraw(self, *given: Any) -> Any:
            nonlocal passes
            passes += 1
            return super().redraw(*given)

    q = random_table(8, 2, 5, scale=1.5)
    drafter = near(q, 0.6, 6)
    parts = replace(
        table_parts(TableRunner(q), drafter), drafter=lambda verifier, capacity: Counting(drafter)
    )
    settings = Settings(method="block", max_new_tokens=TEXT)
    loop = Loop(parts, [1], settings, LiveSettings(settings))
    while loop.step().finish is None:
        continue
    decoding, passes = passes, 0
    compare_suffixes(parts, [1], TEXT)
    assert decoding < passes <= decoding + 2 * TEXT


def test_the_shipped_block_drafter_says_that_it_knows_prefixes() -> None:
    """It was made by `distill --kind block`, which has known tokens in a share of its blocks."""
    assert shipped_config("smollm2-135m-block")["dflash_config"]["known_prefix"] is True
