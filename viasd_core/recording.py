"""Run a generation to its end and keep everything: a `Trace` that can be checked against its rows."""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import torch
from jinja2 import TemplateError

from .decode import checked_prompt, generate
from .errors import PromptError, SourceError
from .live import LiveSettings
from .pair import ModelPair
from .parts import Parts, SlimPart, parts_of, slim_parts
from .settings import Settings, is_text
from .sources import public_identity
from .sublayers import Layer
from .trace import DEFINITIONS, SCHEMA, CycleEvent, Trace

LIBRARIES = ("torch", "transformers", "tokenizers", "numpy")


def encode_prompt(pair: ModelPair, text: str, *, raw: bool = False) -> list[int]:
    """Prompt ids: the verifier's chat template around `text`, or `text` as it is when raw or without a
    template.
    """
    if not is_text(text):
        raise PromptError("the prompt holds half a character (a lone surrogate); give valid UTF-8 text")
    tokenizer = pair.verifier.tokenizer
    if raw or not pair.preset.chat or not tokenizer.chat_template:
        return list(tokenizer(text).input_ids)
    message = [{"role": "user", "content": text}]
    try:
        encoded: Any = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
    except TemplateError as error:
        raise SourceError(f"the verifier's chat template fails: {error}; use raw prompts (--raw)") from error
    return [int(token) for token in encoded["input_ids"]]


def record(
    pair: ModelPair,
    prompt: str,
    settings: Settings,
    *,
    prompt_ids: Sequence[int],
    live: LiveSettings | None = None,
    on_event: Callable[[CycleEvent], None] | None = None,
    trace: Trace | None = None,
) -> Trace:
    """Decode and collect. `on_event` sees each event as it comes.

    Pass a `trace` of your own to keep what was made when an exception (also KeyboardInterrupt) ends the run
    early: it is complete up to the last cycle, with `complete` false. Raises what `generate` raises.
    """
    from .suffix_choice import with_suffix  # which encodes a prompt of its own

    trace = trace if trace is not None else Trace()
    settings, found = with_suffix(pair, settings)
    started = time.perf_counter()
    events = generate(pair, prompt_ids, settings, live)
    trace.run.update(describe(pair, prompt, prompt_ids, settings) | found)
    try:
        collect(trace, events, started, on_event)
    finally:
        finish(trace, time.perf_counter() - started)
    return trace


def collect(
    trace: Trace, events: Iterator[CycleEvent], started: float, on_event: Callable[[CycleEvent], None] | None
) -> None:
    """Fold events into `trace`, noting the time to the first token."""
    for event in events:
        trace.run.setdefault("ttft_s", time.perf_counter() - started)
        trace.add(event)
        if on_event is not None:
            on_event(event)


def finish(trace: Trace, wall_s: float) -> None:
    """Write what only the end of a run knows into run.json's content."""
    totals = trace.summary()
    trace.run.update(
        token_ids=trace.token_ids,
        text=trace.text,
        finish_reason=trace.finish or "cancelled",
        complete=trace.finish is not None,
        totals=totals,
        wall_s=wall_s,
        tokens_per_s=totals["new_tokens"] / wall_s if wall_s else 0.0,
    )
    trace.finish = trace.run["finish_reason"]


def describe(pair: ModelPair, prompt: str, prompt_ids: Sequence[int], settings: Settings) -> dict[str, Any]:
    """run.json's content as far as it is known before the first cycle; `settings` as `with_suffix` gives
    them.
    """
    parts = parts_of(pair)
    slims = slim_parts(parts, settings)
    mask = slims[0].mask if slims else None
    prompt_ids = checked_prompt(parts, prompt_ids)
    return {
        "schema": SCHEMA,
        "run_id": str(uuid.uuid4()),
        "method": settings.method,
        "settings": settings.as_dict(),
        "preset": pair.name,
        "prompt": prompt,
        "prompt_tokens": len(prompt_ids),
        "prompt_token_ids": prompt_ids,
        "models": {
            "verifier": public_identity(pair.verifier.identity),
            "drafter": drafter_identity(pair, settings),
        },
        "n_layers": parts.runner.n_layers,
        "mask": mask.bits if mask else None,
        "mask_id": mask.name if mask else None,
        "r_eff": effective_skip(parts, mask.layers) if mask else None,
        **({"slim_tiers": [tier_facts(pair, parts, slim) for slim in slims]} if settings.slim_tiers else {}),
        "dtype": str(parts.runner.dtype).removeprefix("torch."),
        "hardware": hardware(parts.runner.device),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "definitions": DEFINITIONS,
    }


def drafter_identity(pair: ModelPair, settings: Settings) -> dict[str, Any]:
    """What drafted, for the record; plain decoding has no drafter."""
    if settings.method == "ar":
        return {"kind": "none"}
    spec = pair.drafter
    if pair.trained is not None:
        return {"kind": pair.trained.drafter.kind, "model": public_identity(pair.trained.identity)}
    details = {"skip_ratio": spec.skip_ratio, "cache": spec.cache} if spec.kind == "layer-skip" else {}
    model = public_identity(pair.draft_model.identity) if pair.draft_model else {}
    return {"kind": spec.kind, **details, **({"model": model} if model else {})}


def tier_facts(pair: ModelPair, parts: Parts, slim: SlimPart) -> dict[str, Any]:
    """One slim verifier, for the record. `r_eff` of a model: bytes it reads less than q, over q's; below 0
    where it reads more.
    """
    if slim.mask is not None:
        mask = slim.mask
        facts: dict[str, Any] = {"mask": mask.bits, "mask_id": mask.name, "skip_ratio": mask.skip_ratio}
        return facts | {"r_eff": effective_skip(parts, mask.layers)}
    model = parts.tier_models[slim.tier]
    read, whole = (one.read_bytes(range(one.n_layers)) for one in (model, parts.runner))
    return {"model": public_identity(pair.tiers[slim.tier].identity), "r_eff": 1 - read / whole}


def effective_skip(parts: Parts, layers: Sequence[Layer]) -> float:
    """r_eff: bytes of skipped weights over the bytes q reads in one forward (never the LM head)."""
    runner = parts.runner
    whole = runner.read_bytes(range(runner.n_layers))
    return 1 - runner.read_bytes(layers) / whole


def hardware(device: torch.device) -> dict[str, Any]:
    """What the run ran on, without anything that names the machine or its user."""
    facts: dict[str, Any] = {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "cpu": platform.machine(),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts
