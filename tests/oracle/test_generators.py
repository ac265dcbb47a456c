"""Runs share nothing but the models, end cleanly wherever they are left, and hand out plain values."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

import toys
from oracle.models import DRAFTERS, VARIANTS, hf_greedy, loop_of, model, pair, prompt, run, say
from viasd_core.decode import decode, generate
from viasd_core.errors import PromptError
from viasd_core.layers import BlockRunner
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair
from viasd_core.parts import parts_of
from viasd_core.settings import Settings
from viasd_core.slots import SlotCache
from viasd_core.tiers import PREFILL_CHUNK
from viasd_core.trace import CycleEvent

VIA = Settings(max_new_tokens=30, mask="1011", alpha1=0.2, alpha2=0.02)
SAMPLED = VIA.with_(temperature=1.0, seed=5)
PLAIN = (int, float, str, bytes, bool, type(None))


def timeless(event: CycleEvent) -> CycleEvent:
    """The event without its clock readings."""
    return replace(
        event,
        cycle=replace(event.cycle, t_start_us=0, phase_us={}, tier_us=()),
        rows=tuple(replace(row, t_us=0) for row in event.rows),
        events=tuple(replace(row, t_us=0) for row in event.events),
    )


def jobs() -> list[tuple[ModelPair, list[int], Settings]]:
    """Runs of every kind, several over the same models."""
    return [
        (pair("llama", "model"), prompt(7), SAMPLED),
        (pair("llama", "model"), prompt(11), SAMPLED.with_(slim_kv="own")),
        (pair("llama", "nested"), prompt(7), VIA),
        (pair("llama", "nested"), prompt(9), VIA.with_(strict=True)),
        (pair("llama", "own"), prompt(7), Settings(method="sd", max_new_tokens=30, temperature=1.0)),
        (pair("llama", "lookup"), prompt(7) * 3, Settings(method="sd", max_new_tokens=30)),
        (pair("llama", "none"), prompt(7), Settings(method="ar", max_new_tokens=30, temperature=1.0)),
    ]


def test_interleaved_runs_give_what_each_gives_alone() -> None:
    alone = [[timeless(event) for event in generate(*job)] for job in jobs()]
    together: list[list[CycleEvent]] = [[] for _ in alone]
    running: dict[int, Iterator[CycleEvent]] = {index: generate(*job) for index, job in enumerate(jobs())}
    dice = random.Random(0)
    while running:
        index = dice.choice(list(running))
        event = next(running[index], None)
        if event is None:
            del running[index]
        else:
            together[index].append(timeless(event))
    assert together == alone


def test_closing_a_run_frees_its_slots() -> None:
    events = generate(pair("llama", "own"), prompt(7), VIA)
    next(events)
    frame: Any = events.gi_frame  # type: ignore[attr-defined]
    verifier = frame.f_locals["loop"].run.verifier
    slots, tier = weakref.ref(verifier.stack.slots), weakref.ref(verifier)
    del frame, verifier
    assert slots() is not None
    events.close()  # type: ignore[attr-defined]
    gc.collect()
    assert slots() is None and tier() is None


@pytest.mark.parametrize("how", ["drop", "close", "finish", "throw"])
def test_no_way_to_leave_a_run_keeps_slots(how: str) -> None:
    gc.collect()
    before = slot_caches()
    events: Any = generate(pair("llama", "nested"), prompt(7), VIA)
    next(events)
    assert slot_caches() > before
    if how == "close":
        events.close()
    elif how == "finish":
        assert list(events)[-1].finish == "length"
    elif how == "throw":
        with pytest.raises(KeyboardInterrupt):
            events.throw(KeyboardInterrupt)
    else:
        del events
    gc.collect()
    assert slot_caches() == before


def slot_caches() -> int:
    return sum(type(thing) is SlotCache for thing in gc.get_objects())


def test_a_hundred_cancelled_runs_leave_no_tensor_behind() -> None:
    source = pair("llama", "model")

    def cancel(seed: int) -> None:
        events: Any = generate(source, prompt(3), SAMPLED.with_(seed=seed, gamma=1))
        for _ in range(2 if seed % 10 == 0 else 1):
            next(events)
        events.close()

    cancel(0)
    before = tensors()
    for seed in range(100):
        cancel(seed)
    assert tensors() == before


def tensors() -> tuple[int, int]:
    """Live tensors and their elements."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return len(found), sum(tensor.numel() for tensor in found)


@pytest.mark.parametrize("job", range(len(jobs())))
def test_events_hold_plain_values_only(job: int) -> None:
    for event in generate(*jobs()[job]):
        assert foreign(event) == []


def test_foreign_values_would_be_seen() -> None:
    event = next(iter(generate(*jobs()[0])))
    planted = replace(event, cycle=replace(event.cycle, phase_us={"draft": torch.tensor(1)}))  # type: ignore[dict-item]
    assert len(foreign(planted)) == 1


def foreign(value: Any) -> list[Any]:
    """Everything inside that is not a number, text, bytes, or a container or row of those."""
    if type(value) in PLAIN:
        return []
    if is_dataclass(value):
        return [bad for field in fields(value) for bad in foreign(getattr(value, field.name))]
    if type(value) is dict:
        return [bad for item in value.items() for bad in foreign(item)]
    if type(value) in (tuple, list):
        return [bad for item in value for bad in foreign(item)]
    return [value]


def test_events_are_never_changed_after_they_were_yielded() -> None:
    kept, copies = [], []
    for event in generate(*jobs()[3]):
        kept.append(event)
        copies.append(copy.deepcopy(event))
    assert kept == copies


def test_a_reader_may_change_what_it_was_given() -> None:
    source, ids, settings = jobs()[3]
    expected = [timeless(event) for event in generate(source, ids, settings)]
    ids, seen = list(ids), []
    for event in generate(source, ids, settings):
        seen.append(timeless(event))
        event.cycle.phase_us.clear()
        ids.clear()
    assert seen == expected


def test_weights_and_config_are_untouched() -> None:
    made = model("qwen3-window")
    before = {name: weight.clone() for name, weight in made.state_dict().items()}
    config, layers = made.config.to_dict(), list(made.model.layers)
    for drafter in DRAFTERS:
        run(pair("qwen3-window", drafter), prompt(5), VIA)
    assert made.config.to_dict() == config and list(made.model.layers) == layers
    assert all(torch.equal(weight, before[name]) for name, weight in made.state_dict().items())


def test_knobs_of_one_run_do_not_reach_another() -> None:
    source, ids = pair("llama", "model"), prompt(7)
    expected = run(source, ids, VIA).token_ids
    live = LiveSettings(VIA)
    turned, other = loop_of(source, ids, VIA, live), loop_of(source, ids, VIA)
    live.update(gamma=1, alpha1=1.0, alpha2=1.0, skip_ratio=0.1, temperature=1.0)
    for loop in (turned, other):
        while loop.step().finish is None:
            assert len(loop.run.tokens) <= len(ids) + 30
    assert other.run.tokens[len(ids) :] == expected != turned.run.tokens[len(ids) :]


def short_context(variant: str, n_ctx: int) -> ModelPair:
    """A pair whose drafter was made for fewer positions than its verifier."""
    source = pair(variant, "model")
    assert source.draft_model is not None
    made = copy.deepcopy(source.draft_model.model)
    made.config.max_position_embeddings = n_ctx
    return replace(source, draft_model=toys.loaded(made, "draft"))


@pytest.mark.parametrize("length", [5, 19, 20, 21, 30])
@pytest.mark.parametrize("settings", [Settings(method="sd"), Settings(mask="even", strict=True)])
def test_text_outgrowing_the_drafter_goes_on_with_a_notice(settings: Settings, length: int) -> None:
    source, new = short_context("llama", 20), 28
    trace = run(source, prompt(length), settings.with_(max_new_tokens=new))
    assert trace.token_ids == list(hf_greedy("llama", length, new))
    notices = [event for event in trace.events if event.key == "drafter"]
    assert len(notices) == 1 and "drafter's context" in notices[0].new
    assert all(row.drafted == 0 for row in trace.cycles if row.cycle >= notices[0].cycle)
    assert any(row.drafted for row in trace.cycles) == (length <= 20)


METHODS = {
    "ar": Settings(method="ar"),
    "sd": Settings(method="sd"),
    "strict": Settings(mask="even", strict=True),
}


@pytest.mark.parametrize("drafter", ["model", "lookup", "nested", "own"])
@pytest.mark.parametrize("method", METHODS)
def test_prompts_up_to_the_context(method: str, drafter: str) -> None:
    n_ctx = 24
    source = pair("llama", drafter)
    made = copy.deepcopy(model("llama"))
    made.config.max_position_embeddings = n_ctx
    source = replace(source, verifier=toys.loaded(made))
    settings = METHODS[method].with_(max_new_tokens=40)
    for length in (1, 2, n_ctx - 3, n_ctx - 2, n_ctx - 1):
        trace = run(source, prompt(length), settings)
        assert trace.token_ids == list(hf_greedy("llama", length, n_ctx - length))
        assert trace.finish == "context"
    for length in (n_ctx, n_ctx + 1, 3 * n_ctx):
        with pytest.raises(PromptError, match=f"{length} tokens long .* holds {n_ctx}"):
            generate(source, prompt(length), settings)
    trace = run(source, prompt(n_ctx - 4), settings.with_(max_new_tokens=4))
    assert trace.finish == "length" and len(trace.token_ids) == 4


@pytest.mark.parametrize("length", [PREFILL_CHUNK - 1, PREFILL_CHUNK, PREFILL_CHUNK + 1, PREFILL_CHUNK + 2])
def test_prompts_around_a_prefill_chunk(length: int) -> None:
    made = copy.deepcopy(model("qwen2-window"))
    made.config.max_position_embeddings = 1024
    runner = BlockRunner(made)
    parts = replace(parts_of(pair("qwen2-window", "nested")), runner=runner)
    assert say(parts, prompt(length), "sd", max_new_tokens=9) == list(hf_greedy("qwen2-window", length, 9))


@pytest.mark.parametrize("variant", VARIANTS)
def test_prompts_of_many_chunks(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viasd_core.tiers.PREFILL_CHUNK", 8)
    for length in (7, 8, 9, 10, 25):
        said = say(
            pair(variant, "own"), prompt(length), "via-sd", strict=True, slim_kv="own", max_new_tokens=9
        )
        assert said == list(hf_greedy(variant, length, 9))


def test_an_empty_prompt_starts_from_the_start_token_or_is_refused() -> None:
    source = pair("llama", "none")
    start = source.verifier.tokenizer.bos_token_id
    plain = Settings(method="ar", max_new_tokens=6)
    assert run(source, [], plain).token_ids == run(source, [start], plain).token_ids
    with pytest.raises(PromptError, match="empty"):
        decode(replace(parts_of(source), bos_id=None), [], plain)


@pytest.mark.parametrize("bad", [-1, toys.VOCAB, 10**6])
def test_ids_outside_the_vocabulary_are_refused_before_anything_runs(bad: int) -> None:
    with pytest.raises(PromptError, match=f"token id {bad}"):
        generate(pair("llama", "none"), [5, bad], Settings(method="ar"))
