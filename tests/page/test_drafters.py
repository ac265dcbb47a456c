"""Drafters on the page: what the menu offers, what a caller may name, and how one is loaded."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from gradio_client import Client  # type: ignore[import-untyped]
from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

import toys
import viasd_core.presets
import viasd_core.self_check
from drafters.runs import block_pair
from page.catalog import Catalog
from page.engine import Engine
from page.job import OWN, PairKey
from page.layout import drafter_menu
from page.limits import Limits
from page.pairs import KEPT, PairStore
from page.runs import Run
from page.server import Page
from page_toys import messages, toy_job, until, until_ended
from viasd_core.errors import PairError, SettingsError, SourceError
from viasd_core.pair import ModelPair
from viasd_core.paths import PRESETS
from viasd_core.presets import load_preset
from viasd_core.settings import Settings
from viasd_core.suffix_choice import will_measure, with_suffix
from viasd_core.trace import Trace

TRAINED = "toy-ar"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped presets, and a drafter that was trained for the verifier of `tiny`; returns its folder."""
    home = tmp_path / "presets"
    home.mkdir()
    for kind in ("pairs", "prompts", "masks"):
        (home / kind).symlink_to(PRESETS / kind)
    monkeypatch.setattr(viasd_core.presets, "PRESETS", home)
    folder = home / "drafters" / TRAINED
    save_drafter(folder, layers=2)
    return folder


def save_drafter(folder: Path, **shape: Any) -> None:
    toys.toy_model(dtype=torch.float32, **shape).save_pretrained(folder)
    toys.toy_tokenizer().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["trained_for"] = {"sha256": load_preset("tiny").verifier.sha256}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def catalog(shipped: Path) -> Catalog:
    return Catalog(Limits())


def test_the_menu_holds_the_pairs_own_drafter_first_and_every_trained_one_of_its_verifier(
    catalog: Catalog,
) -> None:
    menu = drafter_menu(catalog, "tiny")
    assert menu[0][0].endswith("(own)") and menu[0][1] == OWN
    assert (TRAINED, TRAINED) in menu
    words = [words for words, _ in menu]
    assert len(words) == len(set(words)) == len({value for _, value in menu})
    assert {"prompt lookup", "layers skipped"} <= {text.removesuffix(" (own)") for text in words}


def test_a_drafter_of_another_verifier_is_not_offered(catalog: Catalog) -> None:
    assert [value for _, value in drafter_menu(catalog, "qwen3")] == [OWN, "lookup", "layer-skip"]
    assert drafter_menu(catalog, "qwen3")[0][0] == "a small model (own)"


def test_a_preset_whose_own_drafter_is_a_trained_one_names_it_once(shipped: Path, tmp_path: Path) -> None:
    tiny = load_preset("tiny").verifier
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"verifier: {{wheel: {tiny.name}, file: {tiny.file}, sha256: {tiny.sha256}}}\n"
        f"drafter: {{kind: model, source: {{folder: {shipped}}}}}\n"
    )
    catalog = Catalog(Limits(), str(path))
    assert drafter_menu(catalog, "mine") == [
        (f"{TRAINED} (own)", OWN),
        ("prompt lookup", "lookup"),
        ("layers skipped", "layer-skip"),
    ]
    assert catalog.job("hello", "mine", "sd", TRAINED, {}).pair.drafter == TRAINED


@pytest.mark.parametrize(
    "drafter", ["/etc", "org/model", "none", "model", "", "../" + TRAINED, None, 7, ["x"]]
)
def test_a_caller_can_name_no_other_drafter(catalog: Catalog, drafter: object) -> None:
    with pytest.raises(SettingsError, match=f"there is no drafter .*; choose one of preset, .*{TRAINED}"):
        catalog.job("hello", "tiny", "sd", drafter, {})


def test_a_trained_drafter_of_another_verifier_is_refused_before_anything_loads(catalog: Catalog) -> None:
    with pytest.raises(SettingsError, match=f"there is no drafter '{TRAINED}'; choose one of preset, lookup"):
        catalog.job("hello", "qwen3", "sd", TRAINED, {})


@contextmanager
def client_of(address: str) -> Iterator[Client]:
    client = Client(address, verbose=False)
    try:
        yield client
    finally:
        client.close()


@pytest.mark.usefixtures("shipped")
def test_the_api_lists_a_trained_drafter_and_decodes_with_it(served: Callable[..., tuple[Page, str]]) -> None:
    pair = toys.toy_pair()
    _, address = served(loader=lambda preset: pair)
    with client_of(address) as client:
        listed = client.predict(api_name="/list")["drafters"]
        assert TRAINED in listed["tiny"] and TRAINED not in listed["qwen3"]
        made = {}
        for drafter in (OWN, "lookup", TRAINED):
            result = client.predict("the and", "tiny", "sd", drafter, max_new_tokens=12, api_name="/generate")
            assert result["state"] == "done", result["message"]
            made[drafter] = Trace.load(client.predict(result["run"], api_name="/export"))
        assert made[OWN].token_ids == made["lookup"].token_ids == made[TRAINED].token_ids
        drafters = {name: trace.run["models"]["drafter"] for name, trace in made.items()}
        assert drafters["lookup"] == {"kind": "lookup"}
        assert drafters[TRAINED]["model"]["layers"] == 2
        with pytest.raises(AppError, match="there is no drafter"):
            client.predict("the and", "qwen3", "sd", TRAINED, api_name="/generate")


def test_a_drafter_that_does_not_fit_is_a_sentence_and_the_pair_stays(
    served: Callable[..., tuple[Page, str]], shipped: Path
) -> None:
    save_drafter(shipped, vocab=toys.VOCAB - 20)
    _, address = served(loader=lambda preset: toys.toy_pair())
    with client_of(address) as client:
        result = client.predict("the and", "tiny", "sd", TRAINED, max_new_tokens=4, api_name="/generate")
        assert result["state"] == "error" and "do not share a vocabulary" in result["message"]
        result = client.predict("the and", "tiny", "sd", "lookup", max_new_tokens=4, api_name="/generate")
        assert result["state"] == "done"


def checks(run: Run) -> list[Any]:
    """What the browser was told of the drafter's check, at the start and at the end of a run."""
    told = messages(run, "start") + messages(run, "end")
    return [message["run"].get("drafter_check") for message in told]


def finished(engine: Engine, **settings: Any) -> Run:
    run = Run()
    engine.submit(run, toy_job(max_new_tokens=4, **settings))
    until_ended(run)
    return run


def test_a_drafter_is_checked_once_and_every_run_says_what_was_found(
    make_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"agreement": 0.03, "positions": 31, "warning": "near chance: likely made for another model"}
    checked: list[ModelPair] = []

    def check(pair: ModelPair) -> dict[str, Any]:
        checked.append(pair)
        return found

    monkeypatch.setattr(viasd_core.self_check, "self_check", check)
    engine = make_engine()
    first, second = finished(engine), finished(engine)
    assert checks(first) == checks(second) == [found, found]
    assert first.trace.run["drafter_check"] == found
    texts = [[message["text"] for message in messages(run, "status")] for run in (first, second)]
    assert ["checking the drafter on a short text" in told for told in texts] == [True, False]
    assert len(checked) == 1
    assert checks(finished(engine, method="ar")) == [None, None]


def test_a_real_check_of_a_pair_that_agrees_warns_of_nothing(make_engine: Callable[..., Engine]) -> None:
    told = checks(finished(make_engine()))[0]
    assert told["agreement"] > 0.5 and told["positions"] > 8 and told["warning"] is None


def test_the_suffix_of_a_drafter_is_measured_once_and_every_run_says_what_was_found(
    make_engine: Callable[..., Engine], tmp_path: Path
) -> None:
    measured = block_pair(tmp_path)
    engine = make_engine(loader=lambda preset: measured)
    first, second = finished(engine, method="cure"), finished(engine, method="cure")
    texts = [[message["text"] for message in messages(run, "status")] for run in (first, second)]
    assert ["comparing the drafter's suffixes on a short text" in told for told in texts] == [True, False]
    facts = [run.trace.run["suffix_choice"] for run in (first, second)]
    assert facts[0] == facts[1] and facts[0]["positions"] > 0
    assert {run.trace.run["settings"]["suffix"] for run in (first, second)} == {facts[0]["choice"]}
    named = finished(engine, method="cure", suffix="S1").trace.run
    assert "suffix_choice" not in named and named["settings"]["suffix"] == "S1"


def test_a_suffix_that_a_forked_worker_measured_is_not_measured_again(tmp_path: Path) -> None:
    measured, key, cure = block_pair(tmp_path), PairKey("toy"), Settings(method="cure")
    store = PairStore(lambda preset: measured)
    assert will_measure(store.now(key), cure)
    found = {"choice": "S2", "known_prefix": False, "agreement": {"S1": 0.1, "S2": 0.2}}
    store.remember(key, {"suffix_choice": found})
    assert not will_measure(measured, cure)
    assert with_suffix(measured, cure) == (cure.with_(suffix="S2"), {"suffix_choice": found})


class Loads:
    """Stands for the loading of verifiers and drafters; counts both, and fails where it is told to."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair = pair
        self.verifiers: list[str] = []
        self.drafters: list[str] = []
        self.broken: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()

    def verifier(self, preset: str) -> ModelPair:
        self.verifiers.append(preset)
        assert self.gate.wait(30)
        if preset in self.broken:
            raise SourceError(f"{preset} is not in the cache")
        return self.pair

    def drafter(self, pair: ModelPair, word: str) -> Any:
        self.drafters.append(word)
        if word == "crash":
            raise RuntimeError("unforeseen")
        if word in self.broken:
            raise PairError(f"{word} was made for another verifier")
        return f"{word} pair"


@pytest.fixture
def loads(pair: ModelPair) -> Loads:
    return Loads(pair)


def ask(store: PairStore, *keys: PairKey) -> list[tuple[Any, str]]:
    """The answers to requests that are made at once, in their order."""
    answers: dict[int, tuple[Any, str]] = {}
    for number, key in enumerate(keys):
        store.request(key, functools.partial(_keep, answers, number))
    until(lambda: len(answers) == len(keys))
    return [answers[number] for number in range(len(keys))]


def _keep(answers: dict[int, tuple[Any, str]], number: int, pair: Any, problem: str) -> None:
    answers[number] = (pair, problem)


def test_a_drafter_is_loaded_once_for_all_runs_and_the_verifier_once_for_all_drafters(loads: Loads) -> None:
    store = PairStore(loads.verifier, loads.drafter)
    loads.gate.clear()
    threading.Timer(0.05, loads.gate.set).start()
    keys = [PairKey("toy", word) for word in ("one", OWN, "two", "one")]
    assert ask(store, *keys) == [("one pair", ""), (loads.pair, ""), ("two pair", ""), ("one pair", "")]
    assert ask(store, *keys)[0] == (store.now(keys[0]), "")
    assert (loads.verifiers, sorted(loads.drafters)) == (["toy"], ["one", "two"])


def test_a_drafter_that_fails_is_tried_again_by_the_next_run_and_spoils_no_other(loads: Loads) -> None:
    store = PairStore(loads.verifier, loads.drafter)
    loads.broken.add("bad")
    bad, good = PairKey("toy", "bad"), PairKey("toy", "good")
    assert ask(store, bad, good) == [(None, "bad was made for another verifier"), ("good pair", "")]
    loads.broken.clear()
    assert ask(store, bad) == [("bad pair", "")]
    assert loads.verifiers == ["toy"]


def test_a_verifier_that_fails_is_tried_once_for_all_who_wait(loads: Loads) -> None:
    store = PairStore(loads.verifier, loads.drafter)
    loads.broken.add("toy")
    loads.gate.clear()
    threading.Timer(0.05, loads.gate.set).start()
    keys = [PairKey("toy", word) for word in (OWN, "one", "two")]
    assert ask(store, *keys) == [(None, "toy is not in the cache")] * 3
    assert loads.verifiers == ["toy"] and not loads.drafters


def test_an_unforeseen_failure_of_a_drafter_leaves_nobody_waiting(loads: Loads) -> None:
    store = PairStore(loads.verifier, loads.drafter)
    [(pair, problem), (other, _)] = ask(store, PairKey("toy", "crash"), PairKey("toy", "one"))
    assert pair is None and "could not be loaded (RuntimeError)" in problem
    assert other == "one pair"


def test_drafters_go_with_the_verifier_that_gives_way(loads: Loads) -> None:
    store = PairStore(loads.verifier, loads.drafter)
    for preset in ("first", *(f"other {number}" for number in range(KEPT))):
        store.now(PairKey(preset, "one"))
    store.now(PairKey("first", "one"))
    assert loads.verifiers.count("first") == loads.drafters.count("one") - KEPT == 2
