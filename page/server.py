"""The whole page put together, and how it is launched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from viz.wire import Message

from . import assets, dimr_tab, hardware
from .api import Api
from .catalog import Catalog
from .dimr_api import SearchApi
from .dimr_runs import Searches
from .engine import Engine
from .examples import Example, examples
from .layout import build
from .limits import Limits
from .pairs import Loader, PairStore, load_preset_pair
from .session import Sessions
from .wiring import Wiring

GONE = "this run is no longer kept here; run it again, or import a saved trace"
CACHE_AGE = (3600, 86400)  # look every hour, delete files a day old
MAX_QUEUE = 64


@dataclass(frozen=True)
class Page:
    """The Blocks and what stands behind it."""

    demo: gr.Blocks
    engine: Engine
    sessions: Sessions
    searches: Searches


def make_page(
    limits: Limits | None = None,
    *,
    preset: str = "tiny",
    max_new_tokens: int | None = None,
    loader: Loader = load_preset_pair,
    shown: list[Example] | None = None,
) -> Page:
    """Build the page; `loader` turns a preset's name into a loaded pair. Raises SettingsError."""
    limits = limits or hardware.space_limits(Limits.from_environment())
    shown = examples() if shown is None else shown
    catalog = Catalog(limits, preset, max_new_tokens)
    wrap = functools.partial(hardware.on_lent_gpu, limits=limits)
    engine = Engine(PairStore(loader), limits, wrap=wrap)
    sessions = Sessions(lambda run: engine.stop(run, "the tab was closed"))
    searches = Searches()
    with gr.Blocks(
        title="VIA-SD Explorer", analytics_enabled=False, delete_cache=CACHE_AGE, fill_width=True
    ) as demo:
        parts = build(catalog, shown, reader_of(sessions), dimr_tab.reader_of(searches))
        Wiring(engine, sessions, catalog, shown).connect(demo, parts)
        searching = dimr_tab.SearchWiring(engine, sessions, searches, catalog)
        searching.connect(parts.search, parts.preset, parts.drafter, parts.controls["mask"])
        Api(engine, sessions, catalog, shown).connect()
        SearchApi(searching).connect()
    demo.queue(max_size=MAX_QUEUE)
    return Page(demo, engine, sessions, searches)


def theme() -> gr.themes.Base:
    """Gradio's own, with explanations dark enough to read (WCAG AA on both grounds)."""
    # Fonts of the reader's own system: nothing is fetched from elsewhere, and every letter has one face.
    fonts = ("system-ui", "sans-serif")
    mono = ("ui-monospace", "monospace")
    return gr.themes.Default(font=fonts, font_mono=mono).set(
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        input_placeholder_color="*neutral_500",
    )


def close(page: Page) -> None:
    """End every run and the web server."""
    page.engine.close()
    page.demo.close(verbose=False)


def reader_of(sessions: Sessions) -> Callable[[Any], Message]:
    """The viewer's way to ask for messages it has not got. Its argument comes raw from a browser."""

    def fetch_since(asked: Any) -> Message:
        asked = asked if isinstance(asked, dict) else {}
        run, last = sessions.find(asked.get("run")), asked.get("last")
        if run is None:
            return {"error": GONE}
        if isinstance(last, bool) or not isinstance(last, int) or not 0 <= last <= run.total:
            return {"error": f"the viewer asked for messages after {str(last)[:20]!r}; reload the page"}
        return run.batch(last)

    return fetch_since


def launch(page: Page, *, host: str | None = None, port: int | None = None, block: bool = True) -> Any:
    """Serve the page. Where `host` and `port` are not given, Gradio takes GRADIO_SERVER_NAME and
    GRADIO_SERVER_PORT, else the loopback interface and a free port from 7860 up.
    """
    return page.demo.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=not block,
        share=False,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        mcp_server=False,
        max_file_size="20mb",
        footer_links=["api"],
        theme=theme(),
        css=assets.css(),
        app_kwargs={"routes": assets.routes()},
        quiet=not block,
    )
