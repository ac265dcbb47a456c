"""The viewer as three strings for one HTML component: a static template, its script and its style sheet.

The sources are real files under static/. Scripts are ES modules; because a component's script is one piece of
text, they are joined here in dependency order, each in a scope of its own, imports turned into constants. No
data of a run passes through any of the three.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from .schema import schema

STATIC = Path(__file__).resolve().parent / "static"
ENTRY = "main"
DIMR_ENTRY = "dimr_panel"
STYLES = ("base", "layout", "text", "panels", "dimr", "modes", "tree")
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)
_NAME = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)


@cache
def template() -> str:
    """The mount point. It holds no braces, dollars or backslashes, which a template engine would act on."""
    return (STATIC / "viewer.html").read_text(encoding="utf-8")


@cache
def dimr_template() -> str:
    """The mount point of the layer-mask panel, likewise."""
    return (STATIC / "dimr.html").read_text(encoding="utf-8")


@cache
def script(entry: str = ENTRY) -> str:
    """The body of the function that runs when the component is mounted, given element, trigger, props, ...

    `entry` is the module whose `mount` is called: the viewer's, or the layer-mask panel's.
    """
    parts = [f"const SCHEMA = {json.dumps(schema(), ensure_ascii=True)};"]
    parts += [_as_scope(name) for name in _in_order(entry)]
    parts.append(
        f"${entry}.mount({{element, trigger, props,"
        " server: typeof server === 'undefined' ? null : server,"
        " watch: typeof watch === 'undefined' ? null : watch});"
    )
    return "(() => {\n'use strict';\n" + "\n".join(parts) + "\n})();\n"


@cache
def style() -> str:
    return "\n".join((STATIC / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)


def _source(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")


def _in_order(name: str, done: tuple[str, ...] = (), above: tuple[str, ...] = ()) -> tuple[str, ...]:
    """`name` and the modules it imports, each after those it needs."""
    if name in above:
        raise ValueError(f"the scripts import each other in a circle: {' -> '.join((*above, name))}")
    for _, needed in _IMPORT.findall(_source(name)):
        done = _in_order(needed, done, (*above, name))
    return done if name in done else (*done, name)


def _as_scope(name: str) -> str:
    """A module as a function called at once, so that its private names stay private."""
    source = _source(name)
    exports = ", ".join(_NAME.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = $\2;\n", source)).strip()
    return f"const ${name} = (() => {{\n{body}\nreturn {{{exports}}};\n}})();"
