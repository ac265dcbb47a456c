"""Runs of toy pairs with a loaded drafter: what its text, its law and its state are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drafters.checkpoint_files import saved, target_of
from drafters.own_files import block_parts, with_domino, with_ids, with_second
from laws.chi_square import p_value
from scripted import run
from toys import toy_pair
from viasd_core.decode import Loop
from viasd_core.drafters.base import Draft
from viasd_core.drafters.block import load
from viasd_core.drafters.checkpoints import Trained
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair, TrainedDrafter
from viasd_core.parts import Parts, parts_of
from viasd_core.presets import DrafterSpec
from viasd_core.probs import Noise, Sampling
from viasd_core.settings import Settings
from viasd_core.sources import Source
from viasd_core.trace_check import check
from viasd_core.verifier import Verifier

CPU = torch.device("cpu")
GREEDY = Sampling(0.0)


def block_drafter(
    tmp_path: Path,
    kind: str = "plain",
    *,
    family: str = "llama",
    vocab: int = 8,
    verifier_layers: int = 8,
    taps: tuple[int, ...] = (1, 3, 5),
) -> tuple[ModelPair, Trained]:
    """A toy verifier and a random block drafter; so few ids that its drafts are often right."""
    pair = toy_pair(family, drafter="none", layers=verifier_layers, vocab=vocab)
    target = target_of(pair)
    parts = block_parts(target.config, taps, seed=8)
    width = vocab
    if "reduced" in kind:
        parts, width = with_ids(parts, range(1, vocab)), vocab - 1
    if "domino" in kind:
        parts = with_domino(parts, width)
    if kind == "second":
        parts = with_second(parts)
    return pair, load(saved(tmp_path, *parts), target)


def block_pair(tmp_path: Path, **special: Any) -> ModelPair:
    """A toy pair that reads texts, with a random block drafter; `special` goes into its dflash_config."""
    pair = toy_pair(drafter="none", layers=8)
    target = target_of(pair)
    config, tensors = block_parts(target.config, (1, 3, 5), seed=8)
    trained = load(
        saved(tmp_path, config | {"dflash_config": config["dflash_config"] | special}, tensors), target
    )
    spec = DrafterSpec("model", source=Source("folder", str(tmp_path)))
    identity = {"kind": "folder", "id": "toy-drafter", "sha256": "0" * 64, "layers": 2}
    return replace(pair, drafter=spec, trained=TrainedDrafter(trained, identity))


def begun(pair: ModelPair, trained: Trained, text: Sequence[int]) -> Any:
    """A drafter that has read `text`, beside a verifier that has."""
    verifier = Verifier(parts_with(pair, trained).runner, 300, taps=trained.taps)
    verifier.prefill(text[:-1])
    drafter = trained.make(verifier, 300)
    drafter.begin(text)
    return drafter


def parts_with(pair: ModelPair, trained: Trained) -> Parts:
    """The pair's parts with the loaded drafter; nothing ends a text."""
    parts = replace(parts_of(pair), drafter=trained.make, taps=trained.taps)
    return replace(parts, eos_ids=frozenset())


def noise(seed: int = 0) -> Noise:
    return Noise(seed, CPU, torch.float64)


@torch.inference_mode()
def first_draft(
    pair: ModelPair, trained: Trained, tokens: Sequence[int], count: int, sampling: Sampling = GREEDY
) -> Draft:
    """What a fresh drafter proposes behind `tokens` of a fresh verifier."""
    verifier = Verifier(parts_of(pair).runner, len(tokens) + count, taps=trained.taps)
    verifier.prefill(tokens[:-1])
    drafter = trained.make(verifier, len(tokens) + count)
    drafter.begin(tokens)
    return drafter.draft(count, sampling, noise())


def texts_agree(pair: ModelPair, trained: Trained, prompt: list[int], **options: Any) -> int:
    """Greedy text with the drafter is plain decoding's; returns how many drafts were accepted."""
    parts = parts_with(pair, trained)
    plain = run(parts, prompt, Settings(method="ar", max_new_tokens=40))
    trace = run(parts, prompt, Settings(max_new_tokens=40, **options))
    assert trace.token_ids == plain.token_ids
    assert check(trace) == []
    return sum(row.verdict in ("accepted_slim", "accepted_full") for row in trace.tokens)


def law_of(pair: ModelPair, prompt: list[int], length: int, temperature: float) -> np.ndarray:
    """Exact law [V] * length of the verifier's next tokens."""
    vocab = parts_of(pair).runner.vocab_size
    texts = [prompt + list(tail) for tail in itertools.product(range(vocab), repeat=length)]
    with torch.inference_mode():
        logits = pair.verifier.model(torch.tensor(texts)).logits[:, :, :vocab]
    chances = (logits / temperature).softmax(-1)
    law = torch.ones(len(texts), dtype=torch.float64)
    for place in range(len(prompt), len(prompt) + length):
        law *= chances[range(len(texts)), place - 1, [text[place] for text in texts]]
    return np.asarray(law.reshape([vocab] * length))


def sampled_p_values(
    pair: ModelPair,
    trained: Trained,
    prompt: list[int],
    runs: int,
    temperature: float = 1.0,
    **method: Any,
) -> tuple[float, float]:
    """Chance that the first two tokens of many speculative runs follow the verifier's law, and that they
    follow the verifier's law at another temperature (which a test with enough power refuses).
    """
    parts = parts_with(pair, trained)
    law = law_of(pair, prompt, 2, temperature)
    counts = np.zeros(law.shape)
    # Without a bonus both tokens are drafted at once.
    method = method or {"method": "sd", "gamma": 3, "bonus": "none"}
    options = Settings(max_new_tokens=2, temperature=temperature, trace=False, **method)
    for seed in range(runs):
        settings = options.with_(seed=seed)
        loop = Loop(parts, prompt, settings, LiveSettings(settings))
        while loop.step().finish is None:
            continue
        counts[tuple(loop.run.tokens[len(prompt) :])] += 1
    other = law_of(pair, prompt, 2, 2 * temperature)
    return p_value(counts.reshape(-1), law.reshape(-1)), p_value(counts.reshape(-1), other.reshape(-1))


CYCLES: dict[str, dict[str, Any]] = {
    "sd": {"method": "sd"},
    "sd sampled": {"method": "sd", "temperature": 1.0},
    "via-sd": {"temperature": 1.0},
    "own slim cache": {"temperature": 1.0, "slim_kv": "own"},
    "strict": {"strict": True},
}


def cycle_settings(name: str, mask: str, max_new_tokens: int = 40) -> Settings:
    """Settings that make every kind of cycle of CYCLES[name]; the three-tier ones skip layers by `mask`."""
    settings = Settings(max_new_tokens=max_new_tokens, gamma=3, **CYCLES[name])
    if settings.method == "via-sd":
        settings = settings.with_(mask=mask, alpha1=0.05, alpha2=0.01, debt_cap=4)
    return settings


def state_follows_from_the_text(
    pair: ModelPair, trained: Trained, settings: Settings, cycles: int
) -> list[int]:
    """After every cycle the next draft is a fresh drafter's; returns the debt after each cycle.

    Where q has seen the whole text, the fresh drafter reads a fresh verifier, else the run's own rows.
    """
    loop = Loop(parts_with(pair, trained), [5, 1, 7, 3], settings, LiveSettings(settings))
    debts = []
    for _ in range(cycles):
        if loop.step().finish is not None:
            break
        run_, drafter = loop.run, loop.run.drafter
        assert drafter is not None
        debts.append(len(run_.tokens) - 1 - run_.verifier.n_q)
        with torch.inference_mode():
            verifier = run_.verifier
            if debts[-1] == 0:
                verifier = Verifier(verifier.runner, run_.limit + 4, taps=trained.taps)
                verifier.prefill(run_.tokens[:-1])
            fresh = trained.make(verifier, run_.limit + 4)
            fresh.begin(run_.tokens)
            wanted = fresh.draft(3, GREEDY, noise())
            found = drafter.draft(min(3, run_.limit - len(run_.tokens)), GREEDY, noise())
        assert found.logits is not None and wanted.logits is not None
        count = found.length
        torch.testing.assert_close(found.logits, wanted.logits[:count], atol=1e-9, rtol=0.0)
    return debts


@torch.inference_mode()
def trace_of_replaced_text(pair: ModelPair, trained: Trained, start: int) -> float:
    """How far the draft of a drafter told of other tokens from `start` on lies from that of one that never
    read the old ones.
    """
    text, tokens = [1, 4, 2, 7, 7, 0, 3, 5, 6], [3, 3, 0, 1]
    found = draft_behind_replaced_text(pair, trained, text, start, tokens).logits
    wanted = first_draft(pair, trained, [*text[:start], *tokens], 3).logits
    assert found is not None and wanted is not None
    said = wanted > -torch.inf
    assert torch.equal(said, found > -torch.inf)
    return float((found - wanted)[said].abs().max())


def draft_behind_replaced_text(
    pair: ModelPair, trained: Trained, text: list[int], start: int, tokens: list[int]
) -> Draft:
    """A drafter that read and drafted behind `text`, and is then told of `tokens` from `start` on."""
    verifier = Verifier(parts_of(pair).runner, 64, taps=trained.taps)
    verifier.prefill(text[:-1])
    drafter = trained.make(verifier, 64)
    drafter.begin(text)
    drafter.draft(3, GREEDY, noise())
    verifier.rewind(start)
    verifier.prefill([*text[:start], *tokens][:-1])
    drafter.commit(tokens, start)
    return drafter.draft(3, GREEDY, noise())
