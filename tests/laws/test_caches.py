"""What the caches hold after any sequence of cycles: exactly what a recompute from their definition gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from scripted import TableRunner, greedy_text, near, random_table, run, scripted_parts
from toys import toy_pair
from viasd_core.decode import Loop
from viasd_core.live import LiveSettings
from viasd_core.parts import parts_of
from viasd_core.settings import Settings
from viasd_core.sublayers import Layer, number_of
from viasd_core.tiers import TierStack
from viasd_core.trace_check import check
from viasd_core.verifier import Verifier

Q = random_table(6, 2, 900)
SLIM = near(Q, 0.6, 901)


def same_rows(found: TierStack, wanted: TierStack, layers: Sequence[Layer], first: int, end: int) -> None:
    """Keys and values of rows first..end-1 of some layers agree."""
    rows = slice(first + 1, end + 1)
    for layer in map(number_of, layers):
        for name in ("keys", "values"):
            ours, theirs = getattr(found.slots, name)[layer], getattr(wanted.slots, name)[layer]
            torch.testing.assert_close(ours[:, :, rows], theirs[:, :, rows], atol=1e-9, rtol=0.0)


def caches_follow_from_the_text(loop: Loop) -> None:
    """q: all layers from scratch; q': q's rows below n_q and its own above; p: from scratch."""
    run, verifier = loop.run, loop.run.verifier
    tokens, runner = run.tokens, run.verifier.runner
    assert 0 <= verifier.n_q <= len(tokens) - 1
    with torch.inference_mode():
        fresh = Verifier(runner, run.limit, slim=verifier.slim_layers if loop.mask else None)
        fresh.prefill(tokens[: verifier.n_q])
        same_rows(verifier.stack, fresh.stack, tuple(range(runner.n_layers)), 0, verifier.n_q)
        if loop.mask and verifier.slim_stack is verifier.stack:
            assert verifier.n_q <= verifier.n_s <= len(tokens) - 1
            if verifier.n_s > verifier.n_q:
                fresh.stack.run(1, tokens[verifier.n_q : verifier.n_s], logit_rows=0)
            same_rows(verifier.stack, fresh.stack, verifier.slim_layers, verifier.n_q, verifier.n_s)
        elif loop.mask:
            alone = TierStack(runner, [verifier.slim_layers], run.limit)
            alone.prefill(tokens[: verifier.n_s])
            same_rows(verifier.slim_stack, alone, verifier.slim_layers, 0, verifier.n_s)
        drafting = getattr(run.drafter, "_stack", None)
        if drafting is not None and drafting is not verifier.stack:
            alone = TierStack(drafting.runner, [drafting.layers[0]], run.limit)
            alone.prefill(tokens[: drafting.rows[0]])
            same_rows(drafting, alone, drafting.layers[0], 0, drafting.rows[0])


CASES: dict[str, dict[str, Any]] = {
    "sampled": {"temperature": 1.0},
    "settles": {"temperature": 1.0, "debt_cap": 2},
    "own slim cache": {"temperature": 1.0, "slim_kv": "own", "debt_cap": 3},
    "slim bonus": {"temperature": 1.0, "bonus": "slim", "bonus_threshold": 0.0},
    "strict": {"strict": True},
    "strict, own slim cache": {"strict": True, "slim_kv": "own", "debt_cap": 4},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("drafter", ["model", "layer-skip"])
def test_after_every_cycle_all_caches_equal_a_recompute_from_the_text(case: str, drafter: str) -> None:
    """I2, V7 and V15, with a mask change every few cycles, settles and strict rollbacks, in float64."""
    rng = random.Random(case + drafter)
    settings = Settings(
        mask="random:3", skip_ratio=0.4, gamma=3, max_new_tokens=18, alpha1=0.2, alpha2=0.1, **CASES[case]
    )
    live = LiveSettings(settings)
    pair = toy_pair(layers=5, noise=0.1, drafter=drafter, cache=rng.choice(["own", "nested"]))
    loop = Loop(parts_of(pair), [5, 9, 7, 30], settings, live)
    finish, retracted = None, 0
    for _ in range(16):
        event = loop.step()
        finish, retracted = event.finish, retracted + len(event.retracted)
        caches_follow_from_the_text(loop)
        if finish is not None:
            break
        live.update(skip_ratio=rng.choice([0.2, 0.4, 0.6]), gamma=rng.randint(1, 5))
    assert loop.cycle > 3


@pytest.mark.parametrize("method", ["ar", "sd"])
def test_two_tier_caches_equal_a_recompute_from_the_text(method: str) -> None:
    """I2."""
    settings = Settings(method=method, gamma=3, max_new_tokens=16, temperature=1.0)
    loop = Loop(parts_of(toy_pair(layers=4, noise=0.1)), [5, 9, 7], settings, LiveSettings(settings))
    while loop.step().finish is None:
        caches_follow_from_the_text(loop)
    caches_follow_from_the_text(loop)


def test_after_any_debt_qs_logits_are_those_of_a_scratch_recompute() -> None:
    """V7: the recorded log q of every judged token, against one forward over the whole text."""
    pair = toy_pair(layers=5, noise=0.1)
    settings = Settings(
        mask="even", skip_ratio=0.4, temperature=1.0, debt_cap=0, alpha1=0.01, alpha2=0.001, max_new_tokens=30
    )
    prompt = [5, 9, 7]
    parts = parts_of(pair)
    trace = run(parts, prompt, settings)
    assert max(cycle.debt for cycle in trace.cycles) > 4
    with torch.inference_mode():
        text = torch.tensor([prompt + trace.token_ids])
        logits = pair.verifier.model(text, use_cache=False).logits[0, :, : parts.runner.vocab_size]
    scratch = logits.log_softmax(-1)
    for row in trace.emitted:
        assert row.out_pos is not None and row.audit_logp is not None
        place = len(prompt) + row.out_pos - 1
        assert row.audit_logp == pytest.approx(float(scratch[place, row.token_id]), abs=1e-9)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
@pytest.mark.parametrize("options", [{"strict": True}, {"method": "sd"}], ids=["strict", "sd"])
def test_a_drafter_nested_in_the_verifiers_slots_never_leaks_into_a_stronger_tier(
    options: dict[str, Any], slim_kv: str
) -> None:
    """The runner refuses rows of weaker tiers; text and trace stay those of q."""
    for seed in range(6):
        runner = TableRunner(Q, SLIM, by_layers={(0, 3): near(Q, 0.5, seed)}, n_layers=4, nested=True)
        settings = Settings(max_new_tokens=30, gamma=1 + seed, **options)
        if settings.strict:
            settings = settings.with_(slim_kv=slim_kv, mask="1101")
        trace = run(scripted_parts(runner, None, nested=(0, 3)), [seed], settings)
        assert trace.token_ids == greedy_text(Q, [seed], 30)
        assert check(trace) == []


@pytest.mark.parametrize("method", ["sd", "via-sd"])
def test_two_interleaved_runs_on_one_runner_are_the_runs_alone(method: str) -> None:
    """Runs share the model and nothing else."""
    parts = scripted_parts(TableRunner(Q, SLIM), near(Q, 0.5, 2), with_slots=True)
    chosen = [Settings(method=method, temperature=1.0, seed=seed, max_new_tokens=30) for seed in (1, 2)]
    if method == "via-sd":
        chosen = [settings.with_(mask="101") for settings in chosen]
    alone = [run(parts, [index], settings).token_ids for index, settings in enumerate(chosen)]
    loops = [Loop(parts, [index], one, LiveSettings(one)) for index, one in enumerate(chosen)]
    open_loops = list(loops)
    while open_loops:
        open_loops = [loop for loop in open_loops if loop.step().finish is None]
    assert [loop.run.tokens[1:] for loop in loops] == alone
