"""Interleaving, warm-up and the draft-length search, with scripted runners."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.scripted import Log, ScriptedRunner, prompt, result
from viasd_core.bench.gamma import search_gamma, spread
from viasd_core.bench.measure import measure, rotation, warm_up


def runners(log: Log, *labels: str) -> list[ScriptedRunner]:
    return [ScriptedRunner(label, log, lambda ids, call: result([1], 1.0)) for label in labels]


def test_methods_alternate_within_a_prompt_and_take_turns_to_go_first() -> None:
    log: Log = []
    list(measure(runners(log, "a", "b", "c"), [prompt("p", 1), prompt("q", 2)], max_new_tokens=8, repeats=2))
    assert "".join(label for label, _, _ in log) == "abc" + "bca" + "cab" + "abc"
    assert [len(ids) for _, ids, _ in log] == [1] * 6 + [2] * 6


def test_no_method_always_runs_first_or_after_the_same_one() -> None:
    first = Counter(rotation(3, turn)[0] for turn in range(9))
    assert first == {0: 3, 1: 3, 2: 3}


def test_a_prompt_is_handed_over_as_soon_as_it_is_done() -> None:
    log: Log = []
    finished = measure(runners(log, "a", "b"), [prompt("p", 1), prompt("q", 1)], max_new_tokens=8, repeats=3)
    done = next(finished)
    assert done.prompt.item.id == "p" and len(log) == 6
    assert {label: len(results) for label, results in done.runs.items()} == {"a": 3, "b": 3}


def test_repeats_are_kept_in_the_order_they_were_made() -> None:
    log: Log = []
    runner = ScriptedRunner("a", log, lambda ids, call: result([call], float(call)))
    done = next(measure([runner], [prompt("p", 1)], max_new_tokens=8, repeats=3))
    assert [run.seconds for run in done.runs["a"]] == [1.0, 2.0, 3.0]


def test_warm_up_runs_each_method_three_times_up_to_the_longest_prompt_at_full_length() -> None:
    log: Log = []
    warm_up(runners(log, "a", "b"), [prompt("m", 5), prompt("l", 9), prompt("s", 2)], 64)
    for label in "ab":
        calls = [(len(ids), tokens) for name, ids, tokens in log if name == label]
        assert calls == [(2, 16), (5, 16), (9, 64)]


def test_warm_up_with_one_prompt_and_few_tokens() -> None:
    log: Log = []
    warm_up(runners(log, "a"), [prompt("only", 4)], 6)
    assert [(len(ids), tokens) for _, ids, tokens in log] == [(4, 6)] * 3


def test_the_best_gamma_is_the_fastest_over_all_tuning_prompts() -> None:
    log: Log = []
    times = {2: [1.0, 4.0], 4: [2.0, 2.0], 8: [3.0, 3.0]}  # 2 wins the first prompt, 4 wins in sum

    def make(gamma: int) -> ScriptedRunner:
        # The first call is the warm-up.
        return ScriptedRunner(
            f"g{gamma}",
            log,
            lambda ids, call: result(range(10), 99.0 if call == 1 else times[gamma][len(ids) - 1]),
        )

    found = search_gamma(make, [prompt("p", 1), prompt("q", 2)], (2, 4, 8), 32)
    assert found["best"] == 4
    assert found["tried"][0] == {"gamma": 2, "tokens_per_s": pytest.approx(4.0)}
    assert found["prompts"] == ["p", "q"]


def test_tuning_prompts_are_spread_over_a_mixed_file() -> None:
    chosen = spread([prompt(str(index), 1) for index in range(24)], 4)
    assert [one.item.id for one in chosen] == ["0", "6", "12", "18"]
