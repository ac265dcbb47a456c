"""Is a found mask worth having? Held-out cost, what decoding with it should give, and what others give."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..layers import BlockRunner
from ..masks import chain_pass
from ..pair import ModelPair
from ..parts import Parts, skip_layers
from ..recording import effective_skip
from ..transfer import to_device
from .calibration import TeacherForced
from .cost import CostSettings, floored_log_probs, insertion_gain
from .masks import contiguous_mask, even_mask, parse_bits, random_mask, skip_count
from .predict import Draftsman, Prediction, Times, predict
from .score import Score, Scorer
from .search import Observation
from .space import Space

RANDOM_MASKS = 5  # scored beside the found one; their median cost is shown
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
        score = self.scorer.score(mask)
        return {
            "mask": mask,
            "skip_ratio": mask.count("0") / len(mask),
            **headline(score),
            "r_eff": effective_skip(self.parts, parse_bits(mask, len(mask)).layers),
            "predicted": self.predict(score, mask).as_dict(),
        }

    def predict(self, score: Score, mask: str) -> Prediction:
        return predict(score, mask.count("1"), len(mask), self.times, self.draftsman, self.cap)


def headline(score: Score) -> dict[str, Any]:
    """The numbers of a score that are shown in one line."""
    facts = score.as_dict()
    return {key: facts[key] for key in ("cost", "block_cost", "agreement", "regions", "positions")}


def compare(bench: Bench, mask: str) -> dict[str, Any]:
    """The held-out numbers of the found mask, by age too, and of the even, contiguous and random masks of
    the same size.
    """
    ratio, layers = mask.count("0") / len(mask), len(mask)
    score = bench.scorer.score(mask)
    drawn = [
        headline(bench.scorer.score(random_mask(ratio, layers, seed).bits)) for seed in range(RANDOM_MASKS)
    ]
    others = {
        "even": headline(bench.scorer.score(even_mask(ratio, layers).bits)),
        "contiguous": headline(bench.scorer.score(contiguous_mask(ratio, layers).bits)),
        "random": {
            key: statistics.median(one[key] for one in drawn) for key in ("cost", "block_cost", "agreement")
        },
    }
    return bench.judge(mask) | {
        "cost_by_age": list(score.cost_by_age),
        "agreement_by_age": list(score.agreement_by_age),
        "others": others,
    }


def layer_costs(seen: Iterable[Observation], space: Space, scorer: Scorer) -> dict[int, float]:
    """What each layer's loss alone costs, from the search where it looked, else scored now."""
    alone = {one.mask.index("0"): one.cost for one in seen if one.mask.count("0") == 1}
    return {
        layer: alone[layer] if layer in alone else scorer.cost(space.without([layer])) for layer in space.free
    }


def nested(mask: str, count: int, alone: Mapping[int, float]) -> str:
    """A mask that skips `count` layers, inside or around `mask`, cheapest layers (alone) first."""
    gone = [layer for layer, bit in enumerate(mask) if bit == "0"]
    inside = sorted(gone, key=lambda layer: alone[layer])
    outside = sorted(set(alone) - set(gone), key=lambda layer: alone[layer])
    chosen = set([*inside, *outside][:count])
    return "".join("0" if layer in chosen else "1" for layer in range(len(mask)))


def nested_masks(mask: str, alone: Mapping[int, float]) -> list[str]:
    """Masks nested around the found one, a skip ratio of `CURVE` each, and the found one."""
    counts = sorted({skip_count(ratio, len(mask)) for ratio in CURVE} | {mask.count("0")})
    return [nested(mask, count, alone) for count in counts if 0 < count <= len(alone)]


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
        kept = skip_layers(pair.drafter, parts.masks)
        bits = "".join("1" if layer in kept else "0" for layer in range(text.runner.n_layers))
        return floored_log_probs(scorer.slim_logits(number, bits))
    return None


def _chain_logits(runner: BlockRunner, text: TeacherForced) -> Tensor:
    layers = range(runner.n_layers)
    ids = to_device(text.text.ids[:-1], runner.device)
    plan = chain_pass(0, len(ids), runner.device)
    logits = runner.forward(ids, plan, runner.new_slots(len(ids), layers), layers, text.fresh)
    assert logits is not None
    return logits
