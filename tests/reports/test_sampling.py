"""Reports about losslessness, sampling and processors, each as a test named after its symptom."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle.models import draft_model, hf_greedy, loop_of, model, pair, prompt, run, say
from oracle.reference import recompute
from oracle.scripted import drafting, scripted_parts
from viasd_core.errors import SettingsError
from viasd_core.layers import BlockRunner
from viasd_core.live import LiveSettings
from viasd_core.method_options import refuse_unused
from viasd_core.parts import parts_of
from viasd_core.probs import Sampling, logits_to_probs
from viasd_core.settings import Settings
from viasd_core.verifier import Verifier

SD = Settings(method="sd", gamma=4, max_new_tokens=24, temperature=1.0)
VIA = Settings(gamma=4, max_new_tokens=24, temperature=1.0, mask="1011", alpha1=0.3, alpha2=0.05)


@pytest.mark.parametrize("shape", [{"top_k": 50}, {"top_p": 0.7}, {"min_p": 0.1}])
def test_drafter_reports_a_row_it_did_not_sample_from(shape: dict[str, Any]) -> None:
    """transformers #47932: the row that is tested with is cut and renormalised as the one drawn from."""
    parts = parts_of(pair("llama", "model"))
    assert parts.drafter is not None
    drafter = parts.drafter(Verifier(BlockRunner(model("llama")), 60), 60)
    loop = loop_of(pair("llama", "model"), prompt(8), SD)
    with torch.inference_mode():
        drafter.begin(prompt(8))
        draft = drafter.draft(30, Sampling(1.0, **shape), loop.run.noise)
    assert draft.logits is not None
    for row, logits, token in zip(draft.probs, draft.logits, draft.tokens, strict=True):
        raw = logits.softmax(-1)
        support = row > 0
        assert support[token]
        assert (row - raw * support / raw[support].sum()).abs().max() < 1e-12
        assert row.count_nonzero() < row.numel() // 2


def test_drafts_are_greedy_although_the_target_samples() -> None:
    """transformers #33534, #30778, #32867: two seeds draft differently, from the same rows."""
    traces = [run(pair("llama", "model"), prompt(8), SD.with_(seed=seed)) for seed in (1, 2)]
    first = [[row.token_id for row in trace.tokens if row.cycle == 0][:4] for trace in traces]
    assert first[0] != first[1]
    assert all(row.p_used is not None and row.p_used < 1 for row in traces[0].tokens if row.source == "draft")


def test_drafter_ignores_a_change_of_temperature() -> None:
    """transformers #30778: p of a drafted token follows the temperature of its own cycle."""
    live = LiveSettings(SD)
    loop = loop_of(pair("llama", "model"), prompt(8), SD, live)
    for temperature in (1.0, 0.5, 0.0):
        live.update(temperature=temperature)
        text = list(loop.run.tokens)
        event = loop.step()
        assert event.cycle.temperature == temperature
        for row in (row for row in event.rows if row.source == "draft"):
            logits = recompute(draft_model("llama", torch.float64, "sdpa", 0.06), text)[0][-1]
            law = (logits / temperature).softmax(-1) if temperature else (logits == logits.max()).double()
            assert row.p_used == pytest.approx(float(law[row.token_id]), abs=1e-9)
            text.append(row.token_id)


@pytest.mark.parametrize(("new", "drafted", "committed"), [(4, 3, 4), (5, 4, 5), (1, 0, 1), (2, 1, 2)])
def test_residual_is_drawn_behind_a_block_that_ends_at_the_limit(
    new: int, drafted: int, committed: int
) -> None:
    """transformers #28508: the bonus fits exactly, nothing is drafted or drawn beyond."""
    ids, truth = prompt(6), hf_greedy("llama", 6, 12)
    parts = drafting(parts_of(pair("llama", "none")), ids + list(truth), [9])
    trace = run(parts, ids, SD.with_(temperature=0.0, max_new_tokens=new))
    assert trace.token_ids == list(truth[:new]) and trace.finish == "length"
    assert trace.cycles[0].drafted == drafted and trace.cycles[0].committed == committed


def test_end_token_at_the_limit_is_reported_as_length() -> None:
    """transformers #28508: the last allowed token is the end-of-sequence token."""
    says = [10, 11, 12, 13, 2]
    trace = run(
        drafting(scripted_parts(says), says, [9]), says[:1], SD.with_(temperature=0.0, max_new_tokens=4)
    )
    assert trace.token_ids == says[1:] and trace.finish == "eos"


@pytest.mark.parametrize("shape", [{}, {"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 1e-3}])
def test_residual_without_mass_is_not_a_number(shape: dict[str, Any]) -> None:
    """jaymody/speculative-sampling #5, MTPLX #82: p equal to q, one-hot rows, logits of minus infinity."""
    same = pair("llama", "model", noise=0.0)
    for source, settings in ((same, SD), (same, VIA), (pair("llama", "lookup"), SD)):
        trace = run(source, prompt(5) * 2, settings.with_(**shape))
        assert len(trace.token_ids) == 24
        numbers = [row.p_used for row in trace.tokens] + [
            row.audit_logp for row in trace.tokens if row.emitted
        ]
        assert all(number is not None and math.isfinite(number) for number in numbers)
        if shape:
            assert settings is VIA or trace.token_ids == list(greedy(prompt(5) * 2))
    everything_kept = run(same, prompt(5), SD.with_(**shape)).cycles
    assert all(row.region_c_rejected == 0 for row in everything_kept)


def greedy(ids: list[int]) -> list[int]:
    return say(pair("llama", "none"), ids, "ar", max_new_tokens=24)


def test_processed_rows_survive_logits_of_minus_infinity() -> None:
    """MTPLX #82."""
    logits = torch.full((2, 9), -torch.inf, dtype=torch.float64)
    logits[:, 3] = 1.0
    for sampling in (Sampling(), Sampling(1.0), Sampling(0.5, top_k=2, top_p=0.5, min_p=0.2)):
        assert logits_to_probs(logits, sampling).tolist() == [[0.0] * 3 + [1.0] + [0.0] * 5] * 2


@pytest.mark.parametrize("drafter", ["model", "nested"])
@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_bfloat16_output_differs_by_more_than_ties(variant: str, drafter: str) -> None:
    """transformers #30413, vLLM #54506: blocks change kernels; only a near-tie may fall another way."""
    source = pair(variant, drafter, dtype=torch.bfloat16)
    plain = say(source, prompt(6), "ar", max_new_tokens=30)
    fast = say(source, prompt(6), "sd", max_new_tokens=30, gamma=4)
    split = next(
        (index for index, both in enumerate(zip(plain, fast, strict=True)) if both[0] != both[1]), None
    )
    if split is not None:
        text = torch.tensor([prompt(6) + plain[:split]])
        logits = model(variant, torch.bfloat16)(text, use_cache=False).logits[0, -1].float()
        gap = logits.max() - torch.stack([logits[plain[split]], logits[fast[split]]]).min()
        assert gap <= 8 * torch.finfo(torch.bfloat16).eps * logits.abs().max()


@pytest.mark.parametrize("option", ["repetition_penalty", "presence_penalty", "logits_processors"])
def test_penalty_is_silently_ignored(option: str) -> None:
    """vLLM #6718, #22987; TensorRT-LLM #17701; vmlx-swift #357; mlx-examples #1255: refused instead."""
    with pytest.raises(SettingsError, match=f"unknown setting {option}"):
        Settings().with_(**{option: 1.2})
    with pytest.raises(TypeError, match=option):
        Settings(**{option: 1.2})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "option"), [("ar", "gamma"), ("sd", "alpha1"), ("sd", "strict"), ("lossy-sd", "mask")]
)
def test_option_is_accepted_and_unused(method: str, option: str) -> None:
    """mlx-examples #1255."""
    with pytest.raises(SettingsError, match=option.replace("_", "-") + " is not used"):
        refuse_unused(method, {option})


@pytest.mark.parametrize("settings", [SD, VIA, SD.with_(method="ar"), SD.with_(method="lossy-sd", alpha=0.3)])
def test_seed_is_not_respected(settings: Settings) -> None:
    """vLLM #6038, #53436."""
    torch.manual_seed(1)
    first = run(pair("llama", "model"), prompt(6), settings.with_(seed=7)).token_ids
    torch.manual_seed(2)
    torch.rand(5)
    assert run(pair("llama", "model"), prompt(6), settings.with_(seed=7)).token_ids == first
    assert run(pair("llama", "model"), prompt(6), settings.with_(seed=8)).token_ids != first


def test_drawn_in_one_precision_and_tested_in_another() -> None:
    """DeepSpec #31: bfloat16 logits become one float32 row, drawn from and tested with."""
    trace = run(pair("llama", "model", dtype=torch.bfloat16), prompt(6), SD)
    drafted = [row for row in trace.tokens if row.source == "draft"]
    assert drafted
    for row in drafted:
        assert row.p_used is not None and row.logp_draft is not None
        assert row.p_used == pytest.approx(math.exp(row.logp_draft), rel=1e-5)
    assert logits_to_probs(torch.zeros(1, 4, dtype=torch.bfloat16), Sampling(1.0)).dtype == torch.float32


def test_lossy_configuration_passes_as_lossless() -> None:
    """verl-SpeCo #19: strict, the lossless VIA-SD, refuses whatever would make it lossy, at once and live."""
    ways: list[dict[str, Any]] = [
        {"temperature": 0.5},
        *({"rule_c": rule} for rule in ("lossy", "pi", "greedy")),
    ]
    for lossy in ways:
        with pytest.raises(SettingsError, match="strict"):
            Settings(strict=True, **lossy)
    live = LiveSettings(Settings(strict=True))
    with pytest.raises(SettingsError, match="strict"):
        live.update(temperature=0.5, gamma=2)
    assert live.snapshot() == LiveSettings(Settings(strict=True)).snapshot()


@pytest.mark.parametrize("settings", [SD, VIA.with_(core_thresholds=(2.0, 2.0))])
def test_every_token_is_tested_with_the_same_random_number(settings: Settings) -> None:
    """feifeibear/LLMSpeculativeSampling: the generator was seeded anew for each token."""
    trace = run(pair("llama", "model"), prompt(6), settings)
    numbers = [row.rand_u for row in trace.tokens if row.rand_u is not None]
    assert len(numbers) > 10 and len(set(numbers)) == len(numbers)
    assert min(numbers) < 0.4 and max(numbers) > 0.6


def test_sampled_runs_stop_being_exact_behind_a_rejection() -> None:
    """EAGLE #50: VIA-SD that asks q for every token draws what plain speculative decoding draws."""
    source, ids = pair("qwen3-window", "model"), prompt(6)
    lossless = run(source, ids, SD.with_(bonus="none", max_new_tokens=40))
    assert any(row.verdict == "rewritten_full" for row in lossless.tokens)
    for slim_kv in ("shared", "own"):
        settings = replace(VIA, core_thresholds=(2.0, 2.0), slim_kv=slim_kv, max_new_tokens=40)
        assert run(source, ids, settings).token_ids == lossless.token_ids
