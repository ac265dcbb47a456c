"""A page on toy models: the loader is given, so that no test touches the preset's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import toys
from page.engine import Engine
from page.examples import Example
from page.limits import Limits
from page.pairs import PairStore
from page.server import Page, close, launch, make_page
from page.slots import SlotTable
from sample_traces import via_sd_trace
from viasd_core.pair import ModelPair


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    """Never ends by itself, so that a test can count on a run being under way."""
    made = toys.toy_pair(noise=0.01)
    return replace(made, verifier=replace(made.verifier, eos_ids=frozenset()))


@pytest.fixture
def make_engine(pair: ModelPair) -> Iterator[Callable[..., Engine]]:
    """An engine with slots of its own; keywords go to `Limits`."""
    engines: list[Engine] = []

    def make(loader: Callable[[str], Any] | None = None, **limits: Any) -> Engine:
        engine = Engine(PairStore(loader or (lambda preset: pair)), Limits(**limits), table=SlotTable(8))
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    path = tmp_path_factory.mktemp("traces") / "recorded.zip"
    via_sd_trace().save(path)
    return [Example("four cycles, every tier", path)]


@pytest.fixture(scope="module")
def shared(pair: ModelPair, recorded: list[Example]) -> Iterator[tuple[Page, str]]:
    """One page for tests that leave nothing behind, and its address."""
    page = make_page(Limits(max_prompt=100), loader=lambda preset: pair, shown=recorded)
    _, address, _ = launch(page, block=False)
    yield page, address
    close(page)


@pytest.fixture
def served(pair: ModelPair, recorded: list[Example]) -> Iterator[Callable[..., tuple[Page, str]]]:
    """Launch a page; returns it and its address."""
    pages: list[Page] = []

    def serve(loader: Callable[[str], Any] | None = None, **limits: Any) -> tuple[Page, str]:
        page = make_page(Limits(**limits), loader=loader or (lambda preset: pair), shown=recorded)
        pages.append(page)
        _, address, _ = launch(page, block=False)
        return page, address

    yield serve
    for page in pages:
        close(page)
