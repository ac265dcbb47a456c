"""Table 1 of VIA-SD: rejection and speed by the number of layers, over all prompts and by data set."""

from __future__ import annotations

from typing import Any

import pytest

from bench.scripted import prompt, result, summary
from viasd_core.bench import results
from viasd_core.bench.layers_report import layers_text
from viasd_core.bench.measure import PromptRuns

AR = summary(cycles=20, c_kept=1)
LABELS = {"ar": {}, "sd": {}, "via-sd": {}, "via-sd, tiers 0.5,0.25": {"tiers": [0.5, 0.25]}}


def document(tasks: tuple[str, ...]) -> dict[str, Any]:
    """A prompt of 20 tokens for each task. `code` is answered in 4, 2, 1 and 8 seconds and `chat` in 4, 4, 2
    and 2; of four drafts examined a cycle sd loses one, via-sd two and the tiers one, on `chat` all four.
    """
    specs = [
        {"label": label, "method": label.partition(",")[0], "settings": settings}
        for label, settings in LABELS.items()
    ]
    prompts = []
    for task in tasks:
        seconds = (4.0, 2.0, 1.0, 8.0) if task == "code" else (4.0, 4.0, 2.0, 2.0)
        counts: list[dict[str, int]] = [{"c_kept": 3, "c_lost": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 1}]
        if task == "chat":
            counts = [{"c_lost": 4}] * 3
        summaries = [AR, *(summary(cycles=10, **count) for count in counts)]
        runs = {
            label: [result(range(20), time, summary=one)]
            for label, time, one in zip(LABELS, seconds, summaries, strict=True)
        }
        prompts.append(results.prompt_entry(PromptRuns(prompt(task, 3, task=task), runs), str, greedy=True))
    return results.document({}, specs, prompts, complete=True)


def rows(text: str) -> list[list[list[str]]]:
    """The cells of each table's lines, its head and rule left out."""
    tables = [part.splitlines() for part in text.split("\n\n")[1:]]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in each[2:]] for each in tables]


def test_every_data_set_has_its_rejection_and_speed_beside_the_others() -> None:
    pooled, by_task = rows(layers_text(document(("code", "chat"))))
    assert [row[:3] for row in pooled] == [
        ["sd", "2", "0.62"], ["via-sd", "3", "0.75"], ["via-sd, tiers 0.5,0.25", "4", "0.62"]
    ]  # fmt: skip
    assert by_task == [
        ["sd", "2", "0.25", "2.00", "1.00", "1.00"],
        ["via-sd", "3", "0.50", "4.00", "1.00", "2.00"],
        ["via-sd, tiers 0.5,0.25", "4", "0.25", "0.50", "1.00", "2.00"],
    ]


@pytest.mark.parametrize("tasks", [("code",), ("code", "code")])
def test_one_data_set_needs_no_columns_of_its_own(tasks: tuple[str, ...]) -> None:
    assert len(rows(layers_text(document(tasks)))) == 1


def test_nothing_is_said_without_several_slim_verifiers() -> None:
    whole = document(("code", "chat"))
    whole["methods"] = [entry for entry in whole["methods"] if "tiers" not in entry["label"]]
    assert layers_text(whole) == ""
