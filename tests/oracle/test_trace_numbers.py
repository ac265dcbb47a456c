"""Every probability in a trace is what a recompute from scratch gives, drafted, slim, full and audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from oracle.models import WINDOW, draft_model, model, pair, prompt, run
from oracle.reference import first, recompute
from viasd_core.settings import Settings
from viasd_core.trace import SLIM_DECIDED, TokenRow, Trace, is_slim_decided

NOISE = 0.06
MASK, SLIM = "1011", (0, 2, 3)
VIA: dict[str, Any] = {"method": "via-sd", "mask": MASK, "alpha1": 0.3, "alpha2": 0.02}
SHAPES: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.8},
    "top-k": {"temperature": 1.0, "top_k": 12},
    "top-p": {"temperature": 1.2, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
    "all": {"temperature": 1.3, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
}


@dataclass
class Replay:
    """A finished run to look numbers up in: the text before each cycle, and every tier from scratch."""

    variant: str
    ids: list[int]
    settings: Settings
    trace: Trace

    def before(self, row: TokenRow) -> list[int]:
        """The text in front of a drafted or new token."""
        cycles = self.trace.cycles
        start = cycles[row.cycle - 1].kv_len if row.cycle else len(self.ids)
        text = (self.ids + self.trace.token_ids)[:start]
        if row.source != "draft" and row.out_pos is not None:
            return text + self.trace.token_ids[start - len(self.ids) : row.out_pos]
        drafted = [r for r in self.trace.tokens if r.cycle == row.cycle and r.source == "draft"]
        return text + [r.token_id for r in drafted[: row.slot]]

    def logits(self, of: PreTrainedModel, row: TokenRow) -> Tensor:
        return recompute(of, self.before(row))[0][-1]

    def slim_logits(self, row: TokenRow) -> Tensor:
        """q' as it stood in that cycle: q's rows below the watermark it started from."""
        text, prefix = self.before(row), None
        if self.settings.slim_kv == "shared":
            n_q = self.trace.cycles[row.cycle - 1].n_q if row.cycle else len(self.ids) - 1
            rows = first(recompute(model(self.variant), text)[1], n_q)
            prefix = {layer: rows[layer] for layer in SLIM}
        return recompute(model(self.variant), text, SLIM, prefix)[0][-1]

    def processed(self, logits: Tensor) -> Tensor:
        """Probabilities as Hugging Face shapes them."""
        settings, warpers = self.settings, LogitsProcessorList()
        warpers.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            warpers.append(TopPLogitsWarper(settings.top_p))
        if settings.min_p:
            warpers.append(MinPLogitsWarper(settings.min_p))
        shaped: Tensor = warpers(torch.zeros(1, 1, dtype=torch.long), logits[None])  # type: ignore[arg-type]
        return shaped[0].softmax(-1)


def replay(variant: str, **settings: Any) -> Replay:
    values = Settings(**{"max_new_tokens": 3 * WINDOW, "seed": 3, **settings})
    ids = prompt(WINDOW - 3)
    return Replay(variant, ids, values, run(pair(variant, "model", noise=NOISE), ids, values))


def logp(logits: Tensor, token: int) -> float:
    return float(logits.log_softmax(-1)[token])


@pytest.mark.parametrize(
    ("variant", "slim_kv", "temperature"),
    [
        ("llama", "shared", 1.0),
        ("llama", "own", 0.0),
        ("qwen3-window", "shared", 0.0),
        ("qwen3-window", "own", 1.0),
    ],
)
def test_logged_probabilities_are_those_of_the_models(variant: str, slim_kv: str, temperature: float) -> None:
    made = replay(variant, **VIA, slim_kv=slim_kv, temperature=temperature)
    q, p = model(variant), draft_model(variant, torch.float64, "sdpa", NOISE)
    seen = dict.fromkeys(("draft", "slim", "full"), 0)
    for row in made.trace.tokens:
        if row.source == "draft":
            logits = made.logits(p, row)
            top = logits.log_softmax(-1).topk(2).values
            assert row.logp_draft == pytest.approx(logp(logits, row.token_id), abs=1e-9)
            assert row.top2_margin == pytest.approx(float(top[0] - top[1]), abs=1e-9)
            assert row.entropy_draft == pytest.approx(
                float(torch.distributions.Categorical(logits=logits).entropy()), abs=1e-9
            )
            seen["draft"] += 1
        if row.logp_slim is not None:
            slim = made.slim_logits(row)
            assert row.logp_slim == pytest.approx(logp(slim, row.token_id), abs=1e-9)
            if row.slim_ratio is not None:
                assert row.slim_ratio == pytest.approx(
                    float((slim[row.token_id] - slim.max()).exp()), abs=1e-9
                )
            seen["slim"] += 1
        if row.logp_full is not None and (row.source == "draft" or row.emitted):
            assert row.logp_full == pytest.approx(logp(made.logits(q, row), row.token_id), abs=1e-9)
            seen["full"] += 1
    assert min(seen.values()) > 5


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_audit_is_q_s_view_of_the_final_text(slim_kv: str) -> None:
    made = replay("llama", **VIA, slim_kv=slim_kv, temperature=1.0, top_k=30, debt_cap=0)
    q = model("llama")
    text = made.ids + made.trace.token_ids
    logits = recompute(q, text)[0]
    audited = [row for row in made.trace.tokens if row.audit_rank is not None]
    assert [row.out_pos for row in audited] == list(range(len(made.trace.token_ids)))
    assert any(row.audit_kl for row in audited)
    for row in audited:
        assert row.out_pos is not None
        mine = logits[len(made.ids) + row.out_pos - 1]
        assert row.audit_logp == pytest.approx(logp(mine, row.token_id), abs=1e-9)
        assert row.audit_rank == int((mine > mine[row.token_id]).sum())
        if row.source == "draft":
            assert row.p_used is not None
            odds = float(made.processed(mine)[row.token_id]) / row.p_used
            assert row.audit_accept == pytest.approx(min(1.0, odds), abs=1e-9)
        if is_slim_decided(row):
            slim = made.slim_logits(row).log_softmax(-1)
            full = mine.log_softmax(-1)
            assert row.audit_kl == pytest.approx(float((full.exp() * (full - slim)).sum()), abs=1e-9)
        else:
            assert row.audit_kl is None


@pytest.mark.parametrize(
    ("method", "shape"), [*(("via-sd", shape) for shape in SHAPES), ("sd", "temperature"), ("sd", "all")]
)
def test_tokens_are_tested_against_the_row_they_were_drawn_from(method: str, shape: str) -> None:
    """p as the drafter drew it and q as the test used it, both shaped exactly as Hugging Face shapes them."""
    way = VIA | {"alpha2": 0.1} if method == "via-sd" else {"method": "sd"}
    made = replay("qwen2", **way, **SHAPES[shape], max_new_tokens=30)
    p_model, q_model = draft_model("qwen2", torch.float64, "sdpa", NOISE), model("qwen2")
    tested = 0
    for row in made.trace.tokens:
        if row.source == "draft":
            p = made.processed(made.logits(p_model, row))[row.token_id]
            assert row.p_used == pytest.approx(float(p), abs=1e-9)
            if row.region == "C" and row.verdict != "discarded":
                q = made.processed(made.logits(q_model, row))[row.token_id]
                assert row.rand_u is not None
                assert (row.verdict == "accepted_full") == bool(row.rand_u * p < q)
                tested += 1
        elif row.verdict in SLIM_DECIDED:
            slim = made.processed(made.slim_logits(row))[row.token_id]
            assert row.p_used == pytest.approx(float(slim), abs=1e-9)
        elif row.verdict == "rewritten_full":
            draft = next(r for r in made.trace.tokens if (r.cycle, r.verdict) == (row.cycle, "rejected"))
            q = made.processed(made.logits(q_model, draft))
            rest = (q - made.processed(made.logits(p_model, draft))).clamp_min(0)
            assert row.p_used == pytest.approx(float(rest[row.token_id] / rest.sum()), abs=1e-9)
    assert tested > 5
