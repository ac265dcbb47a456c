"""Whatever is decoded, and whichever knobs are turned meanwhile, the recorded trace holds together."""

from __future__ import annotations

import random

import pytest

from oracle.models import DRAFTERS, VARIANTS, pair, prompt
from oracle.test_rows import random_settings, turn_a_knob
from viasd_core.live import LiveSettings
from viasd_core.recording import record
from viasd_core.trace import CycleEvent
from viasd_core.trace_check import check


def trace_holds(case: int) -> None:
    dice = random.Random(case)
    settings = random_settings(dice)
    if dice.random() < 0.5:
        settings = settings.with_(stop=(dice.choice(["a", "t", "\n", "1"]),))
    live, shown = LiveSettings(settings), ""

    def follow(event: CycleEvent) -> None:
        nonlocal shown
        shown = shown[: len(shown) - event.text_retract] + event.text
        if dice.random() < 0.4:
            turn_a_knob(dice, live, settings.strict)

    source = pair(dice.choice(list(VARIANTS)), dice.choice([name for name in DRAFTERS if name != "none"]))
    ids = prompt(dice.randrange(1, 20), case)
    trace = record(source, "text", settings, prompt_ids=ids, live=live, on_event=follow)
    assert check(trace) == []
    assert shown == trace.text
    assert trace.run["complete"] and len(trace.token_ids) <= settings.max_new_tokens


@pytest.mark.parametrize("case", range(24))
def test_a_recorded_run_does_not_contradict_itself(case: int) -> None:
    trace_holds(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(24, 224))
def test_none_of_many_recorded_runs_contradicts_itself(case: int) -> None:
    trace_holds(case)
