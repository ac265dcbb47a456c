"""Logits to probabilities (the only place), draws, residuals, and the random streams of a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How a distribution is shaped before a draw; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def logits_to_probs(logits: Tensor, sampling: Sampling) -> Tensor:
    """Processed probabilities, shape [n, V], of raw logits [n, V]; float32, or float64 for float64 logits.

    Temperature, top-k, top-p and min-p in that order, as Hugging Face applies them. Greedy gives one-hot
    rows. The same function shapes the drafter, q' and q: a token must be tested against the very rows it was
    drawn from.
    """
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.greedy:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # Relative to the row's maximum, so that a tiny temperature gives 0 and -inf, never inf - inf.
    logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        weakest = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < weakest, -torch.inf)
    if sampling.top_p < 1:
        ascending, order = logits.sort(dim=-1)
        drop = ascending.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        drop[..., -1] = False
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)
    probs = logits.softmax(-1)
    if sampling.min_p > 0:
        probs = probs * (probs >= sampling.min_p * probs.amax(-1, keepdim=True))
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def raw_log_probs(logits: Tensor) -> Tensor:
    """Unprocessed (T = 1) log-probabilities, nats, float32 or float64."""
    return (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)


def draw(probs: Tensor, noise: Tensor | None) -> Tensor:
    """One token id a row of probs [..., V]: argmax(probs / Exp(1)), which samples without a device sync.

    `noise` is exponential noise of the same shape, or None for greedy rows.
    """
    return (probs if noise is None else probs / noise).argmax(-1)


def normalise(mass: Tensor, fallback: Tensor) -> Tensor:
    """mass / sum(mass) over the last axis; `fallback` where the sum is zero or not finite (p equals q)."""
    total = mass.sum(-1, keepdim=True)
    usable = (total > 0) & total.isfinite()
    return torch.where(usable, mass / torch.where(usable, total, torch.ones_like(total)), fallback)


def residual(q: Tensor, p: Tensor) -> Tensor:
    """norm(max(0, q - p)), the law of a replacement after a rejection (arXiv 2211.17192)."""
    return normalise((q - p).clamp_min(0), q)


class Noise:
    """Named random streams of one run, all derived from its seed.

    Separate streams keep methods comparable: VIA-SD that escalates every token consumes the same draft,
    accept and replace noise as plain speculative decoding, so both give the same tokens for the same seed.
    """

    def __init__(self, seed: int, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self._seed, self._device = seed, device
        self._dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self._streams: dict[str, torch.Generator] = {}

    def _stream(self, name: str) -> torch.Generator:
        if name not in self._streams:
            digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
            self._streams[name] = torch.Generator(self._device).manual_seed(
                int.from_bytes(digest[:8], "big") >> 1
            )
        return self._streams[name]

    def uniforms(self, name: str, count: int) -> Tensor:
        """`count` uniforms in [0, 1), shape [count]."""
        return torch.rand(count, generator=self._stream(name), device=self._device, dtype=self._dtype)

    def exponentials(self, name: str, sampling: Sampling, *shape: int) -> Tensor | None:
        """Exp(1) noise for `draw`; None when greedy, so that greedy runs consume no randomness."""
        if sampling.greedy:
            return None
        noise = torch.empty(*shape, device=self._device, dtype=self._dtype)
        # An exact zero would turn a zero-probability token into 0 / 0.
        return noise.exponential_(generator=self._stream(name)).clamp_min_(torch.finfo(self._dtype).tiny)
