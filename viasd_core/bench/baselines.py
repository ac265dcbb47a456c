"""Hugging Face `generate` as a baseline: the very model object the engine runs, same dtype, same EOS ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.generation.streamers import BaseStreamer

from ..drafters.borrowed import BorrowedModel, whole_model
from ..errors import PairError, SettingsError
from ..pair import ModelPair
from ..settings import Settings
from .measure import RunResult
from .request import BASELINES

LOOKUP_TOKENS = 10  # the length Hugging Face's guide to prompt lookup uses


class FirstTokenClock(BaseStreamer):
    """Notes when the first new tokens arrive and how many came at once. `generate` announces the prompt
    first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._prompt_seen = False
        self.time: float | None = None
        self.tokens = 0

    def put(self, value: torch.Tensor) -> None:
        if not self._prompt_seen:
            self._prompt_seen = True
        elif self.time is None:
            self.time = self._clock()
            self.tokens = int(value.numel())

    def end(self) -> None:
        """Nothing is held back."""


@dataclass(frozen=True)
class HFRunner:
    """`model.generate`, plain, with an assistant model, or with prompt lookup (`extra` holds what differs).

    The checkpoint's own generation config (repetition penalty, temperature and so on) is put aside for the
    call, so that what runs is exactly the sampling asked for; the assistant's too, which also keeps one
    call's draft schedule out of the next.
    """

    label: str
    model: PreTrainedModel
    eos_ids: tuple[int, ...]
    settings: Settings  # sampling and seed
    assistant: PreTrainedModel | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    clock: Callable[[], float] = time.perf_counter

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> RunResult:
        prompt = torch.tensor([list(prompt_ids)], dtype=torch.long, device=self.model.device)
        config = self._config(max_new_tokens)
        arguments: dict[str, Any] = {} if self.assistant is None else {"assistant_model": self.assistant}
        first = FirstTokenClock(self.clock)
        torch.manual_seed(self.settings.seed)
        with neutral_config(self.model), neutral_config(self.assistant):
            started = self.clock()
            output: Any = cast(GenerationMixin, self.model).generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=config,
                streamer=first,
                **arguments,
            )
            raw = output[0, len(prompt_ids) :].tolist()
            seconds = self.clock() - started
        tokens = cut_at_eos(raw, self.eos_ids)[:max_new_tokens]
        return RunResult(
            token_ids=tuple(tokens),
            seconds=seconds,
            ttft_s=(first.time or started + seconds) - started,
            first_tokens=min(first.tokens, len(tokens)),
            finish="eos" if tokens and tokens[-1] in self.eos_ids else "length",
        )

    def _config(self, max_new_tokens: int) -> GenerationConfig:
        options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": False, "use_cache": True}
        if self.eos_ids:
            options |= {"eos_token_id": list(self.eos_ids), "pad_token_id": self.eos_ids[0]}
        if self.settings.temperature > 0:
            options |= {
                "do_sample": True,
                "temperature": self.settings.temperature,
                "top_k": self.settings.top_k,
                "top_p": self.settings.top_p,
                "min_p": self.settings.min_p or None,
            }
        return GenerationConfig(**options, **self.extra)


@contextmanager
def neutral_config(model: PreTrainedModel | None) -> Iterator[None]:
    """Put a fresh generation config in place of the model's own, and give the own one back afterwards."""
    if model is None:
        yield
        return
    own = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def cut_at_eos(tokens: Sequence[int], eos_ids: Sequence[int]) -> list[int]:
    """`tokens` up to and including the first EOS."""
    for index, token in enumerate(tokens):
        if token in eos_ids:
            return list(tokens[: index + 1])
    return list(tokens)


def hf_runner(name: str, pair: ModelPair, settings: Settings) -> HFRunner:
    """The baseline `name` on a pair's verifier. Raises SettingsError for an unknown name, PairError where the
    pair cannot serve it (hf-assisted without a draft model, or with one of another output width)."""
    verifier = pair.verifier
    common: dict[str, Any] = {
        "label": name,
        "model": verifier.model,
        "eos_ids": tuple(sorted(verifier.eos_ids)),
        "settings": settings,
    }
    if name == "hf":
        return HFRunner(**common)
    if name == "hf-lookup":
        return HFRunner(**common, extra={"prompt_lookup_num_tokens": LOOKUP_TOKENS})
    if name == "hf-assisted":
        return HFRunner(**common, assistant=_assistant(pair))
    raise SettingsError(f"unknown baseline {name!r}; choose from {', '.join(BASELINES)}")


def _assistant(pair: ModelPair) -> PreTrainedModel:
    draft = pair.draft_model
    if pair.trained is not None and isinstance(pair.trained.drafter.module, BorrowedModel):
        return whole_model(pair.trained.drafter.module, pair.verifier.model)
    if draft is None:
        raise PairError(
            f"hf-assisted needs a draft model, and the drafter of {pair.name!r} is {pair.drafter.kind!r}; "
            "give one with --drafter or leave hf-assisted out"
        )
    if draft.n_vocab != pair.verifier.n_vocab:
        raise PairError(
            f"hf-assisted needs models of equal output width, got {draft.n_vocab} and "
            f"{pair.verifier.n_vocab} ids; leave hf-assisted out"
        )
    return draft.model


def baseline_settings(runner: HFRunner) -> dict[str, Any]:
    """What the result file says about a baseline's settings."""
    shared = ("temperature", "top_k", "top_p", "min_p", "seed", "max_new_tokens")
    values: dict[str, Any] = {name: getattr(runner.settings, name) for name in shared} | runner.extra
    if runner.assistant is not None:
        defaults = GenerationConfig()._get_default_generation_params()
        values |= {
            name: defaults.get(name)
            for name in (
                "num_assistant_tokens",
                "num_assistant_tokens_schedule",
                "assistant_confidence_threshold",
            )
        }
    return values
