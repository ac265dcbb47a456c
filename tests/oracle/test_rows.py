"""After every cycle the KV slots hold what a recompute from scratch gives, whatever happened before.

Random settings, masks and knobs turned between cycles, settles, strict corrections: VIA-SD's one cache for
three tiers is only as good as its watermarks.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from oracle.models import DRAFTERS, VARIANTS, loop_of, model, pair, prompt
from oracle.reference import first, recompute
from oracle.rows import check_rows, difference, tolerance
from viasd_core.decode import Loop
from viasd_core.layers import BlockRunner
from viasd_core.live import LiveSettings
from viasd_core.settings import Settings
from viasd_core.verifier import Verifier


def random_settings(dice: random.Random) -> Settings:
    greedy = dice.random() < 0.5
    strict = greedy and dice.random() < 0.4
    method = dice.choice(["sd", "lossy-sd", "via-sd", "via-sd", "via-sd", "via-sd"])
    values: dict[str, Any] = {
        "method": method,
        "max_new_tokens": 40,
        "temperature": 0.0 if greedy else 1.0,
        "seed": dice.randrange(1000),
        "gamma": dice.randrange(1, 7),
    }
    if method == "via-sd":
        values |= {
            "mask": dice.choice(["even", "random:1", "random:2", "1101", "0110", "1000"]),
            "skip_ratio": dice.choice([0.25, 0.5]),
            "alpha1": dice.choice([0.02, 0.1, 0.5]),
            "alpha2": dice.choice([0.0, 0.01, 0.05, 0.3]),
            "rule_c": "lossless" if strict else dice.choice(["lossless", "lossy", "pi", "greedy"]),
            "slim_kv": dice.choice(["shared", "shared", "own"]),
            "debt_cap": dice.choice([None, 0, 3, 8]),
            "bonus": dice.choice(["none", "q-if-called", "slim"]),
            "bonus_threshold": 0.1,
            "after_escalation": dice.choice(["gate", "q"]),
            "regenerate": dice.random() < 0.8,
            "strict": strict,
        }
    return Settings(**values)


def turn_a_knob(dice: random.Random, live: LiveSettings, strict: bool) -> None:
    knobs: list[dict[str, Any]] = [
        {"gamma": dice.randrange(1, 7)},
        {"skip_ratio": dice.choice([0.0, 0.25, 0.5])},
        {"alpha1": dice.choice([0.02, 0.5]), "alpha2": dice.choice([0.0, 0.05])},
        {"temperature": 0.0 if strict else dice.choice([0.0, 0.7, 1.0])},
    ]
    live.update(**dice.choice(knobs))


def drive(case: int) -> Loop:
    """A random run, checked after every cycle, with another mask or another knob between cycles at times."""
    dice = random.Random(case)
    settings = random_settings(dice)
    source = pair(dice.choice(list(VARIANTS)), dice.choice([name for name in DRAFTERS if name != "none"]))
    live = LiveSettings(settings)
    loop = loop_of(source, prompt(dice.randrange(1, 20), case), settings, live)
    finish = None
    while finish is None:
        event = loop.step()
        finish = event.finish
        check_rows(loop)
        assert event.cycle.n_q == loop.run.verifier.n_q
        assert event.cycle.debt == len(loop.run.tokens) - 1 - loop.run.verifier.n_q
        cap = settings.debt_limit(loop.run.knobs.gamma)
        assert cap is None or settings.method != "via-sd" or event.cycle.debt <= cap
        if dice.random() < 0.4:
            turn_a_knob(dice, live, settings.strict)
    return loop


@pytest.mark.parametrize("case", range(28))
def test_rows_equal_a_recompute_after_every_cycle(case: int) -> None:
    drive(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(28, 148))
def test_rows_equal_a_recompute_after_every_cycle_of_many_runs(case: int) -> None:
    drive(case)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
@pytest.mark.parametrize("mask", ["0110", "0001", "1011"])
def test_rows_survive_strict_corrections(mask: str, slim_kv: str) -> None:
    settings = Settings(
        max_new_tokens=16, mask=mask, slim_kv=slim_kv, strict=True, core_thresholds=(0.0, 0.0), debt_cap=9
    )
    loop = loop_of(pair("qwen3-window", "nested"), prompt(6), settings)
    retracted, finish = 0, None
    while finish is None:
        event = loop.step()
        finish = event.finish
        retracted += len(event.retracted)
        check_rows(loop)
    assert retracted > 0


def test_the_check_sees_a_row_of_another_prefix() -> None:
    loop = loop_of(pair("llama", "model"), prompt(6), Settings(max_new_tokens=30, mask="even"))
    loop.step()
    check_rows(loop)
    loop.run.verifier.stack.slots.keys[0][0, :, 3] += 1e-6
    with pytest.raises(AssertionError):
        check_rows(loop)


class Tiers:
    """A verifier with a slim tier and a nested drafter, driven directly; `text` is what is committed."""

    def __init__(self, variant: str, dice: random.Random, slim_kv: str) -> None:
        self.model, self.dice = model(variant), dice
        self.text = prompt(dice.randrange(1, 14), dice.randrange(100))
        self.verifier = Verifier(
            BlockRunner(self.model),
            120,
            slim=self.some_layers(),
            slim_kv=slim_kv,
            nested=self.some_layers() if slim_kv == "shared" else None,
        )
        self.verifier.prefill(self.text[:-1])

    def some_layers(self) -> tuple[int, ...]:
        return tuple(sorted(self.dice.sample(range(4), self.dice.randrange(1, 4))))

    def act(self) -> None:
        verifier, dice = self.verifier, self.dice
        block = torch.tensor(prompt(dice.randrange(1, 6), dice.randrange(100)))
        action = dice.choice(["slim", "slim", "full", "settle", "retract", "mask"])
        if action == "slim":
            self.check_slim(
                verifier.slims[0].run(self.text, block), self.text + block.tolist(), len(block) + 1
            )
            self.commit(block)
        elif action == "full":
            base = verifier.n_q
            logits = verifier.full(self.text, block)
            assert (
                logits - recompute(self.model, self.text + block.tolist())[0][base:]
            ).abs().max() < tolerance(self.model)
            self.commit(block)
        elif action == "settle" and verifier.n_q < len(self.text) - 1:
            base = verifier.n_q
            expected = recompute(self.model, self.text[:-1])[0][base:]
            assert (verifier.settle(self.text) - expected).abs().max() < tolerance(self.model)
        elif action == "retract":
            del self.text[dice.randrange(1, len(self.text) + 1) :]
            verifier.rewind(len(self.text) - 1)
        elif action == "mask":
            verifier.set_slim(self.some_layers())

    def commit(self, block: torch.Tensor) -> None:
        kept = self.dice.randrange(len(block) + 1)
        self.text += [*block[:kept].tolist(), *prompt(1, self.dice.randrange(100))]
        self.verifier.rewind(len(self.text) - 1)

    def check_slim(self, logits: torch.Tensor, text: list[int], count: int) -> None:
        verifier = self.verifier
        prefix = None
        if verifier.slim_stack is verifier.stack:
            prefix = first(recompute(self.model, text)[1], verifier.n_q)
        expected, _ = recompute(self.model, text, verifier.slim_layers, prefix)
        assert (logits - expected[-count:]).abs().max() < tolerance(self.model)

    def check_full(self) -> None:
        rows = recompute(self.model, self.text)[1]
        assert difference(self.verifier.stack, rows, 0, self.verifier.n_q) < tolerance(self.model)


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_tiers_hold_through_calls_in_any_order(variant: str, slim_kv: str) -> None:
    tiers = Tiers(variant, random.Random(variant + slim_kv), slim_kv)
    with torch.inference_mode():
        for _ in range(40):
            if len(tiers.text) > 100:
                break
            tiers.act()
            tiers.check_full()
