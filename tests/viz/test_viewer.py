"""What the three strings of the viewer may contain, and that its colours stay apart."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

import colour_vision
from viz import viewer
from viz.schema import ENUMS, schema

SOURCES = sorted(viewer.STATIC.iterdir())


SCRIPTS = (viewer.script(), viewer.script(viewer.DIMR_ENTRY))


@pytest.mark.parametrize("template", [viewer.template, viewer.dimr_template])
def test_the_template_has_nothing_that_a_template_engine_acts_on(template: Callable[[], str]) -> None:
    assert not set("${}`\\@") & set(template())


@pytest.mark.parametrize(
    "parser",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc",
     "DOMParser", "createContextualFragment"],
)  # fmt: skip
def test_no_text_of_a_model_can_be_parsed_as_markup_or_code(parser: str) -> None:
    assert not any(parser in script for script in SCRIPTS)


def test_custom_events_stand_quoted_so_that_python_can_listen() -> None:
    for name in ("viewer_ready", "replay_loaded"):
        assert f'trigger("{name}"' in viewer.script()
    for name in ("dimr_start", "dimr_resume", "dimr_stop", "dimr_use", "dimr_keep"):
        assert f'trigger("{name}"' in SCRIPTS[1]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_file_keeps_to_one_job(path: object) -> None:
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert len(text.splitlines()) <= 300


def test_every_script_is_reached_from_an_entry() -> None:
    for path in viewer.STATIC.glob("*.js"):
        assert any(f"const ${path.stem} = " in script for script in SCRIPTS)
    for path in viewer.STATIC.glob("*.css"):
        assert path.stem in viewer.STYLES


def test_modules_are_scoped_and_no_module_syntax_is_left() -> None:
    assert not any(re.search(r"^(import|export)\b", script, re.MULTILINE) for script in SCRIPTS)
    assert viewer.script().index("const $dom = ") < viewer.script().index("const $main = ")


def test_every_rule_stays_inside_the_viewer() -> None:
    flat = re.sub(r"/\*.*?\*/", "", viewer.style(), flags=re.DOTALL)
    selectors = re.findall(r"([^{}]+)\{", flat)
    for selector in (part.strip() for group in selectors for part in group.split(",") if part.strip()):
        assert selector.startswith((".viasd", "@media", "active)", "reduce)")), selector


def test_the_viewer_loads_without_torch_and_gradio() -> None:
    code = (
        "import sys, viz.viewer; viz.viewer.script(); print({'torch', 'gradio', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_column_has_a_kind_the_browser_reads() -> None:
    kinds = {"int", "ints", "float", "flag", "text", "json", "hex", "alt", "int?", "float?", "enum"}
    for table in schema()["tables"]:
        for column in table["columns"]:
            assert column["kind"] in kinds
            if column["kind"] == "enum":
                assert column["values"] == ENUMS[column["name"]]
                assert all((value or "(empty)") in column["wants"] for value in column["values"])


def tier_hues() -> list[str]:
    first = viewer.style().split("}")[0]
    hues = re.findall(r"--(?:tier-[SMFRBT]|repair): (#[0-9a-f]{6});", first)
    assert len(hues) == 7
    return hues


@pytest.mark.parametrize("vision", colour_vision.SIMULATIONS)
def test_tier_hues_stay_apart_in_every_kind_of_colour_vision(vision: str) -> None:
    seen = [colour_vision.seen_lab(hue, vision) for hue in tier_hues()]
    least = min(colour_vision.difference(one, two) for one, two in itertools.combinations(seen, 2))
    assert least > 20.6
