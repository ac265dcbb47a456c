"""Runs that must give the same tokens: greedy oracles, strict, and the limits where VIA-SD becomes SD."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scripted import LETTERS, TableRunner, greedy_text, near, random_table, run, scripted_parts
from toys import toy_pair
from viasd_core.decode import generate
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

Q = random_table(8, 3, 100)
SLIM, DRAFTER = near(Q, 0.7, 101), near(Q, 0.6, 102)
NEW_TOKENS = 48


def sound(trace: Trace) -> Trace:
    """The trace, after it has shown no contradiction."""
    assert check(trace) == []
    return trace


def table_run(settings: Settings, prompt: list[int], **parts: Any) -> Trace:
    drafter = parts.pop("drafter", DRAFTER)
    return sound(run(scripted_parts(TableRunner(Q, SLIM), drafter, **parts), prompt, settings))


def some_prompt(rng: random.Random) -> list[int]:
    return [rng.randrange(8) for _ in range(rng.choice([1, 2, 3, 7]))]


def toy_text(pair: ModelPair, prompt: list[int], settings: Settings) -> list[int]:
    trace = Trace()
    for event in generate(pair, prompt, settings):
        trace.add(event)
    return trace.token_ids


@pytest.mark.parametrize("noise", [0.0, 0.6, 30.0], ids=["same model", "good drafter", "unrelated drafter"])
@pytest.mark.parametrize("with_slots", [False, True], ids=["table drafter", "drafter with KV slots"])
def test_greedy_speculative_text_is_the_verifiers_own_whatever_drafts(noise: float, with_slots: bool) -> None:
    """I1."""
    rng = random.Random(noise)
    for gamma in (1, 2, 5, 9):
        prompt = some_prompt(rng)
        settings = Settings(method="sd", gamma=gamma, max_new_tokens=NEW_TOKENS)
        found = table_run(settings, prompt, drafter=near(Q, noise, 7), with_slots=with_slots)
        assert found.token_ids == greedy_text(Q, prompt, NEW_TOKENS)


def test_plain_decoding_is_the_verifiers_own_text() -> None:
    """I1, the oracle itself."""
    settings = Settings(method="ar", max_new_tokens=NEW_TOKENS)
    assert table_run(settings, [3]).token_ids == greedy_text(Q, [3], NEW_TOKENS)


def test_a_rejection_at_every_offset_of_a_block_leaves_the_greedy_text_unchanged() -> None:
    """I1 with a refusal forced at each offset 0..gamma."""
    reached: set[int] = set()
    for seed in range(6):
        settings = Settings(method="sd", gamma=4, max_new_tokens=NEW_TOKENS)
        trace = table_run(settings, [seed], drafter=near(Q, 0.5, 200 + seed))
        assert trace.token_ids == greedy_text(Q, [seed], NEW_TOKENS)
        reached |= {row.slot for row in trace.tokens if row.source in ("full", "bonus")}
    assert reached == {0, 1, 2, 3, 4}


def random_strict(rng: random.Random) -> Settings:
    return Settings(
        strict=True,
        mask="101",
        gamma=rng.randint(1, 8),
        alpha1=rng.random(),
        alpha2=rng.random() * rng.choice([0.2, 1.0]),
        gate=rng.choice(["direct", "literal", "swapped"]),
        core_thresholds=rng.choice([None, None, (0.0, 0.0)]),
        debt_cap=rng.choice([None, 0, 1, 3, 40]),
        slim_kv=rng.choice(["shared", "own"]),
        bonus=rng.choice(["none", "q-if-called", "slim"]),
        bonus_threshold=rng.choice([0.0, 0.3, 0.9]),
        after_escalation=rng.choice(["gate", "q"]),
        regenerate=rng.random() < 0.7,
        final_audit=rng.random() < 0.5,
        max_new_tokens=rng.choice([1, 2, 7, 23, 48]),
    )


@pytest.mark.parametrize("seed", range(4))
def test_strict_gives_the_verifiers_greedy_text_whatever_the_settings_and_the_end(seed: int) -> None:
    """V14: random caps, gammas, gates, prompts and drafters; EOS, stop strings and limits in mid-block."""
    rng = random.Random(seed)
    taken_back = standing_still = 0
    for _ in range(25):
        settings, prompt = random_strict(rng), some_prompt(rng)
        text = greedy_text(Q, prompt, settings.max_new_tokens)
        ending: dict[str, Any] = {}
        place = rng.randrange(len(text))
        kind = rng.choice(["length", "eos", "stop"])
        if kind == "eos":
            ending["eos"] = [text[place]]
        if kind == "stop":
            settings = settings.with_(stop=("".join(LETTERS[token] for token in text[place : place + 2]),))
        wanted = greedy_text(
            Q, prompt, settings.max_new_tokens, eos=ending.get("eos", ()), stop="".join(settings.stop)
        )
        found = table_run(settings, prompt, drafter=near(Q, rng.choice([0.2, 0.6, 1.5]), 9), **ending)
        assert found.token_ids == wanted
        taken_back += sum(row.verdict == "retracted" for row in found.tokens)
        standing_still += sum(cycle.committed <= 0 for cycle in found.cycles)
    assert taken_back > 0 and standing_still > 0


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_strict_equals_greedy_on_random_transformers_in_float64(slim_kv: str) -> None:
    """V14 on real KV: random masks, caps, gammas and prompts."""
    rng = random.Random(slim_kv)
    pair = toy_pair(layers=5, noise=0.1)
    for _ in range(4):
        prompt = [rng.randrange(3, 250) for _ in range(rng.choice([1, 4, 9]))]
        settings = Settings(
            strict=True,
            mask=f"random:{rng.randrange(100)}",
            skip_ratio=rng.choice([0.2, 0.4, 0.6]),
            gamma=rng.randint(1, 6),
            debt_cap=rng.choice([None, 0, 2, 5]),
            alpha2=rng.choice([0.0, 0.3]),
            slim_kv=slim_kv,
            max_new_tokens=14,
            bonus=rng.choice(["none", "slim"]),
            bonus_threshold=0.0,
        )
        oracle = toy_text(pair, prompt, Settings(method="ar", max_new_tokens=14))
        assert toy_text(pair, prompt, settings) == oracle


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_via_sd_that_escalates_everything_gives_the_tokens_of_speculative_decoding(
    temperature: float, slim_kv: str
) -> None:
    """V1 and V17: same seed, same tokens, cycle by cycle, whatever q' is."""
    for seed in range(5):
        common: dict[str, Any] = {
            "temperature": temperature, "seed": seed, "gamma": seed + 1, "max_new_tokens": 40, "bonus": "none"
        }  # fmt: skip
        plain = table_run(Settings(method="sd", **common), [seed])
        via = table_run(Settings(mask="101", core_thresholds=(2.0, 2.0), slim_kv=slim_kv, **common), [seed])
        assert via.token_ids == plain.token_ids
        assert [cycle.committed for cycle in via.cycles] == [cycle.committed for cycle in plain.cycles]
        assert [row.rand_u for row in via.tokens] == [row.rand_u for row in plain.tokens]
        assert {row.region for row in via.tokens if row.region} == {"C"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_escalating_everything_equals_speculative_decoding_on_random_transformers(temperature: float) -> None:
    """V17 on real KV in float64."""
    pair = toy_pair(layers=5, noise=0.1)
    common: dict[str, Any] = {"temperature": temperature, "max_new_tokens": 30, "gamma": 4, "bonus": "none"}
    plain = toy_text(pair, [5, 6, 7], Settings(method="sd", **common))
    via = toy_text(pair, [5, 6, 7], Settings(mask="even", core_thresholds=(2.0, 2.0), **common))
    assert via == plain


def test_lossy_decoding_without_leniency_gives_the_tokens_of_lossless_decoding() -> None:
    """Y1: alpha 0, beta 1, same seed."""
    for seed in range(5):
        common: dict[str, Any] = {"temperature": 0.9, "seed": seed, "gamma": 4, "max_new_tokens": 60}
        lossless = table_run(Settings(method="sd", **common), [seed])
        lossy = table_run(Settings(method="lossy-sd", alpha=0.0, beta=1.0, **common), [seed])
        assert lossy.token_ids == lossless.token_ids


@pytest.mark.parametrize("thresholds", [(1.0, 1.0), (1.0, 0.3)])
def test_a_slim_verifier_that_skips_nothing_keeps_only_qs_argmax_when_gate_one_is_one(
    thresholds: tuple[float, float],
) -> None:
    """V6: A iff the draft is argmax q, so the output is greedy q."""
    settings = Settings(mask="111", core_thresholds=thresholds, max_new_tokens=NEW_TOKENS)
    for start in range(6):
        trace = table_run(settings, [start])
        assert trace.token_ids == greedy_text(Q, [start], NEW_TOKENS)
        assert any(row.region == "A" for row in trace.tokens)
        assert all((row.region == "A") == (row.slim_ratio == 1.0) for row in trace.tokens if row.region)


def test_a_slim_verifier_equal_to_q_is_not_lossless_below_one() -> None:
    """V6: near-argmax drafts pass a gate of .5 even when q' is q."""
    settings = Settings(mask="111", max_new_tokens=NEW_TOKENS)
    assert any(
        table_run(settings, [start]).token_ids != greedy_text(Q, [start], NEW_TOKENS) for start in range(6)
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_without_regeneration_the_gates_fall_together_into_one(temperature: float) -> None:
    """V8, V18: B becomes C, which is the binary hierarchical method with both thresholds at tau1."""
    for seed in range(4):
        common: dict[str, Any] = {
            "mask": "101", "temperature": temperature, "seed": seed, "max_new_tokens": 40
        }  # fmt: skip
        switched = table_run(Settings(alpha1=0.6, alpha2=0.2, regenerate=False, **common), [seed])
        binary = table_run(Settings(core_thresholds=(0.6, 0.6), **common), [seed])
        assert switched.token_ids == binary.token_ids
        assert switched.summary()["counts"]["regenerated_slim"] == 0
        assert all(cycle.region_b == 0 for cycle in switched.cycles)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    def tokens(seed: int) -> list[int]:
        return table_run(Settings(mask="101", temperature=1.0, seed=seed, max_new_tokens=40), [0]).token_ids

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_bucketed_widths_and_scratch_slots_change_no_token() -> None:
    """Padded passes, as captured graphs need them, see and write the same rows."""
    settings = Settings(mask="101", temperature=1.0, gamma=5, max_new_tokens=80)
    plain = run(scripted_parts(TableRunner(Q, SLIM), DRAFTER), [0, 1, 2], settings)
    padded = run(scripted_parts(TableRunner(Q, SLIM, bucketed=True), DRAFTER), [0, 1, 2], settings)
    assert padded.token_ids == plain.token_ids
