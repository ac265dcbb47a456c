"""Several slim verifiers: one is the three-tier method; the one-step law; each is asked only when needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laws.chi_square import transition_p_value
from scripted import Table, TableRunner, greedy_text, near, random_table, run, sampled, scripted_parts
from viasd_core.decode import decode
from viasd_core.errors import MaskError, PairError, PromptError, SettingsError
from viasd_core.live import LiveSettings
from viasd_core.parts import Parts
from viasd_core.settings import Settings, refuse_idle
from viasd_core.tier_names import parse_tiers
from viasd_core.trace import Trace
from viasd_core.trace_check import check

LAYERS = 6
WEAK, STRONG = "100001", "101101"
MODEL = "model:toy"
Q = random_table(6, 2, 300)
U1, U2, P = near(Q, 0.8, 301), near(Q, 0.4, 302), near(Q, 0.6, 303)


def kept(bits: str) -> tuple[int, ...]:
    return tuple(layer for layer, bit in enumerate(bits) if bit == "1")


def table_parts(q: Table = Q, u1: Table = U1, u2: Table = U2, p: Table = P, **options: Any) -> Parts:
    """q over LAYERS layers, u_1 and u_2 under their masks; the model of MODEL is u_2 as well."""
    runner = TableRunner(q, by_layers={kept(WEAK): u1, kept(STRONG): u2}, n_layers=LAYERS, nested=True)
    parts = scripted_parts(runner, p, **options)
    return replace(parts, tier_models={MODEL: TableRunner(u2, n_layers=2)})


def timeless(trace: Trace) -> list[Any]:
    """Rows without clock readings, and without the skip ratio, which a given mask does not follow."""
    clocks: dict[str, Any] = {"t_start_us": 0, "phase_us": {}, "tier_us": ()}
    cycles = [replace(row, skip_ratio=None, **clocks) for row in trace.cycles]
    return [*cycles, *(replace(row, t_us=0) for row in trace.tokens), *(row.key for row in trace.events)]


def untimed(totals: dict[str, Any]) -> dict[str, Any]:
    """Totals without clock readings."""
    tiers = {tier: {**facts, "ms": 0} for tier, facts in totals["tiers"].items()}
    return {**totals, "phases_ms": {}, "tiers": tiers}


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0},
    "settles": {"debt_cap": 2, "temperature": 0.8},
    "slim bonus": {"bonus": "slim", "bonus_threshold": 0.2, "temperature": 1.0},
    "binary": {"regenerate": False, "after_escalation": "q"},
    "strict": {"strict": True},
    "own": {"slim_kv": "own", "temperature": 1.0},
    "pi": {"rule_c": "pi", "temperature": 1.0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("given", ["0.5", STRONG])
def test_one_tier_is_the_three_tier_method_token_for_token(given: str, options: dict[str, Any]) -> None:
    """V11, with every number of the trace."""
    tiers = parse_tiers(given)
    masked = {"mask": "even", "skip_ratio": 0.5} if given == "0.5" else {"mask": STRONG}
    parts = scripted_parts(TableRunner(Q, U2, n_layers=LAYERS), P)
    for seed in range(3):
        common = {"seed": seed, "gamma": 4, "max_new_tokens": 30, **options}
        three = run(parts, [seed], Settings(**masked, **common))
        choice = "even" if given == "0.5" else "auto"
        one = run(parts, [seed], Settings(tiers=tiers, mask=choice, **common))
        assert timeless(one) == timeless(three)
        assert untimed(one.run["totals"]) == untimed(three.run["totals"])
        assert check(one) == check(three) == []


def tier_law(
    p: np.ndarray, slims: Sequence[np.ndarray], q: np.ndarray, tau1: float, tau2: float
) -> np.ndarray:
    """One-step law with slim verifiers u_1.. at temperature 1: what falls through one is the next one's."""
    law, open_ = np.zeros_like(p), np.ones_like(p, dtype=bool)
    for u in slims:
        r = u / u.max()
        kept_here, redrawn = open_ & (r >= tau2) & (r >= tau1), open_ & (r >= tau2) & (r < tau1)
        law += p * kept_here + (p * redrawn).sum() * u
        open_ &= r < tau2
    refused = (np.maximum(0, p - q) * open_).sum()
    left = np.maximum(0, q - p)
    return law + np.minimum(p, q) * open_ + refused * left / max(left.sum(), 1e-300)


@pytest.mark.parametrize(
    "tiers",
    [
        pytest.param((WEAK, STRONG), id="masks"),
        pytest.param((WEAK, MODEL), id="mask and model", marks=pytest.mark.slow),
    ],
)
def test_a_token_follows_the_one_step_law_of_its_tiers(tiers: tuple[str, ...]) -> None:
    """V3 with two slim verifiers; the law without the second, and q itself, must fail."""
    q = random_table(5, 1, 208)
    u1, u2, p = near(q, 0.6, 1), near(q, 0.5, 2), near(q, 0.5, 3)
    settings = Settings(tiers=tiers, core_thresholds=(0.6, 0.4), temperature=1.0, gamma=12, debt_cap=0)
    outputs = sampled(table_parts(q, u1, u2, p), settings, count=20_000)

    def law(*slims: Table) -> Any:
        return lambda text: tier_law(p.probs(text), [u.probs(text) for u in slims], q.probs(text), 0.6, 0.4)

    prompt = (0,)
    assert 2 * transition_p_value(outputs, prompt, q.row, law(u1, u2)) > 1e-3
    assert transition_p_value(outputs, prompt, q.row, law(u1)) < 1e-3
    assert transition_p_value(outputs, prompt, q.row, q.probs) < 1e-3


@pytest.mark.parametrize("tiers", [(WEAK, STRONG), (MODEL, STRONG), (WEAK, MODEL), (WEAK, MODEL, STRONG)])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"strict": True}, {"slim_kv": "own"}])
def test_a_trace_with_tiers_says_who_settled_what_and_holds(
    tiers: tuple[str, ...], options: dict[str, Any]
) -> None:
    trace = run(table_parts(), [1, 2], Settings(tiers=tiers, max_new_tokens=40, **options))
    assert check(trace) == []
    totals = trace.run["totals"]["tiers"]
    assert list(totals) == [str(tier) for tier in range(1, len(tiers) + 1)]
    forwards = [totals[tier]["forwards"] for tier in totals]
    assert (
        forwards == sorted(forwards, reverse=True) and sum(forwards) == trace.run["totals"]["slim_forwards"]
    )
    accepted = sum(totals[tier]["accepted"] for tier in totals)
    assert accepted == trace.run["totals"]["counts"]["accepted_slim"]
    if options.get("strict"):
        assert trace.token_ids == greedy_text(Q, [1, 2], 40)


def test_a_stronger_tier_runs_only_when_a_token_falls_to_it_and_q_only_when_one_falls_through_all() -> None:
    settings = Settings(tiers=(WEAK, STRONG), max_new_tokens=80, debt_cap=0, temperature=1.0)
    trace = run(table_parts(), [3], settings)
    rows = {cycle.cycle: [row for row in trace.tokens if row.cycle == cycle.cycle] for cycle in trace.cycles}
    seen = set()
    for cycle in trace.cycles[:-1]:
        deciders = {row.tier for row in rows[cycle.cycle] if row.region}
        falls = bool(deciders - {1})
        assert cycle.tier_forwards == (1, int(falls))
        assert cycle.full_forwards == int(None in deciders)
        seen.add((falls, None in deciders))
    assert seen == {(False, False), (True, False), (True, True)}


def test_gates_that_let_everything_fall_ask_every_tier_and_say_what_speculative_decoding_says() -> None:
    """V1 with two slim verifiers: same seed, same tokens."""
    common: dict[str, Any] = {"temperature": 1.0, "gamma": 4, "max_new_tokens": 40, "bonus": "none"}
    plain = run(table_parts(), [1], Settings(method="sd", **common))
    tiered = run(table_parts(), [1], Settings(tiers=(WEAK, STRONG), core_thresholds=(2.0, 2.0), **common))
    assert tiered.token_ids == plain.token_ids
    assert {cycle.tier_forwards for cycle in tiered.cycles} == {(1, 1)}


def test_the_audits_kl_is_that_of_the_tier_that_settled_the_token() -> None:
    trace = run(table_parts(), [1], Settings(tiers=(WEAK, STRONG), max_new_tokens=60))
    text, tiers = [1], set()
    for row in trace.emitted:
        if row.tier is not None:
            q, slim = Q.probs(text), (U1, U2)[row.tier - 1].probs(text)
            assert row.audit_kl == pytest.approx((q * np.log(q / slim)).sum())
            assert row.logp_slim == pytest.approx(np.log(slim[row.token_id]))
            tiers.add(row.tier)
        text.append(row.token_id)
    assert tiers == {1, 2}


def test_a_turned_skip_ratio_moves_the_first_tier_inside_the_second_and_says_so() -> None:
    settings = Settings(tiers=(0.5, 0.2), mask="even", max_new_tokens=60, gamma=3)
    live = LiveSettings(settings)
    assert live.snapshot().skip_ratio == 0.5
    trace = Trace()
    parts = scripted_parts(TableRunner(Q, U1, n_layers=LAYERS, nested=True), P)
    for index, event in enumerate(decode(parts, [1], settings, live)):
        trace.add(event)
        live.update(skip_ratio=(0.7, 0.1)[index % 2])
    notes = [row.new for row in trace.events if row.key == "mask"]
    assert "even:4" in notes and any("further apart" in note for note in notes)
    assert {row.mask_id.split(",")[1] for row in trace.cycles} == {"even:1"}


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        ({"tiers": (0.3, 0.6)}, "name the weakest tier first"),
        ({"tiers": (0.5, 0.5)}, "more than once"),
        ({"tiers": (0.0,)}, "a tier's skip ratio is 0"),
        ({"tiers": ("weak",)}, "is none of a skip ratio, model:SOURCE"),
        ({"tiers": ("model:",)}, "names no source"),
        ({"tiers": ("via-sd",)}, "goes with method cure"),
        ({"tiers": (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)}, "at most 8"),
        ({"tiers": (0.5, 0.3), "rule_c": "pi"}, "mixes one slim verifier"),
        ({"tiers": (0.5,), "mask": "1011"}, "name that mask as a tier instead"),
    ],
)
def test_tiers_that_cannot_be_are_refused(wrong: dict[str, Any], part: str) -> None:
    with pytest.raises(SettingsError, match=part):
        Settings(**wrong)


def test_options_that_tiers_make_idle_are_refused() -> None:
    with pytest.raises(SettingsError, match="--skip-ratio and --tiers contradict"):
        refuse_idle(Settings(tiers=(0.5,)), {"skip_ratio", "tiers"})
    with pytest.raises(SettingsError, match="--mask has no effect"):
        refuse_idle(Settings(tiers=(MODEL,), mask="even"), {"mask", "tiers"})
    refuse_idle(Settings(tiers=(MODEL, 0.5), mask="even"), {"mask", "tiers"})


def test_tiers_are_read_as_the_command_line_names_them() -> None:
    assert parse_tiers("0.6, .45") == (0.6, 0.45)
    assert parse_tiers("model:org/name,0110,mine.json") == ("model:org/name", "0110", "mine.json")


def test_recorded_settings_name_no_folder_of_this_machine() -> None:
    tiers = ("/home/me/m.json", "model:/home/me/big", "model:org/name", "model:./x.gguf")
    recorded = Settings(tiers=tiers).as_dict()
    assert recorded["tiers"] == ["m.json", "model:big", "model:org/name", "model:x.gguf"]
    assert recorded["skip_ratio"] is None


def test_a_run_is_refused_when_a_tier_cannot_serve_it() -> None:
    with pytest.raises(PairError, match="not loaded"):
        run(table_parts(), [1], Settings(tiers=("model:other",)))
    with pytest.raises(MaskError, match="is not inside"):
        run(table_parts(), [1], Settings(tiers=("110001", STRONG)))
    with pytest.raises(PairError, match="reads the verifier's layers"):
        run(replace(table_parts(), taps=(1,)), [1], Settings(tiers=(MODEL,)))
    short = replace(table_parts(), tier_models={MODEL: TableRunner(U2, n_layers=2, n_ctx=20)})
    with pytest.raises(PromptError, match="a tier's context holds 20"):
        run(short, [1] * 20, Settings(tiers=(MODEL,)))
    trace = run(short, [1] * 15, Settings(tiers=(MODEL,)))
    assert trace.finish == "context" and len(trace.token_ids) == 5
