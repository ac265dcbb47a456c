"""Calibration texts: the verifier's own words, held-out prompts apart, the drafter watched meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toys import toy_pair
from viasd_core.decode import generate
from viasd_core.dimr.calibration import LONGEST_PROMPT, continue_prompts, split
from viasd_core.dimr.request import read_texts
from viasd_core.errors import DataError, SettingsError
from viasd_core.presets import Preset, load_preset
from viasd_core.settings import Settings
from viasd_core.trace import Trace

PROMPTS = ["the hat", "on and on", "an inner thing"]


@pytest.mark.parametrize("drafter", ["none", "lookup", "model", "layer-skip"])
def test_texts_are_what_plain_decoding_says(drafter: str) -> None:
    pair = toy_pair(drafter=drafter)
    found = continue_prompts(pair, PROMPTS[:2], PROMPTS[2:], tokens=9, gamma=3)
    for prompt, text in zip(PROMPTS, [*found.search, *found.held_out], strict=True):
        ids = list(pair.verifier.tokenizer(prompt).input_ids)
        trace = Trace()
        for event in generate(pair, ids, Settings(method="ar", max_new_tokens=9)):
            trace.add(event)
        assert text.ids == (*ids, *trace.token_ids) and text.prompt_tokens == len(ids)
    assert (found.drafting is None) == (drafter == "none")


def test_the_drafter_is_watched_while_it_drafts() -> None:
    perfect = toy_pair(noise=0.0)
    drafting = continue_prompts(perfect, PROMPTS[:2], PROMPTS[2:], tokens=9, gamma=3).drafting
    assert drafting is not None and drafting.acceptance == 1.0
    assert drafting.committed == 27 and drafting.cycles == 3 * 3  # 4, 4, 1 tokens a text
    assert drafting.draft_us > 0


def test_prompts_that_do_not_fit_are_left_out_and_none_left_is_a_sentence() -> None:
    pair = toy_pair()
    long = "x" * 600  # the toy's context holds 512
    found = continue_prompts(pair, [long, "the hat"], ["on"], tokens=4, gamma=2)
    assert len(found.search) == 1
    with pytest.raises(
        DataError, match=rf"none of the 1 held-out prompts has between 1 and {LONGEST_PROMPT}"
    ):
        continue_prompts(pair, ["the"], [long], tokens=4, gamma=2)


def test_other_texts_have_another_name() -> None:
    pair = toy_pair()
    digests = {
        continue_prompts(pair, [prompt], ["on"], tokens=4, gamma=2).digest() for prompt in ("the", "hat")
    }
    assert len(digests) == 2


def test_every_third_prompt_is_held_out() -> None:
    assert split(list("abcdefgh")) == (["a", "c", "d", "f", "g"], ["b", "e", "h"])
    with pytest.raises(DataError, match=r"to search on \(there are 1\) and to hold out \(0\); give"):
        split(["a"])


def test_prompts_come_from_the_preset_or_from_files(tmp_path: Path) -> None:
    tiny = load_preset("tiny")
    own, held_out = read_texts(tiny, [], [], 8)
    assert [*own, *held_out] != [] and set(own) | set(held_out) == set(tiny.prompts)
    assert not set(own) & set(held_out)
    data, others = tmp_path / "data.jsonl", tmp_path / "others.txt"
    data.write_text("".join(json.dumps({"prompt": f"p{n}"}) + "\n" for n in range(20)))
    others.write_text("p1\n\nq1\n\nq2\n\nq3")
    assert read_texts(tiny, [str(data)], [], 4) == (["p0", "p2", "p3"], ["p1"])
    assert read_texts(tiny, [str(data)], [str(others)], 6) == (["p0", "p2", "p3", "p4"], ["p1", "q1"])


def test_a_preset_without_prompts_asks_for_some() -> None:
    bare = load_preset("tiny")
    bare = Preset("bare", bare.verifier, bare.drafter)
    with pytest.raises(SettingsError, match="names no prompts; give some with --data"):
        read_texts(bare, [], [], 8)
