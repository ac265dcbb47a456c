"""Reports about streamed text, each as a test named after its symptom."""

from __future__ import annotations

from typing import Any

import pytest

import toys
from oracle.models import run
from oracle.scripted import another, drafting, scripted_parts
from viasd_core.decode import decode
from viasd_core.parts import Parts
from viasd_core.settings import Settings

TEXTS = (
    "family \U0001f469\u200d\U0001f469\u200d\U0001f467 and more",
    "한국어 문장",
    "עברית בבוקר",
    "the hand on the other",
)
PROMPT = [10, 11, 12]
RUNS: dict[str, dict[str, Any]] = {
    "ar": {"method": "ar"},
    "one-at-a-time": {"method": "sd", "gamma": 1, "bonus": "none"},
    "sd": {"method": "sd", "gamma": 5},
    "via-sd": {"mask": "even", "gamma": 4},
    "strict": {"mask": "even", "gamma": 4, "strict": True},
}


def saying(text: str, slim_is_wrong_at: int | None = None) -> tuple[Parts, list[int]]:
    """Parts that say `text`, and its ids; drafts err now and then, q' agrees with q except at one place."""
    ids = toys.toy_tokenizer()(text).input_ids
    script = [*PROMPT, *ids, toys.EOS_ID]
    slim = list(script)
    drafted = list(script)
    if slim_is_wrong_at is not None:
        place = len(PROMPT) + slim_is_wrong_at
        slim[place] = drafted[place] = another(script[place])
    return drafting(scripted_parts(script, slim=slim), drafted, [2, 9, 0, 1, 9]), ids


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("way", RUNS)
def test_characters_split_over_tokens_are_streamed_broken(way: str, text: str) -> None:
    """ferrox #124, exo #1691."""
    parts, ids = saying(text)
    trace = run(parts, PROMPT, Settings(max_new_tokens=100, **RUNS[way]))
    assert trace.token_ids == [*ids, toys.EOS_ID]
    assert trace.text == text
    assert streamed(parts, Settings(max_new_tokens=100, **RUNS[way])) == text


@pytest.mark.parametrize("text", TEXTS)
def test_retracted_text_stays_on_the_screen(text: str) -> None:
    """exo #1691, under strict: tokens taken back inside a character leave whole characters behind."""
    ids = toys.toy_tokenizer()(text).input_ids
    settings = Settings(max_new_tokens=100, mask="even", gamma=3, strict=True, debt_cap=6)
    for wrong in range(0, len(ids), 3):
        parts, _ = saying(text, slim_is_wrong_at=wrong)
        trace = run(parts, PROMPT, settings)
        assert trace.text == text
        assert any(row.verdict in ("retracted", "discarded") for row in trace.tokens)
        assert streamed(parts, settings) == text


def streamed(parts: Parts, settings: Settings) -> str:
    """What a reader of the events sees at the end; no piece may hold half a character."""
    shown = ""
    for event in decode(parts, PROMPT, settings):
        shown = shown[: len(shown) - event.text_retract] + event.text
        assert "�" not in shown
    return shown


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("way", RUNS)
def test_token_chips_lose_spaces_or_bytes(way: str, text: str) -> None:
    """Decoding ids one by one drops leading spaces: chips put together are the text."""
    parts, _ = saying(text)
    trace = run(parts, PROMPT, Settings(max_new_tokens=100, **RUNS[way]))
    shown = [row for row in trace.emitted if row.shown]
    assert "".join(row.text for row in shown) == text
    assert b"".join(row.data for row in shown).decode() == text
    assert [row.shown for row in trace.emitted] == [True] * len(shown) + [False]
