"""Is a found mask worth having? Held-out cost, what decoding with it should give, and what others give."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..layers import BlockRunner
from ..masks import chain_pass
from ..pair import ModelPair
from ..parts import Parts, drafter_mask
from ..recording import effective_skip
from ..transfer import to_device
from .calibration import TeacherForced
from .cost import CostSettings, floored_log_probs, insertion_gain
from .masks import LayerMask, contiguous_mask, even_mask, parse_bits, random_mask, skip_count
from .predict import Draftsman, Prediction, Times, predict
from .score import Score, Scorer
from .search import Observation
from .space import Space

RANDOM_MASKS = 5  # scored beside the found one; see `middle`
CURVE = tuple(round(0.05 * step, 2) for step in range(1, 16))  # 0.05 .. 0.75


@dataclass(frozen=True)
class Bench:
    """Everything masks are judged with: held-out texts, measured times, the drafter in numbers."""

    parts: Parts
    scorer: Scorer
    times: Times
    draftsman: Draftsman
    cap: int | None

    def judge(self, mask: str) -> dict[str, Any]:
        """A mask's held-out numbers and prediction."""
        return self.judged(mask, self.scorer.score(mask))

    def judged(self, mask: str, score: Score) -> dict[str, Any]:
        """`judge` of a mask that has been scored."""
        known = self.read(mask)
        return {
            "mask": mask,
            "skip_ratio": known.skip_ratio,
            "r_eff": effective_skip(self.parts, known.layers),
            **self.beside(mask, score),
        }

    def beside(self, mask: str, score: Score) -> dict[str, Any]:
        """What masks of one size are compared in."""
        return headline(score) | {"predicted": self.predict(score, mask).as_dict()}

    @property
    def n_layers(self) -> int:
        return self.parts.runner.n_layers

    def read(self, mask: str) -> LayerMask:
        return parse_bits(mask, self.n_layers)

    def predict(self, score: Score, mask: str) -> Prediction:
        kept = self.read(mask).layers
        return predict(score, kept, self.n_layers, self.times, self.draftsman, self.cap)


def headline(score: Score) -> dict[str, Any]:
    """The numbers of a score that are shown in one line."""
    facts = score.as_dict()
    return {key: facts[key] for key in ("cost", "block_cost", "agreement", "regions", "positions")}


def compare(bench: Bench, mask: str) -> dict[str, Any]:
    """The held-out numbers and prediction of the found mask, by age too, and of the even, contiguous and
    random masks of the same size. Each is scored once.
    """
    known, layers = bench.read(mask), bench.n_layers
    ratio, units = known.skip_ratio, known.granularity

    def look(other: LayerMask) -> dict[str, Any]:
        return bench.beside(other.bits, bench.scorer.score(other.bits))

    score = bench.scorer.score(mask)
    drawn = [look(random_mask(ratio, layers, seed, units)) for seed in range(RANDOM_MASKS)]
    return bench.judged(mask, score) | {
        "cost_by_age": list(score.cost_by_age),
        "agreement_by_age": list(score.agreement_by_age),
        "others": {
            "even": look(even_mask(ratio, layers, units)),
            "contiguous": look(contiguous_mask(ratio, layers, units)),
            "random": middle(drawn),
        },
    }


def middle(drawn: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several masks as one: medians of costs and agreement, which a single useless mask would carry off,
    means of shares and predictions.
    """
    return {
        **{key: statistics.median(one[key] for one in drawn) for key in ("cost", "block_cost", "agreement")},
        **{
            key: {name: statistics.fmean(one[key][name] for one in drawn) for name in drawn[0][key]}
            for key in ("regions", "predicted")
        },
        "positions": drawn[0]["positions"],
    }


def layer_costs(seen: Iterable[Observation], space: Space, scorer: Scorer) -> dict[int, float]:
    """What each unit's loss alone costs (beside those gone anyway), from the search where it looked, else
    scored now.
    """
    known = {one.mask: one.cost for one in seen}
    masks = {unit: space.without([unit]) for unit in space.free}
    return {unit: known[mask] if mask in known else scorer.cost(mask) for unit, mask in masks.items()}


def nested(mask: str, count: int, alone: Mapping[int, float]) -> str:
    """A mask that skips `count` units, inside or around `mask`, cheapest units (alone) first; units without
    a cost of their own are gone anyway and come first of all.
    """
    gone = [unit for unit, bit in enumerate(mask) if bit == "0"]
    inside = sorted(gone, key=lambda unit: alone.get(unit, -math.inf))
    outside = sorted(set(alone) - set(gone), key=lambda unit: alone[unit])
    chosen = set([*inside, *outside][:count])
    return "".join("0" if unit in chosen else "1" for unit in range(len(mask)))


def nested_masks(bench: Bench, mask: str, alone: Mapping[int, float]) -> list[str]:
    """Masks nested around the found one, a skip ratio of `CURVE` each, and the found one."""
    units = bench.read(mask).granularity
    counts = sorted({skip_count(ratio, bench.n_layers, units) for ratio in CURVE} | {mask.count("0")})
    most = len(set(alone) | {unit for unit, bit in enumerate(mask) if bit == "0"})
    return [nested(mask, count, alone) for count in counts if 0 < count <= most]


def curve(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Judged masks over the skip ratio (the paper's Fig. 4), and the ratio of highest predicted speed, or the
    sentence that none beats speculative decoding.
    """
    best = max(points, key=lambda point: point["predicted"]["speed"])
    speed, ratio = best["predicted"]["speed"], best["skip_ratio"]
    if speed > 1:
        sentence = f"skipping {ratio:.0%} is predicted fastest, {speed:.2f} times speculative decoding"
    else:
        sentence = (
            f"no skip ratio from {points[0]['skip_ratio']:.0%} to {points[-1]['skip_ratio']:.0%} is "
            f"predicted to beat speculative decoding with the same drafter; the best, {ratio:.0%}, gives "
            f"{speed:.2f} times its speed"
        )
    return {"points": list(points), "optimum": ratio if speed > 1 else None, "sentence": sentence}


@torch.inference_mode()
def tier_gain(pair: ModelPair, parts: Parts, scorer: Scorer, mask: str, cost: CostSettings) -> dict[str, Any]:
    """Delta(u | pi) of eq. 7, nats a position, for q' between the pair's drafter and q: above 0 it pays.

    Only drafters with a law of their own have one; else `value` is None and `reason` says so.
    """
    total, positions = 0.0, 0
    for number, text in enumerate(scorer.texts):
        log_p = _drafter_rows(pair, parts, scorer, number)
        if log_p is None:
            return {"value": None, "reason": f"a {_kind(pair)} drafter has no law over the calibration texts"}
        log_u = floored_log_probs(scorer.slim_logits(number, mask))
        total += float(insertion_gain(log_p, log_u, text.log_q, cost))
        positions += text.fresh
    return {"value": total / positions, "reason": ""}


def _kind(pair: ModelPair) -> str:
    return "trained" if pair.trained is not None else pair.drafter.kind


def _drafter_rows(pair: ModelPair, parts: Parts, scorer: Scorer, number: int) -> Tensor | None:
    """The drafter's floored log-probabilities [new tokens, V] on a text, or None."""
    text = scorer.texts[number]
    if pair.draft_model is not None:
        runner = BlockRunner(pair.draft_model.model, vocab_size=parts.runner.vocab_size)
        return floored_log_probs(_chain_logits(runner, text))
    if pair.drafter.kind == "layer-skip" and parts.masks is not None:
        return floored_log_probs(scorer.slim_logits(number, drafter_mask(pair.drafter, parts.masks).bits))
    return None


def _chain_logits(runner: BlockRunner, text: TeacherForced) -> Tensor:
    layers = range(runner.n_layers)
    ids = to_device(text.text.ids[:-1], runner.device)
    plan = chain_pass(0, len(ids), runner.device)
    logits = runner.forward(ids, plan, runner.new_slots(len(ids), layers), layers, text.fresh)
    assert logits is not None
    return logits
