"""Hub repositories, fetched by the real client from a small server on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch

from toys import toy_model, toy_tokenizer
from viasd_core.sources import Weights, load_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Told that there is no network, or left to find out: the client then tries five times, with pauses.
OFFLINE = ["1", pytest.param("0", marks=pytest.mark.slow)]
RESOLVE = """
import json, sys
from viasd_core.errors import ViasdError
from viasd_core.sources import parse_source, resolve
try:
    weights = resolve(parse_source(sys.argv[1]))
    print(json.dumps({"folder": str(weights.folder), "identity": weights.identity}))
except ViasdError as error:
    print(json.dumps({"error": str(error), "type": type(error).__name__}))
"""


class Hub(ThreadingHTTPServer):
    """Serves one repository, toys/model, the way the hub does; `requests` logs what was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.gated = False
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(path)
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self.answer_api(parts[2:])
        elif parts[:2] != ["toys", "model"]:
            self.refuse(404, "RepoNotFound")
        elif self.server.gated:
            self.refuse(403, "GatedRepo")
        elif parts[3] not in ("main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        else:
            self.answer_file(self.server.folder / parts[4], body)

    def answer_api(self, parts: list[str]) -> None:
        files = sorted(path for path in self.server.folder.iterdir())
        if parts[:2] != ["toys", "model"]:
            self.refuse(404, "RepoNotFound")
        elif parts[2:3] == ["tree"]:
            sizes = {f: f.stat().st_size for f in files}
            self.send([{"type": "file", "path": f.name, "size": sizes[f], "oid": etag(f)} for f in files])
        else:
            self.send({"id": "toys/model", "sha": COMMIT, "siblings": [{"rfilename": f.name} for f in files]})

    def answer_file(self, path: Path, body: bool) -> None:
        if not path.exists():
            return self.refuse(404, "EntryNotFound")
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{etag(path)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def send(self, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep requests out of the test's output; they are in `requests`."""


def etag(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "served"
    toy_model(dtype=torch.float32).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(b"never to be fetched")
    (folder / "README.md").write_text("never to be fetched", "utf-8")
    with Hub(folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(source: str, endpoint: str, home: Path, offline: str = "0") -> dict[str, Any]:
    """Resolve `source` in a process of its own, whose hub is `endpoint` and whose hub cache is in `home`."""
    env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    env |= {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": offline,
    }
    command = [sys.executable, "-c", RESOLVE, source]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("offline", OFFLINE)
def test_a_hub_model_is_fetched_once_loads_as_it_was_saved_and_then_needs_no_network(
    offline: str, hub: Hub, tmp_path: Path
) -> None:
    answer = ask("toys/model", hub.url, tmp_path / "home")
    assert answer["identity"] == {"kind": "hub", "id": "toys/model", "revision": COMMIT, "layers": 5}
    loaded = load_model(Weights(Path(answer["folder"]), answer["identity"]), "float32", "cpu")
    ids = torch.tensor([[5, 90, 17]])
    assert torch.equal(loaded.model(ids).logits, toy_model(dtype=torch.float32)(ids).logits)
    assert loaded.tokenizer("the end").input_ids == toy_tokenizer()("the end").input_ids

    fetched = {path.rsplit("/", 1)[-1] for path in hub.requests if "/resolve/" in path}
    assert fetched >= {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert not fetched & {"pytorch_model.bin", "README.md"}

    hub.shutdown()
    hub.server_close()
    assert ask("toys/model", hub.url, tmp_path / "home", offline) == answer


@pytest.mark.parametrize("offline", OFFLINE)
def test_without_network_or_copy_one_sentence_says_so(offline: str, tmp_path: Path) -> None:
    answer = ask("toys/model", "http://127.0.0.1:9", tmp_path / "home", offline)
    assert answer["type"] == "SourceError"
    assert answer["error"] == (
        "toys/model is not in the local hub cache and the hub cannot be reached; connect to the network once"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("toys/other", "toys/other was not found on the hub; check the spelling"),
        ("toys/model@v9", "toys/model has no revision 'v9' on the hub; check the part after @"),
    ],
)
def test_what_the_hub_does_not_have_is_said(source: str, message: str, hub: Hub, tmp_path: Path) -> None:
    answer = ask(source, hub.url, tmp_path / "home")
    assert answer["type"] == "SourceError"
    assert answer["error"].startswith(message)


def test_a_gated_model_tells_how_to_get_in(hub: Hub, tmp_path: Path) -> None:
    hub.gated = True
    answer = ask("toys/model", hub.url, tmp_path / "home")
    assert answer["error"].startswith("toys/model is gated: accept its licence on the hub and log in")


def test_a_repository_without_config_is_refused(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / "config.json").unlink()
    answer = ask("toys/model", hub.url, tmp_path / "home")
    assert (
        answer["error"]
        == "toys/model has no config.json on the hub, so it is not a model in Hugging Face format"
    )


def test_another_family_is_refused_before_its_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    config = json.loads((hub.folder / "config.json").read_text("utf-8"))
    (hub.folder / "config.json").write_text(json.dumps({**config, "model_type": "gemma3"}), "utf-8")
    answer = ask("toys/model", hub.url, tmp_path / "home")
    assert answer["type"] == "PairError"
    assert "toys/model has model_type 'gemma3', which is not supported" in answer["error"]
    assert not [path for path in hub.requests if path.endswith(".safetensors")]


@pytest.mark.slow
def test_a_repository_without_safetensors_is_refused(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / "model.safetensors").unlink()
    answer = ask("toys/model", hub.url, tmp_path / "home")
    assert answer["error"].startswith("toys/model has no *.safetensors file")
