"""Layer-mask searches behind the page: in the queue, beside decoding runs, across stops, and for whom."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from page.catalog import Catalog
from page.dimr_form import DEFAULTS, read_search
from page.dimr_runs import Searches, SearchRun
from page.dimr_tab import GONE, NOT_KEPT, SearchWiring, reader_of
from page.engine import Engine
from page.job import OWN
from page.limits import Limits
from page.runs import Run
from page.server import Page
from page.session import Sessions
from page_toys import endless_pair, messages, toy_job, until, until_cycles, until_ended
from viasd_core.dimr.masks import read_mask
from viasd_core.dimr.store import default_path
from viasd_core.errors import SettingsError
from viasd_core.pair import ModelPair
from viasd_core.paths import mask_folder
from viasd_core.trace_check import check

QUICK = {"skip_ratio": 0.4, "steps": 8, "theta": 3, "prompts": 3, "tokens": 6}
ENDLESS = {**QUICK, "steps": 100_000, "patience": 100_000, "skip_ratio": 0.5}
LAYERS = 16
ME, THEM = SimpleNamespace(session_hash="me"), SimpleNamespace(session_hash="them")
Make = Callable[..., "Desk"]


class Desk:
    """What stands behind the tab, without a browser."""

    def __init__(self, engine: Engine, pair: ModelPair, *, shared: bool = False) -> None:
        self.engine, self.pair = engine, pair
        self.sessions = Sessions(engine.stop)
        self.searches = Searches()
        self.catalog = Catalog(Limits(shared=shared))
        self.wiring = SearchWiring(engine, self.sessions, self.searches, self.catalog)

    def event(self, run: SearchRun | None = None, **more: Any) -> Any:
        return SimpleNamespace(search=run.id if run else "", **more)

    def form(self, **values: Any) -> list[Any]:
        return list((DEFAULTS | QUICK | values).values())

    def search(self, **values: Any) -> SearchRun:
        value, notice = self.wiring.start(self.event(), "tiny", OWN, *self.form(**values))
        assert notice["text"] == ""
        return self.found(value["run"])

    def found(self, search_id: str) -> SearchRun:
        run = self.searches.find(search_id)
        assert run is not None
        return run

    def resume(self, run: SearchRun, *, judge: bool = False, **values: Any) -> SearchRun:
        _, notice = self.wiring.resume(self.event(run, judge=judge), *self.form(**values))
        assert notice["text"] == ""
        return self.found(run.id)

    def decode(self, **settings: Any) -> Run:
        run = Run()
        self.engine.submit(run, toy_job(**settings))
        return run

    def keep(self, run: SearchRun | None) -> dict[str, str]:
        return self.wiring.keep(self.event(run))

    def use(self, mask: str, run: SearchRun | None, who: Any = ME, preset: str = "tiny") -> Any:
        return self.wiring.use(self.event(run, mask=mask), who, preset, "auto")


@pytest.fixture(scope="module")
def deep() -> ModelPair:
    return endless_pair(layers=LAYERS)


@pytest.fixture
def desk(make_engine: Callable[..., Engine], deep: ModelPair) -> Desk:
    return Desk(make_engine(lambda preset: deep), deep)


def kept_name(desk: Desk, percent: str) -> str:
    """How the command line names a mask of the verifier that skips so much."""
    return default_path(desk.pair.verifier.identity, int(percent) / 100).name


def costs(run: SearchRun) -> list[tuple[str, float]]:
    return [(row["mask"], row["cost"]) for row in run.seen]


def test_a_search_streams_what_it_scores_and_ends_with_a_judged_mask_that_serves(desk: Desk) -> None:
    run = desk.search(curve=True)
    until_ended(run)
    assert (run.state, run.complete) == ("done", True), run.last_words
    (about,) = messages(run, "search")
    scored = messages(run, "mask")
    assert about["facts"]["planned"] == len(scored) == LAYERS - 2 + 1 + 8
    (kept,) = messages(run, "found")[-1:]
    assert kept["found"]["held_out"]["curve"]["sentence"]
    assert kept["found"]["cost"] == min(row["cost"] for row in scored if row["step"] is not None)
    path = Path(run.job.folder) / "mask.json"  # type: ignore[union-attr]
    assert read_mask(path, desk.pair.verifier.identity).bits == kept["found"]["mask"]
    until(lambda: desk.engine.idle)


def test_a_stopped_search_keeps_its_best_and_resumes_to_what_it_would_have_found(desk: Desk) -> None:
    whole = desk.search()
    until_ended(whole)
    cut = desk.search(steps=100_000)
    until(lambda: cut.steps >= 2)
    assert desk.wiring.stop(desk.event(cut))["text"] == ""
    until_ended(cut)
    assert (cut.state, cut.complete) == ("stopped", False) and cut.found is not None
    assert cut.found["held_out"] is None and "not judged" in cut.last_words
    if cut.steps <= 8:
        resumed = desk.resume(cut)
        assert resumed.id == cut.id and resumed.epoch != cut.epoch
        until_ended(resumed)
        assert costs(resumed) == costs(whole) and resumed.complete


def test_judging_scores_what_was_found_and_searches_no_further(desk: Desk) -> None:
    cut = desk.search(**ENDLESS)
    until(lambda: cut.steps >= 1)
    desk.wiring.stop(desk.event(cut))
    until_ended(cut)
    seen = costs(cut)
    judged = desk.resume(cut, judge=True, curve=True)
    until_ended(judged)
    assert costs(judged) == seen and judged.complete
    assert judged.found is not None and judged.found["held_out"]["curve"]["points"]


def test_a_stop_before_the_first_mask_says_so_and_can_be_resumed(desk: Desk) -> None:
    run = desk.search()
    desk.wiring.stop(desk.event(run))
    until_ended(run)
    assert run.state == "stopped" and run.found is None and "Resume" in run.last_words
    again = desk.resume(run)
    until_ended(again)
    assert again.complete


def test_a_search_lets_decoding_runs_go_first_and_goes_on_behind_them(desk: Desk) -> None:
    search = desk.search(**ENDLESS)
    until(lambda: search.seen)
    decoding = desk.decode(max_new_tokens=24)
    until_ended(decoding)
    assert decoding.state == "done" and not search.ended
    seen = len(search.seen)
    until(lambda: len(search.seen) > seen)
    assert any("goes on behind it" in message["text"] for message in messages(search, "status"))
    desk.engine.stop(search)
    until_ended(search)
    until(lambda: desk.engine.idle)


def test_closing_the_page_ends_a_search_that_gave_way(desk: Desk) -> None:
    search = desk.search(**ENDLESS)
    until(lambda: search.seen)
    decoding = desk.decode(max_new_tokens=4000)
    until_cycles(decoding, 1)
    desk.engine.close()
    assert search.ended and decoding.ended


def test_a_second_search_waits_for_the_first_and_each_has_its_own_folder(desk: Desk) -> None:
    first, second = desk.search(**ENDLESS), desk.search()
    until(lambda: first.seen)
    assert not second.seen and second.state in ("loading", "queued")
    desk.engine.stop(first)
    until_ended(second)
    assert second.complete
    assert first.job is not None and second.job is not None and first.job != second.job
    assert first.id not in json.dumps([*messages(second, "search"), *messages(second, "found")])


def test_a_search_is_shown_to_who_knows_its_id_also_after_a_restart(desk: Desk) -> None:
    run = desk.search()
    until_ended(run)
    fetch = reader_of(desk.searches)
    assert fetch({"run": run.id, "epoch": run.epoch, "last": run.total - 1})["from"] == run.total
    assert fetch({"run": run.id, "epoch": "another", "last": 5})["from"] == 1
    for asked in (None, {}, {"run": run.id[:-1]}, {"run": "../" * 8}, {"run": ["x"]}, {"run": "a" * 24}):
        assert fetch(asked) == {"error": GONE}
    for last in (-1, 10**9, "0", True, None):
        assert fetch({"run": run.id, "epoch": run.epoch, "last": last})["from"] == 1
    restored = Searches().find(run.id)
    assert restored is not None and restored is not run and restored.complete
    assert costs(restored) == costs(run) and restored.found == run.found
    assert restored.facts == {name: run.facts[name] for name in restored.facts} | {"preset": "tiny"}


def test_a_restored_search_can_be_resumed_and_a_damaged_one_is_gone(desk: Desk) -> None:
    run = desk.search(**ENDLESS)
    until(lambda: run.steps >= 1)
    desk.engine.stop(run)
    until_ended(run)
    desk.searches = desk.wiring.searches = Searches()
    again = desk.resume(desk.found(run.id), judge=True)
    until_ended(again)
    assert again.complete and costs(again) == costs(run)
    folder = Path(again.job.folder)  # type: ignore[union-attr]
    (folder / "mask.log.jsonl").write_text("no log\n", encoding="utf-8")
    assert Searches().find(run.id) is None
    shutil.rmtree(folder)
    assert Searches().find(run.id) is None


def test_nobody_watching_ends_a_search_and_its_best_is_kept(
    make_engine: Callable[..., Engine], deep: ModelPair
) -> None:
    desk = Desk(make_engine(lambda preset: deep, idle_seconds=0.5), deep)
    run = desk.search(**ENDLESS)
    until_ended(run)
    assert "nobody was watching" in run.last_words and run.state == "stopped"


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


def test_only_one_search_runs_in_a_tab(desk: Desk) -> None:
    run = desk.search(**ENDLESS)
    _, notice = desk.wiring.start(desk.event(run), "tiny", OWN, *desk.form())
    assert "stop it first" in notice["text"]
    _, notice = desk.wiring.resume(desk.event(run), *desk.form())
    assert "still running" in notice["text"]
    desk.engine.stop(run)
    until_ended(run)


def test_what_a_search_does_not_use_is_left_out_and_said(desk: Desk) -> None:
    asked = read_search(DEFAULTS | {"search": "greedy", "skip_ratio": 0.3})
    assert all(asked[name] is None for name in ("steps", "theta", "patience", "seed"))
    updates = dict(zip(list(DEFAULTS)[1:], desk.wiring.kind_chosen("random"), strict=True))
    assert updates["theta"]["interactive"] is False and "not used by random" in updates["theta"]["info"]
    assert updates["steps"]["interactive"] is True


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"search": "magic"}, "search is 'magic'"),
        ({"search": ""}, "choose one of dimr"),
        ({"granularity": "token"}, "granularity is 'token'; choose one of layer, sublayer"),
        ({"steps": 0}, "steps is 0; give a whole number from 1 to 100000"),
        ({"steps": 2.5}, "steps is 2.5; give a whole number"),
        ({"tokens": float("nan")}, "tokens is nan"),
        ({"skip_ratio": "0.3"}, "skip_ratio is '0.3'"),
        ({"curve": "yes"}, "curve is 'yes'"),
    ],
)
def test_a_form_that_cannot_be_right_is_refused_before_anything_is_loaded(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_search(DEFAULTS | {"skip_ratio": 0.3} | values)


def test_a_search_that_has_nothing_to_choose_from_ends_with_the_sentence(desk: Desk) -> None:
    run = desk.search(skip_ratio=0.9)
    until_ended(run)
    assert run.state == "error" and "nothing to search" in run.last_words
    until(lambda: desk.engine.idle)


def test_a_client_can_search_and_decode_with_the_mask(served: Callable[..., tuple[Page, str]]) -> None:
    from gradio_client import Client  # type: ignore[import-untyped]

    deep = endless_pair(layers=LAYERS)
    page, address = served(lambda preset: deep)
    client = Client(address, verbose=False)
    try:
        halves = client.predict(**QUICK, granularity="sublayer", curve=False, api_name="/dimr_search")
        assert halves["mask_file"]["granularity"] == "sublayer" and len(halves["mask"]) == 2 * LAYERS
        answer = client.predict(**QUICK, seed=1, api_name="/dimr_search")
        assert answer["state"] == "done" and answer["evaluations"] == answer["planned"]
        mask = answer["mask_file"]["mask"]
        assert (
            answer["mask_file"]["held_out"]["cost"] > 0
            and len(answer["mask_file"]["history"]) == LAYERS - 2 + 1 + 8
        )
        made = client.predict("the and", mask=mask, max_new_tokens=8, api_name="/generate")
        assert made["settings"]["mask"] == mask and made["new_tokens"] == 8
    finally:
        client.close()
    until(lambda: page.engine.idle)
