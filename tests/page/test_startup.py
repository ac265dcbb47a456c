from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BLOCK_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('torch', 'transformers'):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_building_the_page_does_not_touch_cuda() -> None:
    """On ZeroGPU, CUDA initialised in the main process breaks every later call."""
    code = "import sys, app, page.server; page.server.make_page(); print('torch' in sys.modules)"
    assert run_python(code).split() == ["False"]


def test_a_machine_without_torch_serves_recorded_runs_and_says_why_it_cannot_decode() -> None:
    out = run_python(
        BLOCK_TORCH
        + """
import time
from gradio_client import Client
from page.examples import examples, messages_of
from page.server import close, launch, make_page
page = make_page()
_, address, _ = launch(page, block=False)
client = Client(address, verbose=False)
answer = client.predict("hello", "tiny", "sd", max_new_tokens=4, api_name="/generate")
print(answer["state"], "|", answer["message"])
print(len(examples()), all(messages_of(item.path)[1] for item in examples()))
client.close()
close(page)
"""
    )
    state, rest = out.split("|")
    assert state.strip() == "error" and "recorded runs play without" in rest
    count, readable = out.splitlines()[-1].split()
    assert int(count) >= 1 and readable == "True"


def test_the_page_listens_on_the_loopback_interface_unless_told_otherwise() -> None:
    code = """
from page.server import close, launch, make_page
page = make_page(shown=[])
launch(page, block=False)
print(page.demo.server_name)
close(page)
"""
    assert "127.0.0.1" in run_python(code)
    assert "0.0.0.0" in run_python(code, GRADIO_SERVER_NAME="0.0.0.0")


def test_a_bad_flag_is_one_sentence_and_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "app.py", "--preset", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no preset 'nothing'") and "Traceback" not in done.stderr
