"""Reading a trace must not cost an import of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import viasd_core

LIGHT = ("viasd_core", "viasd_core.trace", "viasd_core.bundle", "viasd_core.presets", "viasd_core.sources")


@pytest.mark.parametrize("module", LIGHT)
def test_importing_light_modules_leaves_torch_and_transformers_out(module: str) -> None:
    heavy = "sorted({'torch', 'transformers', 'pandas', 'gradio'} & set(sys.modules))"
    code = f"import sys, {module}; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", viasd_core.__all__)
def test_every_exported_name_is_found_where_it_is_promised(name: str) -> None:
    assert getattr(viasd_core, name).__name__ == name
    assert name in dir(viasd_core)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Preprocessor'"):
        _ = viasd_core.Preprocessor
