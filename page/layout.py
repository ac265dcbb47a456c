"""The page's components. No behaviour: `wiring` connects them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from viasd_core.method_options import METHODS
from viz.viewer import template

from . import dimr_tab
from .assets import viewer_script
from .catalog import Catalog
from .examples import Example
from .forms import control, notice_line, viewer_panel
from .job import OWN
from .options import ADVANCED, BASIC, BY_NAME, LIVE, METHOD_WORDS, OPTIONS, Option

DRAFTER_WORDS = {"lookup": "prompt lookup", "layer-skip": "layers skipped", "model": "a small model"}


@dataclass(frozen=True)
class Parts:
    """Every component that has behaviour; `controls` by option name."""

    prompt: gr.Textbox
    preset: gr.Dropdown
    method: gr.Dropdown
    drafter: gr.Dropdown
    controls: dict[str, Any]
    run: gr.Button
    pause: gr.Button
    step: gr.Button
    stop: gr.Button
    example: gr.Dropdown
    notice: gr.HTML  # about the run
    form_notice: gr.HTML  # about the settings, beside them
    viewer: gr.HTML
    search: dimr_tab.SearchParts

    @property
    def form(self) -> list[Any]:
        """Inputs of a run, in the order `wiring` reads them."""
        controls = [self.controls[option.name] for option in OPTIONS]
        return [self.prompt, self.preset, self.method, self.drafter, *controls]


def build(
    catalog: Catalog,
    examples: list[Example],
    fetch_since: Callable[..., Any],
    fetch_search: Callable[..., Any],
) -> Parts:
    """Lay the page out inside the current Blocks."""
    with gr.Sidebar(position="left", width=330, elem_id="viasd-sidebar"):
        preset = gr.Dropdown(
            list(catalog.presets), value=catalog.first, label="model pair", elem_id="viasd-preset"
        )
        method = gr.Dropdown(
            [(METHOD_WORDS.get(name, name), name) for name in METHODS],
            value=catalog.presets[catalog.first].method,
            label="method",
            elem_id="viasd-method",
        )
        drafter = gr.Dropdown(
            drafter_menu(catalog, catalog.first), value=OWN, label="drafter", elem_id="viasd-drafter"
        )
        controls = _controls(catalog)
        form_notice = notice_line("viasd-form-notice")
    gr.Markdown("# VIA-SD Explorer", elem_id="viasd-title")
    with gr.Tabs(elem_id="viasd-tabs"):
        with gr.Tab("Run", id="run", render_children=True):
            with gr.Row():
                prompt = gr.Textbox(
                    catalog.prompt(catalog.first),
                    label="prompt",
                    lines=2,
                    max_lines=8,
                    max_length=catalog.limits.max_prompt,
                    scale=3,
                    elem_id="viasd-prompt",
                )
                example = gr.Dropdown(
                    [(item.title, index) for index, item in enumerate(examples)],
                    value=0 if examples else None,
                    label="recorded run",
                    info="opens at once, needs no model" if examples else "none is stored here",
                    interactive=bool(examples),
                    min_width=220,
                    scale=2,
                    elem_id="viasd-example",
                )
            with gr.Row(elem_classes="viasd-transport"):
                run = gr.Button("Run", variant="primary", elem_id="viasd-run")
                pause = gr.Button("Pause", interactive=False, elem_id="viasd-pause")
                step = gr.Button("Step", interactive=False, elem_id="viasd-step")
                stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="viasd-stop")
            notice = notice_line("viasd-notice")
            viewer = viewer_panel(template(), viewer_script(), "viasd-viewer", fetch_since)
        with gr.Tab("Layer mask", id="dimr", elem_id="viasd-dimr-tab"):
            search = dimr_tab.build(catalog, fetch_search)
    return Parts(
        prompt=prompt,
        preset=preset,
        method=method,
        drafter=drafter,
        controls=controls,
        run=run,
        pause=pause,
        step=step,
        stop=stop,
        example=example,
        notice=notice,
        form_notice=form_notice,
        viewer=viewer,
        search=search,
    )


def drafter_menu(catalog: Catalog, preset: str) -> list[tuple[str, str]]:
    """(words, value) of the drafters that fit a preset's verifier: its own first, trained ones by name."""
    own = catalog.own_drafter(preset)
    first = own or catalog.presets[preset].drafter.kind
    others = [word for word in catalog.drafters(preset) if word not in (OWN, own)]
    return [
        (f"{DRAFTER_WORDS.get(first, first)} (own)", OWN),
        *((DRAFTER_WORDS.get(word, word), word) for word in others),
    ]


def _controls(catalog: Catalog) -> dict[str, Any]:
    values, method = catalog.defaults(catalog.first), catalog.presets[catalog.first].method
    controls: dict[str, Any] = {}
    with gr.Group():
        gr.Markdown("**Act during a run**", elem_classes="viasd-group", padding=True)
        for option in LIVE:
            controls[option.name] = _control(option, values[option.name], method)
    with gr.Row():
        for name in BASIC:
            controls[name] = _control(BY_NAME[name], values[name], method)
    with gr.Accordion("Advanced", open=False):
        for option in ADVANCED:
            controls[option.name] = _control(option, values[option.name], method)
    return controls


def _control(option: Option, value: Any, method: str) -> Any:
    return control(
        option,
        value,
        info=option.info_for(method),
        interactive=option.used_by(method),
        visible=option.shown_with(method),
    )
