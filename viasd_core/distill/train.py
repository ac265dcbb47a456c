"""Second half of `distill`: train a drafter on the shards, resumable at any step, watched on held-out
answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from ..atomic import replace_file
from ..errors import DataError
from .batches import Batch, count_batches, held_out_batches, training_batches
from .objective import HeldOut, Objective

MEASUREMENTS = 40
STATE = "training.pt"  # beside the drafter
# What reading a file that is no state, or half of one, ends in.
DAMAGE = (RuntimeError, UnpicklingError, EOFError, LookupError, AttributeError, TypeError, ValueError)


@dataclass(frozen=True)
class Training:
    """How a drafter is trained. `patience` counts measurements without improvement before an early stop."""

    epochs: float = 2.0
    batch: int = 16
    learning_rate: float = 1e-3
    warmup: float = 0.03  # share of all steps
    weight_decay: float = 0.0
    clip: float = 1.0
    measure_every: int = 100  # steps, at least; a long training is measured MEASUREMENTS times
    measure_on: int = 96  # held-out answers
    save_every: int = 50
    patience: int = 8
    seed: int = 0
    start: str = ""  # digest of the weights gone on from


@dataclass
class Progress:
    """What has happened so far; saved with the weights."""

    step: int = 0
    best_step: int = 0
    best: dict[str, list[float]] = field(default_factory=dict)  # agree, overlap and rows by draft position
    best_score: float = -1.0
    newest_score: float = -1.0  # the best of those that steps led to: a drafter gone on from has its own
    stale: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


Report = Callable[[str, dict[str, Any]], None]


class Trainer:
    """Trains `objective` on shard `paths`; `state` is the file that a later run resumes from.

    Raises DataError when no answer is held out, and when `state` is damaged or belongs to another training.
    """

    def __init__(
        self, objective: Objective, paths: list[Path], training: Training, state: Path, report: Report
    ) -> None:
        from accelerate import Accelerator

        self.objective, self.paths, self.training = objective, paths, training
        self.state, self.report = state, report
        self.made_with = {
            "training": {name: value for name, value in asdict(training).items() if value != ""},
            "answers": [path.name for path in paths],
            "drafter": objective.config(),
        }
        cuda = next(objective.module.parameters()).is_cuda
        self.accelerator = Accelerator(mixed_precision="bf16" if cuda else "no", cpu=not cuda)
        parameters = [p.requires_grad_(True) for p in objective.module.parameters()]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=training.learning_rate, betas=(0.9, 0.95), weight_decay=training.weight_decay
        )
        self.per_epoch = count_batches(paths, training.batch)
        self.steps = max(1, round(self.per_epoch * training.epochs) // self.accelerator.num_processes)
        # Noise between close measurements must not use up the patience of a long training.
        self.measure_every = max(training.measure_every, self.steps // MEASUREMENTS)
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.held_out = sum(1 for _ in held_out_batches(paths, 1, training.measure_on))  # answers
        if not self.held_out:
            raise DataError("no answer is held out to measure on; give more prompts or more --tokens")

    def run(self) -> Progress:
        """Train to the end, or to the early stop; the module then holds the best weights seen."""
        self._resume()
        first = self.progress.step
        if self.training.start and first == 0:
            self._measure()  # what it is to be better than
        for step, batch in self._batches(first):
            if self.progress.stale >= self.training.patience:
                self.report("stop", {"step": step, "stale": self.progress.stale})
                break
            self._step(step, batch)
            self.progress.step = step + 1
            last = step + 1 == self.steps
            if (step + 1) % self.measure_every == 0 or last:
                self._measure()
            if (step + 1) % self.training.save_every == 0 or last:
                self._save()
        if self.best:
            self.objective.module.load_state_dict(self.best)
        return self.progress

    def _batches(self, first: int) -> Any:
        """(step, batch) from step `first` on; each process takes every n-th batch."""
        ours, processes = self.accelerator.process_index, self.accelerator.num_processes
        place = 0
        # A drafter that is gone on from has seen the seed's own order, maybe no more than its beginning.
        seed = "/".join(filter(None, (str(self.training.seed), self.training.start)))
        for epoch in range(math.ceil(self.training.epochs) + 1):
            for batch in training_batches(self.paths, self.training.batch, seed, epoch):
                step, owner = divmod(place, processes)
                place += 1
                if step >= self.steps:
                    return
                if step >= first and owner == ours:
                    yield step, batch

    def _step(self, step: int, batch: Batch) -> None:
        random = torch.Generator().manual_seed(self.training.seed * 1_000_003 + step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.training.learning_rate * self._schedule(step)
        self.objective.module.train()
        with self.accelerator.autocast():
            loss = self.objective.loss(batch.to(self.accelerator.device), random)
        self.optimizer.zero_grad(set_to_none=True)
        self.accelerator.backward(loss)
        parameters = [p for p in self.objective.module.parameters() if p.grad is not None]
        if self.accelerator.num_processes > 1:
            for parameter in parameters:
                parameter.grad = self.accelerator.reduce(parameter.grad, reduction="mean")
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.training.clip)
        if torch.isfinite(norm):
            self.optimizer.step()
        self.report("step", {"step": step + 1, "steps": self.steps, "loss": float(loss.detach())})

    def _schedule(self, step: int) -> float:
        """Linear warm-up, then a half cosine down to 2 % of the learning rate."""
        warm = max(1, int(self.training.warmup * self.steps))
        if step < warm:
            return (step + 1) / warm
        share = (step - warm) / max(1, self.steps - warm)
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))

    @torch.no_grad()
    def _measure(self) -> None:
        self.objective.module.eval()
        found = HeldOut()
        for batch in held_out_batches(self.paths, self.training.batch, self.training.measure_on):
            self.objective.measure(batch.to(self.accelerator.device), found)
        now = {
            "agree": found.shares("agree"),
            "overlap": found.shares("overlap"),
            "rows": [float(rows) for rows in found.rows],
        }
        progress = self.progress
        progress.history.append({"step": progress.step, "score": found.score, **now})
        if progress.step:
            progress.stale = 0 if found.score > progress.newest_score else progress.stale + 1
            progress.newest_score = max(progress.newest_score, found.score)
        if found.score > progress.best_score:
            progress.best_score, progress.best_step, progress.best = found.score, progress.step, now
            self.best = {
                name: value.detach().clone() for name, value in self.objective.module.state_dict().items()
            }
        self.report("held-out", {"step": progress.step, "score": found.score, **now})

    def _save(self) -> None:
        if not self.accelerator.is_main_process:
            return
        content = {
            "progress": asdict(self.progress),
            "module": self.objective.module.state_dict(),
            "best": self.best,
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            "made_with": self.made_with,
        }
        buffer = BytesIO()  # torch.save to a full disk says nothing that a user could act on
        torch.save(content, buffer)
        replace_file(self.state, lambda place: place.write_bytes(buffer.getbuffer()))

    def _resume(self) -> None:
        if not self.state.exists():
            return
        try:
            content = torch.load(self.state, map_location="cpu", weights_only=True)
            if content["made_with"] != self.made_with:
                raise DataError(
                    f"{self.state} belongs to a training with other settings or answers; delete it to train "
                    "anew, or choose another --out"
                )
            for weights in (content["best"] or content["module"], content["module"]):
                self.objective.module.load_state_dict(weights)
            self.optimizer.load_state_dict(content["optimizer"])
            self.best, self.steps = content["best"], content["steps"]
            self.progress = Progress(**content["progress"])
        except DAMAGE as error:
            raise DataError(
                f"{self.state} is damaged and training cannot resume from it; delete it to train anew from "
                "the same answers"
            ) from error
        self.report("resume", {"step": self.progress.step, "steps": self.steps})
