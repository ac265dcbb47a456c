"""Layer-mask searches behind the page: in the queue, beside decoding runs, across stops, and for whom."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from page.dimr_form import DEFAULTS, read_search
from page.dimr_runs import Searches, SearchRun
from page.dimr_tab import GONE, reader_of
from page.dimr_worker import MASK_FILE
from page.engine import Engine
from page.job import OWN, SearchJob
from page.server import Page
from page_search import ENDLESS, LAYERS, QUICK, Desk
from page_toys import endless_pair, messages, until, until_cycles, until_ended
from viasd_core.cli.dimr import PENALTIES
from viasd_core.dimr.cost import PHIS
from viasd_core.dimr.masks import read_mask
from viasd_core.errors import SettingsError
from viasd_core.pair import ModelPair


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


def test_what_masks_are_scored_on_and_which_may_be_found_is_told_in_the_form(desk: Desk) -> None:
    """Own prompts, the weights of ages, the cost and the space: what the log names is what was asked."""
    inside = "1" * 7 + "0" + "1" * (LAYERS - 8)
    values = {"own": "b c d\n\n e f g \nh i j\n", "rho": 0.6, "alpha": 0.25, "beta": 0.9, "phi": "soft"}
    run = desk.search(**values, ends=True, inside=inside, prompts=5)
    until_ended(run)
    assert run.state == "done", run.last_words
    identity = identity_of(run)
    assert identity["score"]["rho"] == 0.6
    assert identity["score"]["cost"] == {"alpha": 0.25, "beta": 0.9, "phi": "soft"}
    assert identity["space"]["ends"] is True and identity["space"]["gone"] == [7]
    assert run.found is not None and run.found["mask"][7] == "0"
    assert run.facts["texts"] == 2, "of three prompts one is held out"
    usual = desk.search(prompts=3)
    until_ended(usual)
    assert usual.facts["texts"] == 2 and identity["texts"] != identity_of(usual)["texts"]


def identity_of(run: SearchRun) -> dict[str, Any]:
    """What the first line of a search's log says it is."""
    assert isinstance(run.job, SearchJob)
    log = (Path(run.job.folder) / MASK_FILE).with_suffix(".log.jsonl")
    found: dict[str, Any] = json.loads(log.read_text("utf-8").splitlines()[0])
    return found


def test_the_penalties_offered_are_those_there_are() -> None:
    assert tuple(PHIS) == PENALTIES


def test_beta_follows_alpha_unless_told(desk: Desk) -> None:
    run = desk.search(alpha=0.2, beta=0)
    until_ended(run)
    assert identity_of(run)["score"]["cost"] == {"alpha": 0.2, "beta": 0.8, "phi": "hinge"}
    run = desk.search(alpha=0.2, beta=0.1)
    until_ended(run)
    assert run.state == "error" and "at least 1 - alpha" in run.last_words


def test_resuming_reads_only_what_may_change(desk: Desk) -> None:
    run = desk.search()
    until_ended(run)
    _, notice = desk.wiring.resume(desk.event(run), *desk.form(steps=10, inside="no mask", skip_ratio="x"))
    assert notice["text"] == ""
    until_ended(desk.found(run.id))


def test_strangers_cannot_have_more_continued_than_memory_holds(desk: Desk) -> None:
    desk = Desk(desk.engine, desk.pair, shared=True)
    _, notice = desk.wiring.start(desk.event(), "tiny", OWN, *desk.form(prompts=1000, tokens=4096))
    assert "prompts times tokens is 4096000; this page is shared, at most 8192 go" in notice["text"]


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
        ({"own": ["a"]}, "own is"),
        ({"own": "a\nb\nc", "prompts": 2}, "own has 3 prompts and prompts allows 2"),
        ({"own": "x" * 60_000}, "own has 60000 characters; at most 50000"),
        ({"rho": 1.5}, r"rho is 1\.5; give a number from 0 to 0\.99"),
        ({"phi": "cubic"}, "phi is 'cubic'; choose one of hinge"),
        ({"inside": "1021"}, "inside is '1021'; give a layer mask of 0 and 1"),
        ({"ends": 1}, "ends is 1; give true or false"),
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
