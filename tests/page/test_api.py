from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from gradio_client import Client  # type: ignore[import-untyped]
from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

from page.server import Page
from page_toys import until
from viasd_core.trace import Trace

Serve = Callable[..., tuple[Page, str]]
Shared = tuple[Page, str]


@pytest.fixture
def client_of() -> Iterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def connect(address: str) -> Client:
        clients.append(Client(address, verbose=False))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


ClientOf = Callable[[str], Client]


def named_endpoints(client: Client) -> set[str]:
    return set(client.view_api(return_format="dict", print_info=False)["named_endpoints"])


def test_only_three_endpoints_are_public(shared: Shared, client_of: ClientOf) -> None:
    _, address = shared
    client = client_of(address)
    assert named_endpoints(client) == {"/generate", "/export", "/list"}
    listing = client.predict(api_name="/list")
    assert listing["max_new_tokens"] == 1024 and "via-sd" in listing["methods"]
    assert listing["recorded"] == ["four cycles, every tier"]


def test_a_client_cannot_press_the_pages_buttons(shared: Shared, client_of: ClientOf) -> None:
    client = client_of(shared[1])
    for name in ("start", "stop", "pause", "opened", "open_example", "turn"):
        with pytest.raises(ValueError, match="Cannot find a function"):
            client.predict(api_name=f"/{name}")


def test_a_button_pressed_by_hand_without_a_run_does_nothing(shared: Shared) -> None:
    page, address = shared
    answer = httpx.post(f"{address}gradio_api/run/stop", json={"data": [], "session_hash": "guessed"})
    assert "nothing is running" in answer.text
    assert page.engine.idle


def test_generate_reports_on_the_way_and_export_gives_the_same_trace(
    shared: Shared, client_of: ClientOf
) -> None:
    _, address = shared
    client = client_of(address)
    job = client.submit("the and", "tiny", "sd", max_new_tokens=32, api_name="/generate")
    result = job.result(timeout=60)
    assert result["state"] == "done" and result["new_tokens"] == 32 == len(result["token_ids"])
    path = client.predict(result["run"], api_name="/export")
    assert sorted(zipfile.ZipFile(path).namelist()) == sorted(
        ["tokens.csv", "cycles.csv", "tree.csv", "dimr.csv", "events.csv", "run.json"]
    )
    assert Trace.load(path).token_ids == result["token_ids"]


def test_a_caller_cannot_have_more_tokens_than_the_page_makes(served: Serve, client_of: ClientOf) -> None:
    _, address = served(max_tokens=8)
    result = client_of(address).predict("the and", "tiny", "sd", max_new_tokens=10**9, api_name="/generate")
    assert result["new_tokens"] == 8


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "x" * 200}, "200 characters"),
        ({"prompt": "x", "preset": "/etc/passwd.yaml"}, "there is no preset"),
        ({"prompt": "x", "method": "magic"}, "there is no method"),
        ({"prompt": "x", "method": "sd", "alpha1": 0.5}, "not used by method 'sd'"),
        ({"prompt": "x", "strict": True, "temperature": 1.0}, "strict needs temperature 0"),
        ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": ["x"]}, "prompt"),
        ({"prompt": "x", "max_new_tokens": "many"}, "max_new_tokens"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    shared: Shared, client_of: ClientOf, arguments: dict[str, Any], sentence: str
) -> None:
    page, address = shared
    with pytest.raises(AppError, match=sentence):
        client_of(address).predict(**arguments, api_name="/generate")
    assert page.engine.idle


def test_nobody_can_export_a_run_by_guessing_and_a_gone_session_takes_its_runs_along(
    shared: Shared, client_of: ClientOf
) -> None:
    page, address = shared
    owner, other = client_of(address), client_of(address)
    run = owner.predict("the and", "tiny", "sd", max_new_tokens=4, api_name="/generate")["run"]
    for guess in ("", "x", run[:-1], run.upper(), "../" + run):
        with pytest.raises(AppError, match="there is no such run"):
            other.predict(guess, api_name="/export")
    owner.close()
    until(lambda: page.sessions.find(run) is None)
    with pytest.raises(AppError, match="there is no such run"):
        other.predict(run, api_name="/export")


def test_a_caller_that_goes_away_in_mid_run_frees_the_slot(shared: Shared, client_of: ClientOf) -> None:
    page, address = shared
    client = client_of(address)
    job = client.submit("the and", "tiny", "sd", max_new_tokens=1000, gamma=1, api_name="/generate")
    until(lambda: job.outputs())
    client.close()
    until(lambda: page.engine.idle)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/../etc/passwd",
        "../../../../etc/passwd",
        "app.py",
        "page/server.py",
        "presets/pairs/tiny.yaml",
    ],
)
def test_no_file_of_the_machine_can_be_downloaded(shared: Shared, path: str) -> None:
    """Path traversal (CVE-2023-51449 and after)."""
    _, address = shared
    answer = httpx.get(f"{address}gradio_api/file={path}")
    assert answer.status_code in (403, 404), path


def test_run_history_keeps_no_prompts(shared: Shared) -> None:
    _, address = shared
    config = httpx.get(f"{address}config").json()
    assert not config.get("run_history") and config.get("analytics_enabled") is False
    assert "the and" not in json.dumps(config)


def test_the_page_is_not_rendered_on_the_server(shared: Shared) -> None:
    """Server-side rendering behaves differently in places (gradio 12841, 10914)."""
    assert shared[0].demo.ssr_mode is False


def test_the_viewers_reader_is_the_only_function_a_browser_can_call_on_a_component(shared: Shared) -> None:
    page, address = shared
    viewer = next(
        block for block in page.demo.blocks.values() if getattr(block, "elem_id", "") == "viasd-viewer"
    )

    def call(name: str, data: object) -> httpx.Response:
        body = {"session_hash": "x", "component_id": viewer._id, "fn_name": name, "data": data}
        return httpx.post(f"{address}gradio_api/component_server", json=body)

    assert "error" in call("fetch_since", {"run": "x", "last": 0}).json()
    for name in ("postprocess", "preprocess", "get_config", "__class__", "push_to_hub"):
        assert call(name, {}).status_code == 404


def test_plotly_is_the_installed_wheels_own(shared: Shared) -> None:
    """Gradio bundles another plotly.js, which draws some figures wrongly (gradio 10475)."""
    import plotly.offline

    _, address = shared
    answer = httpx.get(f"{address}viasd/plotly.min.js")
    assert answer.text == plotly.offline.get_plotlyjs()


def test_prompts_do_not_reach_the_log(
    served: Serve, client_of: ClientOf, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(preset: str) -> Any:
        raise RuntimeError("no")

    with caplog.at_level(0):
        _, address = served()
        client_of(address).predict("zebra the", "tiny", "sd", max_new_tokens=4, api_name="/generate")
        _, address = served(loader=broken)
        client_of(address).predict("zebra the", "tiny", "sd", max_new_tokens=4, api_name="/generate")
        captured = capfd.readouterr()
    assert "zebra" not in caplog.text + captured.out + captured.err
