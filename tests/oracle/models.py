"""Small random models to compare the engine with, made once a process and never written to."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

import toys
from viasd_core.decode import Loop, decode, generate
from viasd_core.families import attention_of
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair
from viasd_core.parts import Parts, parts_of
from viasd_core.presets import DrafterSpec, Preset
from viasd_core.settings import Settings
from viasd_core.sources import Source
from viasd_core.trace import Trace

WINDOW = 8
LAYERS = 4
SLIDING: dict[str, Any] = {"use_sliding_window": True, "sliding_window": WINDOW}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral-window": ("mistral", {"sliding_window": WINDOW}),
    "qwen2-window": ("qwen2", {**SLIDING, "max_window_layers": 2}),
    "gemma2-window": ("gemma2", {}),  # alternating by itself; its scores and logits are capped
    "qwen3-window": ("qwen3", {**SLIDING, "layer_types": ["sliding_attention", "full_attention"] * 2}),
}
WINDOWED = tuple(name for name in VARIANTS if name.endswith("window"))
DRAFTERS = {
    "model": DrafterSpec("model", source=Source("folder", "draft")),
    "lookup": DrafterSpec("lookup"),
    "nested": DrafterSpec("layer-skip", skip_ratio=0.5, cache="nested"),
    "own": DrafterSpec("layer-skip", skip_ratio=0.5, cache="own"),
    "none": DrafterSpec("none"),
}


@cache
def model(
    variant: str = "llama", dtype: torch.dtype = torch.float64, attention: str = "sdpa", seed: int = 0
) -> PreTrainedModel:
    """A model of `LAYERS` layers; treat it as read-only."""
    family, changes = VARIANTS[variant]
    made = toys.toy_model(family, layers=LAYERS, dtype=dtype, seed=seed, **changes)
    made.set_attn_implementation(attention_of(family) if attention == "sdpa" else attention)
    return made


@cache
def draft_model(variant: str, dtype: torch.dtype, attention: str, noise: float) -> PreTrainedModel:
    """The verifier with moved weights: right some of the time."""
    return toys.perturbed(model(variant, dtype, attention), noise)


@cache
def pair(
    variant: str = "llama",
    drafter: str = "model",
    *,
    dtype: torch.dtype = torch.float64,
    attention: str = "sdpa",
    noise: float = 0.06,
) -> ModelPair:
    """A pair over the shared models; made once, as nothing writes to it."""
    spec = DRAFTERS[drafter]
    draft = None
    if drafter == "model":
        draft = toys.loaded(draft_model(variant, dtype, attention, noise), "draft")
    preset = Preset("toy", verifier=Source("folder", "toy"), drafter=spec, chat=False)
    return ModelPair("toy", toys.loaded(model(variant, dtype, attention)), spec, draft, preset)


def prompt(length: int, seed: int = 0) -> list[int]:
    """`length` random ids without special ones."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return torch.randint(len(toys.SPECIAL), toys.VOCAB, (length,), generator=generator).tolist()


@cache
def hf_greedy(
    variant: str,
    length: int,
    new: int,
    dtype: torch.dtype = torch.float64,
    attention: str = "sdpa",
    seed: int = 0,
) -> tuple[int, ...]:
    """What Hugging Face `generate` says behind `prompt(length, seed)`, end-of-sequence token included."""
    ids = torch.tensor([prompt(length, seed)])
    said = model(variant, dtype, attention).generate(  # type: ignore[operator]
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, pad_token_id=0
    )
    return tuple(said[0, length:].tolist())


def run(
    source: ModelPair | Parts, ids: list[int], settings: Settings, live: LiveSettings | None = None
) -> Trace:
    """A whole run, folded into a trace."""
    trace = Trace()
    if isinstance(source, Parts):
        events = decode(source, ids, settings, live)
    else:
        events = generate(source, ids, settings, live)
    for event in events:
        trace.add(event)
    return trace


def loop_of(
    source: ModelPair | Parts, ids: list[int], settings: Settings, live: LiveSettings | None = None
) -> Loop:
    """A run to be driven cycle by cycle, whose state can be looked at."""
    parts = source if isinstance(source, Parts) else parts_of(source)
    return Loop(parts, ids, settings, live or LiveSettings(settings))


def say(source: ModelPair | Parts, ids: list[int], method: str, **settings: Any) -> list[int]:
    """Output ids of a run; VIA-SD gets an even mask over half the layers unless told otherwise."""
    if method == "via-sd":
        settings = {"mask": "even", "skip_ratio": 0.5, **settings}
    return run(source, ids, Settings(method=method, **settings)).token_ids


def random_gates(dice: random.Random) -> dict[str, Any]:
    """Options of VIA-SD that decide who judges, who has which rows, and who is asked when."""
    return {
        "alpha1": dice.choice([0.02, 0.2, 0.5, 1.0]),
        "alpha2": dice.choice([0.0, 0.005, 0.05, 0.3]),
        "slim_kv": dice.choice(["shared", "shared", "own"]),
        "debt_cap": dice.choice([None, 0, 4, 9]),
        "bonus": dice.choice(["none", "q-if-called", "slim"]),
        "bonus_threshold": 0.2,
        "regenerate": dice.random() < 0.75,
        "after_escalation": dice.choice(["gate", "q"]),
    }
