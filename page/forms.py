"""Form controls made from options, and the line below a form that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import gradio as gr

from .assets import STATIC, notice_script, plotly_url
from .options import Option


def control(option: Option, value: Any, *, info: str = "", interactive: bool = True, **more: Any) -> Any:
    """The component that holds an option's value; `info` replaces the option's own."""
    common: dict[str, Any] = {
        "label": option.label,
        "info": info or option.info or None,
        "interactive": interactive,
        "elem_id": f"viasd-{option.name}",
        **more,
    }
    if option.kind == "slider":
        return gr.Slider(option.low, option.high, value, step=option.step, **common)
    if option.kind == "choice":
        return gr.Dropdown(list(option.choices), value=option.shown(value), **common)
    if option.kind == "switch":
        return gr.Checkbox(bool(value), **common)
    if option.kind in ("tiers", "bits"):
        return gr.Textbox(option.shown(value), max_lines=1, max_length=option.longest, **common)
    if option.kind == "lines":
        return gr.Textbox(value, lines=3, max_lines=8, max_length=option.longest, **common)
    common = {"min_width": 100, **common}
    return gr.Number(value, precision=0 if option.whole else None, step=option.step, **common)


def notice_line(elem_id: str) -> gr.HTML:
    """A line of the page's own words; it holds text only, whatever is put in."""
    return gr.HTML(
        value={"text": "", "level": "info"},
        html_template=(STATIC / "notice.html").read_text("utf-8"),
        js_on_load=notice_script(),
        apply_default_css=False,
        padding=False,
        elem_id=elem_id,
        elem_classes="viasd-notice-box",
    )


def viewer_panel(template: str, script: str, elem_id: str, fetch_since: Any, **props: Any) -> gr.HTML:
    """A viewer of ours: `script` builds it into `template` and fetches what it missed by `fetch_since`."""
    return gr.HTML(
        value=None,
        html_template=template,
        js_on_load=script,
        apply_default_css=False,
        padding=False,
        elem_id=elem_id,
        plotly_url=plotly_url(),
        server_functions=[fetch_since],
        **props,
    )
