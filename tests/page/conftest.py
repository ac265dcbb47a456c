"""A page on toy models: the loader is given, so that no test touches the preset's weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from page.engine import Engine
from page.examples import Example
from page.limits import Limits
from page.pairs import PairStore
from page.server import Page
from page.slots import SlotTable
from page_search import LAYERS, Desk
from page_toys import endless_pair, serving
from sample_traces import via_sd_trace
from viasd_core.pair import ModelPair


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    return endless_pair()


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
    with serving(lambda preset: pair, recorded, Limits(max_prompt=100)) as served:
        yield served


@pytest.fixture
def served(pair: ModelPair, recorded: list[Example]) -> Iterator[Callable[..., tuple[Page, str]]]:
    """Launch a page of one's own; returns it and its address."""
    with ExitStack() as stack:

        def serve(loader: Callable[[str], Any] | None = None, **limits: Any) -> tuple[Page, str]:
            context = serving(loader or (lambda preset: pair), recorded, Limits(**limits))
            return stack.enter_context(context)

        yield serve


@pytest.fixture(scope="module")
def deep() -> ModelPair:
    return endless_pair(layers=LAYERS)


@pytest.fixture
def desk(make_engine: Callable[..., Engine], deep: ModelPair) -> Desk:
    return Desk(make_engine(lambda preset: deep), deep)
