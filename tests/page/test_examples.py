from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from page.examples import INDEX, Example, examples, messages_of
from sample_traces import strict_trace, via_sd_trace
from viasd_core.errors import TraceError
from viasd_core.paths import PRESETS
from viasd_core.trace import Trace
from viasd_core.trace_check import check

SHIPPED = examples()


@pytest.mark.parametrize("item", SHIPPED, ids=lambda item: item.path.name)
def test_every_recorded_run_that_ships_is_whole_and_free_of_contradictions(item: Example) -> None:
    trace, messages = messages_of(item.path)
    assert check(trace) == []
    assert len(messages) == len(trace.cycles) + 2
    assert json.loads(messages[-1])["run"]["text"] == trace.text


def test_every_recorded_run_says_how_it_was_made() -> None:
    index = yaml.safe_load((PRESETS / "traces" / INDEX).read_text("utf-8"))["traces"]
    assert [entry["file"] for entry in index] == [item.path.name for item in SHIPPED]
    assert all(entry["title"] and entry["made"] for entry in index)


def test_a_folder_of_bundles_lists_those_of_the_index_first_and_passes_over_missing_ones(
    tmp_path: Path,
) -> None:
    for name in ("b", "a", "c"):
        via_sd_trace().save(tmp_path / f"{name}.zip")
    entries = [{"file": "c.zip", "title": "third"}, {"file": "gone.zip", "title": "gone"}]
    (tmp_path / INDEX).write_text(yaml.safe_dump({"traces": entries}))
    assert [item.title for item in examples(tmp_path)] == ["third", "a", "b"]
    assert examples(tmp_path / "nowhere") == []


def test_a_bundle_without_a_cycle_is_refused_in_a_sentence(tmp_path: Path) -> None:
    Trace(run={"run_id": "x"}).save(tmp_path / "empty.zip")
    with pytest.raises(TraceError, match="holds no cycle"):
        messages_of(tmp_path / "empty.zip")


def test_retracted_tokens_are_part_of_the_messages(tmp_path: Path) -> None:
    strict_trace().save(tmp_path / "strict.zip")
    assert '"verdict":"retracted"' in "".join(messages_of(tmp_path / "strict.zip")[1])
