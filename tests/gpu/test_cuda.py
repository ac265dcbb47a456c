"""On a CUDA device: the CPU's tokens, few synchronisations, flat memory. Run by `make gpu-check`."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.checkpoint_files import eagle, saved, target_of
from drafters.own_files import block_parts
from drafters.runs import parts_with
from scripted import run
from toys import toy_pair
from viasd_core.decode import generate
from viasd_core.drafters.block import load as load_block
from viasd_core.drafters.eagle import load as load_eagle
from viasd_core.pair import ModelPair
from viasd_core.settings import Settings
from viasd_core.trace import Trace
from viasd_core.trace_check import check

pytestmark = pytest.mark.gpu

RUNS: dict[str, dict[str, Any]] = {
    "ar": {"method": "ar"},
    "sd": {"method": "sd"},
    "via-sd": {"method": "via-sd", "mask": "even", "skip_ratio": 0.3},
    "strict": {"method": "via-sd", "mask": "even", "skip_ratio": 0.3, "strict": True},
}
TREES: dict[str, dict[str, Any]] = {
    "block": {"method": "block"},
    "cure": {"method": "cure", "tau_margin": 3.0, "max_positions": 2},
    "cure through the tiers": {"method": "cure", "tiers": ("via-sd",), "mask": "11011101", "strict": True},
    "eagle2": {"method": "eagle2", "gamma": 3, "beam": 3, "v_max": 20},
}
PROMPT = "the man in the hat and the other one"


def on(pair: ModelPair, device: str) -> ModelPair:
    """The pair with its models moved; toys are made fresh for each test, so moving them in place is safe."""
    pair.verifier.model.to(device)  # type: ignore[arg-type]
    if pair.draft_model is not None:
        pair.draft_model.model.to(device)  # type: ignore[arg-type]
    return pair


def decoded(pair: ModelPair, **settings: Any) -> Trace:
    trace = Trace()
    ids = pair.verifier.tokenizer(PROMPT).input_ids
    for event in generate(pair, ids, Settings(max_new_tokens=48, **settings)):
        trace.add(event)
    return trace


@pytest.mark.parametrize("drafter", ["model", "lookup", "layer-skip"])
@pytest.mark.parametrize("name", list(RUNS))
def test_greedy_tokens_are_the_same_on_cuda_and_cpu(name: str, drafter: str) -> None:
    here = decoded(toy_pair(drafter=drafter), **RUNS[name])
    there = decoded(on(toy_pair(drafter=drafter), "cuda"), **RUNS[name])
    assert there.token_ids == here.token_ids


def tree_run(name: str, device: str, folder: Path) -> Trace:
    """A run with a random drafter from disk, over so few ids that some of its tokens are right."""
    pair = on(toy_pair(drafter="none", layers=8, vocab=8), device)
    target = target_of(pair)
    if name == "eagle2":
        trained = load_eagle(eagle(folder, target.config, 6, seed=5), target)
    else:
        trained = load_block(saved(folder, *block_parts(target.config, (1, 3, 5), seed=8)), target)
    return run(parts_with(pair, trained), [5, 1, 7, 3], Settings(max_new_tokens=40, **TREES[name]))


@pytest.mark.parametrize("name", list(TREES))
def test_greedy_trees_are_the_same_on_cuda_and_cpu(name: str, tmp_path: Path) -> None:
    here = tree_run(name, "cpu", tmp_path / "cpu")
    there = tree_run(name, "cuda", tmp_path / "cuda")
    assert there.token_ids == here.token_ids
    assert check(there) == []


def test_same_seed_gives_the_same_text_twice() -> None:
    pair = on(toy_pair(), "cuda")
    settings = {**RUNS["via-sd"], "temperature": 0.8, "top_p": 0.9, "seed": 5}
    assert decoded(pair, **settings).token_ids == decoded(pair, **settings).token_ids


@pytest.mark.parametrize("tracing", [True, False])
def test_the_host_waits_at_most_once_a_verifier_forward(tracing: bool) -> None:
    pair = on(toy_pair(), "cuda")
    decoded(pair, **RUNS["via-sd"])
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            ids = pair.verifier.tokenizer(PROMPT).input_ids
            settings = Settings(max_new_tokens=48, trace=tracing, **RUNS["via-sd"])
            cycles = [event.cycle for event in generate(pair, ids, settings)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    forwards = sum(row.slim_forwards + row.full_forwards + row.settle_forwards for row in cycles)
    assert 0 < len(waits) <= forwards


def test_memory_is_flat_over_cancelled_runs() -> None:
    pair = on(toy_pair(), "cuda")
    ids = pair.verifier.tokenizer(PROMPT).input_ids

    def cancelled() -> int:
        run = generate(pair, ids, Settings(max_new_tokens=200, **RUNS["via-sd"]))
        next(run)
        run.close()  # type: ignore[attr-defined]
        del run
        gc.collect()
        return torch.cuda.memory_allocated()

    first = cancelled()
    assert all(cancelled() == first for _ in range(100))
