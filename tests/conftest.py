"""Shared fixtures: tiny random models in float64, built by `toys`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, sync_playwright

import toys
from page_driver import CHROMIUM_FLAGS
from viasd_core.pair import ModelPair


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Keep tests out of the user's cache, except those that decode with the preset's real weights."""
    if "real_cache" not in request.fixturenames:
        monkeypatch.setenv("VIASD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real_cache() -> None:
    """Ask for the user's own cache, where `make setup` put the default model."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=toys.FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def toy_pair() -> Callable[..., ModelPair]:
    """The function `toys.toy_pair`, for tests that build several pairs."""
    return toys.toy_pair


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for every browser test of the process: Playwright runs only once in it."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()
