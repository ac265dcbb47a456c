"""Every token of every cycle is counted once, for any settings; the audit looks at each exactly once."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from scripted import Letters, TableRunner, greedy_text, near, random_table, run, scripted_parts
from viasd_core.probs import Sampling
from viasd_core.settings import Settings
from viasd_core.trace import CycleEvent, Trace, is_slim_decided
from viasd_core.trace_check import check

Q = random_table(6, 2, 500)
SLIM = near(Q, 0.7, 501)
RUNS = 60
# Tokens 0 to 3 are the bytes of one emoji; 4 and 5 are a letter and a word with an accent.
SPLIT = Letters(dict(enumerate([b"\xf0", b"\x9f", b"\x98", b"\x80", b"x", "né".encode()])))


def random_settings(rng: random.Random) -> Settings:
    """Any method with any of its options."""
    method = rng.choice(["ar", "sd", "lossy-sd", "via-sd", "via-sd", "via-sd", "via-sd"])
    strict = method == "via-sd" and rng.random() < 0.3
    chosen: dict[str, Any] = {
        "method": method,
        "max_new_tokens": rng.choice([1, 3, 10, 40]),
        "temperature": 0.0 if strict else rng.choice([0.0, 0.7, 1.0]),
        "top_k": rng.choice([0, 3]),
        "top_p": rng.choice([1.0, 0.9]),
        "min_p": rng.choice([0.0, 0.05]),
        "seed": rng.randrange(1000),
    }
    if method != "ar":
        chosen |= {"gamma": rng.randint(1, 7), "bonus": rng.choice([None, "none", "q-if-called"])}
    if method == "lossy-sd":
        chosen |= {"alpha": 0.3, "beta": rng.choice([0.7, 1.0])}
    if method == "via-sd":
        chosen |= {
            "mask": "101",
            "strict": strict,
            "alpha1": rng.random(),
            "alpha2": rng.random() ** 2,
            "gate": rng.choice(["direct", "literal", "swapped"]),
            "rule_c": "lossless" if strict else rng.choice(["lossless", "lossy", "pi", "greedy"]),
            "alpha": 0.3,
            "beta": 0.8,
            "slim_kv": rng.choice(["shared", "own"]),
            "debt_cap": rng.choice([None, 0, 2, 9]),
            "bonus": rng.choice([None, "q-if-called", "slim"]),
            "bonus_threshold": rng.choice([0.0, 0.5]),
            "after_escalation": rng.choice(["gate", "q"]),
            "regenerate": rng.random() < 0.7,
            "final_audit": rng.random() < 0.8,
        }
    return Settings(**chosen)


def random_run(rng: random.Random) -> tuple[Settings, list[CycleEvent], Trace]:
    """A run that may end by length, EOS or a stop string."""
    settings, prompt = random_settings(rng), [rng.randrange(6) for _ in range(rng.choice([1, 4]))]
    likely = greedy_text(Q, prompt, settings.max_new_tokens)
    eos = [rng.choice(likely)] if rng.random() < 0.25 else []
    spell = rng.choice([Letters(), SPLIT])
    if rng.random() < 0.25:
        place = rng.randrange(len(likely))
        words = b"".join(spell[token] for token in likely[place : place + 2])
        settings = settings.with_(stop=(words.decode("utf-8", "ignore") or "b",))
    runner = TableRunner(Q, SLIM, drift=rng.choice([0.0, 0.05]), n_ctx=rng.choice([30, 4096]))
    options: dict[str, Any] = {"most": rng.choice([None, 0, 2]), "n_ctx": rng.choice([12, 4096])}
    parts = scripted_parts(runner, near(Q, rng.choice([0.2, 0.8]), 502), eos=eos, spell=spell, **options)
    events: list[CycleEvent] = []
    trace = run(parts, prompt, settings, events=events)
    output, streamed = trace.token_ids, ""
    for event in events:
        streamed = streamed[: len(streamed) - event.text_retract] + event.text
    assert streamed == trace.text, settings
    assert len(output) <= min(settings.max_new_tokens, runner.n_ctx - len(prompt))
    assert not any(token in eos for token in output[:-1])
    assert (trace.finish == "eos") == (bool(output) and output[-1] in eos)
    return settings, events, trace


@pytest.mark.parametrize("seed", range(4))
def test_any_run_counts_every_token_once_and_its_trace_holds(seed: int) -> None:
    """I4, I5 and section 2's identity: A + B + C_acc + C_rej + bonus + target - retracted - discarded."""
    rng, finishes = random.Random(seed), set()
    for _ in range(RUNS):
        settings, events, trace = random_run(rng)
        assert check(trace) == [], settings
        finishes.add(trace.finish)
        balance = 0
        for event in events:
            cycle = event.cycle
            lone = [row for row in event.rows if row.source != "draft" and _is_extra(row.slot, cycle.drafted)]
            corrections = [row for row in event.rows if row.verdict == "target" and cycle.drafted]
            dropped = [
                row for row in event.rows
                if row.verdict == "discarded" and (row.region or row.source != "draft")
            ]  # fmt: skip
            balance += cycle.examined + len(lone) + len(corrections) - len(event.retracted) - len(dropped)
            assert cycle.examined == sum(bool(row.region) for row in event.rows)
            assert cycle.region_b + cycle.region_c_rejected == sum(
                row.verdict == "rejected" for row in event.rows
            )
            emitted = sum(row.emitted for row in event.rows)
            assert cycle.committed == emitted - len(event.retracted)
            bonus = 0 if settings.bonus_kind == "none" else 1
            assert settings.strict or 1 <= cycle.committed <= max(1, cycle.drafted + bonus)
            assert cycle.drafted <= cycle.gamma
        assert balance == len(trace.token_ids), settings
    assert {"length", "eos", "stop"} <= finishes


def _is_extra(slot: int, drafted: int) -> bool:
    """A bonus stands behind the whole block; a token of q alone in a cycle without drafts."""
    return slot == drafted


def test_by_default_via_sd_commits_at_most_gamma_tokens_a_cycle_and_speculative_decoding_one_more() -> None:
    """I4."""
    same = scripted_parts(TableRunner(Q, Q), Q)
    via = run(same, [0], Settings(mask="101", gamma=4, max_new_tokens=40))
    plain = run(same, [0], Settings(method="sd", gamma=4, max_new_tokens=40))
    assert {cycle.committed for cycle in via.cycles} == {4}
    assert {cycle.committed for cycle in plain.cycles} == {5}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("options", [{}, {"debt_cap": 3}, {"bonus": "slim", "bonus_threshold": 0.0}])
def test_the_audit_judges_every_emitted_token_exactly_once_with_qs_own_numbers(
    temperature: float, options: dict[str, Any]
) -> None:
    """V16, and what it writes: rank, log q, min(1, q/p) and KL(q || q') from the tables themselves."""
    drafter = near(Q, 0.5, 503)
    sampling = Sampling(temperature, 3)
    for seed in range(3):
        settings = Settings(mask="101", temperature=temperature, top_k=3, seed=seed, max_new_tokens=40)
        events: list[CycleEvent] = []
        trace = run(
            scripted_parts(TableRunner(Q, SLIM), drafter), [1], settings.with_(**options), events=events
        )
        judged = [audit.out_pos for event in events for audit in event.audits]
        assert sorted(judged) == list(range(len(trace.token_ids)))
        text = [1]
        for row in trace.emitted:
            q, slim = Q.probs(text), SLIM.probs(text)
            assert row.audit_logp == pytest.approx(np.log(q[row.token_id]))
            assert row.audit_rank == (q > q[row.token_id]).sum()
            kl = (q * np.log(q / slim)).sum() if is_slim_decided(row) else None
            assert row.audit_kl == (None if kl is None else pytest.approx(kl))
            if row.source == "draft" and temperature:
                chances = (Q.probs(text, sampling)[row.token_id], drafter.probs(text, sampling)[row.token_id])
                assert row.audit_accept == pytest.approx(min(1.0, chances[0] / chances[1]))
            else:
                assert row.audit_accept is None
            text.append(row.token_id)


def test_the_kl_is_that_of_the_slim_row_that_settled_the_token_not_of_a_later_one() -> None:
    """A q' that drifts with its debt: the audit keeps the row as it was, so the KL grows with the age."""
    runner = TableRunner(Q, Q, drift=0.2)
    settings = Settings(mask="101", core_thresholds=(0.0, 0.0), gamma=3, debt_cap=0, max_new_tokens=12)
    trace = run(scripted_parts(runner, Q), [1], settings)
    ages = [row.audit_kl for row in trace.emitted]
    text, expected = [1], []
    for age, token in enumerate(trace.token_ids, start=1):
        q = Q.probs(text)
        stale = q * np.exp(0.2 * age * np.cos(np.arange(6)))
        stale /= stale.sum()
        expected.append((q * np.log(q / stale)).sum())
        text.append(token)
    assert ages == pytest.approx(expected)


def test_without_the_final_audit_the_debt_at_the_end_stays_unjudged() -> None:
    """The settle of the end is the audit's: switching it off saves the forward and nothing else."""
    common: dict[str, Any] = {"mask": "101", "core_thresholds": (0.0, 0.0), "debt_cap": 0}
    with_audit = run(scripted_parts(TableRunner(Q, SLIM), Q), [1], Settings(**common))
    without = run(scripted_parts(TableRunner(Q, SLIM), Q), [1], Settings(final_audit=False, **common))
    assert with_audit.token_ids == without.token_ids
    assert with_audit.summary()["settle_forwards"] == 1 and with_audit.cycles[-1].settle_forwards == 1
    assert without.summary()["settle_forwards"] == 0
    assert without.summary()["audit"]["judged"] == 0
