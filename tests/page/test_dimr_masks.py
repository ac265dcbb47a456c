"""A searched mask in use: by a running generation, by the next ones, and kept for all runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from page.dimr_runs import Searches
from page.dimr_tab import GONE, NOT_KEPT
from page.engine import Engine
from page_search import ENDLESS, LAYERS, Desk
from page_toys import until, until_cycles, until_ended
from viasd_core.dimr.masks import read_mask
from viasd_core.dimr.store import default_path
from viasd_core.pair import ModelPair
from viasd_core.paths import mask_folder
from viasd_core.trace_check import check


def kept_name(desk: Desk, percent: str) -> str:
    """How the command line names a mask of the verifier that skips so much."""
    return default_path(desk.pair.verifier.identity, int(percent) / 100).name


def test_a_mask_is_used_by_the_running_generation_from_its_next_cycle_and_by_the_next_ones(
    desk: Desk,
) -> None:
    search = desk.search()
    until_ended(search)
    assert search.found is not None
    mask = search.found["mask"]
    live, other = desk.decode(max_new_tokens=4000), desk.decode(max_new_tokens=4000)
    desk.sessions.add("me", live, live=True)
    desk.sessions.add("them", other, live=True)
    until_cycles(live, 2)
    menu, notice = desk.use(mask, search)
    assert menu["value"] == mask and mask in [value for _, value in menu["choices"]]
    assert "from its next cycle" in notice["text"]
    until(lambda: live.trace.cycles[-1].mask_id == f"bits:{mask}")
    cycles = len(live.trace.cycles)
    until_cycles(live, cycles + 2)
    desk.engine.stop(live)
    until_cycles(other, 3)
    desk.engine.stop(other)
    until_ended(live)
    until_ended(other)
    assert {row.mask_id for row in other.trace.cycles} == {"even:6"}, "another tab's run is left alone"
    (change,) = (row for row in live.trace.events if row.type == "param_change")
    assert (change.key, change.old, change.new) == ("mask", "even", mask)
    assert live.trace.dimr == search.rows() and not other.trace.dimr
    assert check(live.trace) == []
    assert desk.sessions.searched("me", mask) == search.rows() and not desk.sessions.searched("them", mask)


@pytest.mark.parametrize(
    ("mask", "preset", "sentence"),
    [
        ("", "tiny", "no layer mask"),
        ("0" * LAYERS, "tiny", "no layer mask"),
        ("1" * 600, "tiny", "no layer mask"),
        (["1"], "tiny", "no layer mask"),
        ("../../etc/passwd", "tiny", "no layer mask"),
        ("1011101110111011", "qwen3", "choose that model pair"),
    ],
)
def test_a_mask_that_fits_nothing_is_refused(desk: Desk, mask: Any, preset: str, sentence: str) -> None:
    search = desk.search(steps=1)
    until_ended(search)
    _, notice = desk.use(mask, search, preset=preset)
    assert sentence in notice["text"] and notice["level"] == "error"


def test_a_mask_of_another_depth_is_not_given_to_the_running_generation(desk: Desk) -> None:
    live = desk.decode(max_new_tokens=4000)
    desk.sessions.add("me", live, live=True)
    until_cycles(live, 1)
    _, notice = desk.use("101", None)
    assert "has 3 digits, the running model 16 layers" in notice["text"]
    desk.engine.stop(live)
    until_ended(live)
    assert {row.mask_id for row in live.trace.cycles} == {"even:6"}


def test_the_pages_skip_ratio_picks_the_nearest_mask_in_the_users_folder(desk: Desk) -> None:
    for ratio in (0.25, 0.5):
        search = desk.search(skip_ratio=ratio)
        until_ended(search)
        notice = desk.keep(search)
        assert (
            notice["level"] == "info" and f"kept as {kept_name(desk, f'{ratio * 100:.0f}')}" in notice["text"]
        )
    live = desk.decode(max_new_tokens=4000, mask="auto", skip_ratio=0.3)
    until_cycles(live, 1)
    desk.engine.turn_knob(live, "skip_ratio", 0.45)
    until(lambda: live.trace.cycles[-1].mask_id == kept_name(desk, "50").removesuffix(".json"))
    desk.engine.stop(live)
    until_ended(live)
    assert live.trace.cycles[0].mask_id == kept_name(desk, "25").removesuffix(".json")
    assert live.trace.run["mask"].count("0") == 4


def test_a_kept_mask_is_the_searched_one_and_takes_the_place_of_an_earlier_one(desk: Desk) -> None:
    search = desk.search(steps=1)
    until_ended(search)
    assert search.found is not None
    path = mask_folder() / kept_name(desk, "38")
    assert "in place of" not in desk.keep(search)["text"]
    assert read_mask(path, desk.pair.verifier.identity).bits == search.found["mask"]
    other = desk.search(steps=1, seed=7)
    until_ended(other)
    assert other.found is not None and "in place of the one that was there" in desk.keep(other)["text"]
    assert json.loads(path.read_text("utf-8"))["settings"]["search"]["seed"] == 7
    assert [file.name for file in mask_folder().iterdir()] == [path.name]


def test_what_cannot_be_kept_is_refused_and_the_folder_left_alone(desk: Desk, tmp_path: Path) -> None:
    assert desk.keep(None) == {"text": GONE, "level": "error"}
    run = desk.search(**ENDLESS)
    until(lambda: run.seen)
    assert "before it has ended" in desk.keep(run)["text"]
    desk.engine.stop(run)
    until_ended(run)
    search = desk.search(steps=1)
    until_ended(search)
    path = mask_folder() / kept_name(desk, "38")
    path.parent.mkdir(parents=True)
    path.write_text("my notes", encoding="utf-8")
    notice = desk.keep(search)
    assert "is left alone" in notice["text"] and path.read_text("utf-8") == "my notes"
    path.unlink()
    stored = Path(search.job.folder) / "mask.json"  # type: ignore[union-attr]
    content = json.loads(stored.read_text("utf-8"))
    stored.write_text(json.dumps(content | {"model": {"id": "../../../out/of here"}}), encoding="utf-8")
    assert "kept as of-here-r38.json" in desk.keep(search)["text"]
    assert {file for file in tmp_path.rglob("*r38.json")} == {mask_folder() / "of-here-r38.json"}
    stored.write_text("{}", encoding="utf-8")
    assert "gone or damaged" in desk.keep(search)["text"]


def test_on_a_shared_page_no_mask_is_kept_for_all_runs(
    make_engine: Callable[..., Engine], deep: ModelPair
) -> None:
    desk = Desk(make_engine(lambda preset: deep), deep, shared=True)
    search = desk.search(steps=1)
    until_ended(search)
    assert desk.keep(search) == {"text": NOT_KEPT, "level": "error"}
    assert not mask_folder().exists()


def test_a_search_over_halves_serves_a_running_generation_and_is_restored_as_one(desk: Desk) -> None:
    search = desk.search(granularity="sublayer", skip_ratio=0.25)
    until_ended(search)
    assert search.found is not None and search.complete
    mask = search.found["mask"]
    assert (len(mask), mask.count("0")) == (2 * LAYERS, LAYERS // 2)
    assert search.facts["granularity"] == "sublayer" and search.facts["layers"] == LAYERS
    assert search.facts["free"] == list(range(2, 2 * LAYERS - 2))
    restored = Searches().find(search.id)
    assert restored is not None
    assert restored.facts == {name: search.facts[name] for name in restored.facts} | {"preset": "tiny"}
    live = desk.decode(max_new_tokens=4000)
    desk.sessions.add("me", live, live=True)
    until_cycles(live, 1)
    menu, notice = desk.use(mask, search)
    assert "from its next cycle" in notice["text"]
    assert f"skips {LAYERS // 2} of {2 * LAYERS} halves of layers" in menu["choices"][-1][0]
    until(lambda: live.trace.cycles[-1].mask_id == f"bits:{mask}")
    until_cycles(live, len(live.trace.cycles) + 2)
    desk.engine.stop(live)
    until_ended(live)
    assert live.trace.dimr == search.rows() and check(live.trace) == []
    settings = desk.catalog.settings("tiny", "via-sd", {"mask": menu["value"]})
    assert settings.mask == mask
    assert "-r25-sublayer.json in the" in desk.keep(search)["text"]
