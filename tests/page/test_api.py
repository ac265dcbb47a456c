from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client  # type: ignore[import-untyped]
from gradio_client.exceptions import AppError  # type: ignore[import-untyped]

from drafters.runs import block_pair
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


@pytest.fixture(scope="module")
def caller(shared: Shared) -> Iterator[Client]:
    """One client of the shared page, for calls that leave nothing behind."""
    client = Client(shared[1], verbose=False)
    yield client
    client.close()


def named_endpoints(client: Client) -> set[str]:
    return set(client.view_api(return_format="dict", print_info=False)["named_endpoints"])


def test_only_four_endpoints_are_public(shared: Shared, client_of: ClientOf) -> None:
    _, address = shared
    client = client_of(address)
    assert named_endpoints(client) == {"/generate", "/export", "/list", "/dimr_search"}
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
    assert [update["interactive"] for update in answer.json()["data"][1:]] == [False] * 3
    assert page.engine.idle


def test_generate_reports_on_the_way_and_export_gives_the_same_trace(
    shared: Shared, client_of: ClientOf
) -> None:
    _, address = shared
    client = client_of(address)
    job = client.submit("the and", "tiny", "sd", max_new_tokens=32, api_name="/generate")
    result = job.result(timeout=60)
    assert result["state"] == "done" and result["new_tokens"] == 32 == len(result["token_ids"])
    assert result["ttft_s"] <= result["wall_s"] and "trace" not in result
    path = client.predict(result["run"], api_name="/export")
    assert sorted(zipfile.ZipFile(path).namelist()) == sorted(
        ["tokens.csv", "cycles.csv", "tree.csv", "dimr.csv", "events.csv", "run.json"]
    )
    assert Trace.load(path).token_ids == result["token_ids"]


def test_a_setting_without_an_argument_of_its_own_is_taken_too(shared: Shared, client_of: ClientOf) -> None:
    client = client_of(shared[1])
    asked = {"bonus": "none", "top_k": 7}
    result = client.predict("the and", "tiny", "sd", max_new_tokens=6, more=asked, api_name="/generate")
    settings = Trace.load(client.predict(result["run"], api_name="/export")).run["settings"]
    assert {name: settings[name] for name in asked} == asked


def test_a_call_without_a_method_runs_the_presets_own_and_its_suffix_is_measured(
    served: Serve, client_of: ClientOf, tmp_path: Path
) -> None:
    pair = block_pair(tmp_path)
    _, address = served(loader=lambda preset: pair)
    client = client_of(address)
    found = client.predict("the and", "fast_margin100", max_new_tokens=6, api_name="/generate")
    assert (found["state"], found["method"]) == ("done", "cure")
    run = Trace.load(client.predict(found["run"], api_name="/export")).run
    assert run["suffix_choice"]["positions"] > 0
    assert run["settings"]["suffix"] == run["suffix_choice"]["choice"] == found["settings"]["suffix"]
    named = client.predict("the and", "fast_margin100", "block", max_new_tokens=6, api_name="/generate")
    assert named["method"] == "block"
    with pytest.raises(AppError, match="--gamma is not used by method 'cure'"):
        client.predict("the and", "fast_margin100", gamma=3, api_name="/generate")


def test_several_slim_verifiers_are_named_by_a_caller(shared: Shared, client_of: ClientOf) -> None:
    result = client_of(shared[1]).predict(
        "the and", mask="even", max_new_tokens=6, more={"tiers": "0.6,0.2"}, api_name="/generate"
    )
    assert result["settings"]["tiers"] == [0.6, 0.2] and list(result["tiers"]) == ["1", "2"]
    assert result["new_tokens"] == 6


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
        ({"prompt": {"text": "x"}}, "the prompt is {'text': 'x'}; give text"),
        ({"prompt": None}, "the prompt is None; give text"),
        ({"prompt": "x", "preset": ["tiny"]}, "there is no preset \\['tiny'\\]; choose one of"),
        ({"prompt": "x", "preset": {"name": "tiny"}}, "there is no preset {'name': 'tiny'}; choose one of"),
        ({"prompt": "x", "preset": None}, "there is no preset None; choose one of"),
        ({"prompt": "x", "preset": "y" * 10_000}, "there is no preset 'yyyyyyyyyyyy\\.\\.\\.y+'; choose"),
        ({"prompt": "x", "method": ["sd"]}, "there is no method \\['sd'\\]; choose one of"),
        ({"prompt": "x", "drafter": ["lookup"]}, "there is no drafter \\['lookup'\\]; choose one of preset"),
        ({"prompt": "x", "drafter": True}, "there is no drafter True; choose one of preset"),
        ({"prompt": "x", "temperature": [0]}, "temperature is \\[0\\]; give a number"),
        ({"prompt": "x", "seed": {"a": 1}}, "seed is {'a': 1}; give a number"),
        ({"prompt": "x", "seed": 10**400}, "seed is 1000.*; give a number"),
        ({"prompt": "x", "gamma": "5"}, "gamma is '5'; give a number"),
        ({"prompt": "x", "gamma": 2.5}, "gamma is 2.5; give a whole number"),
        ({"prompt": "x", "alpha1": True}, "alpha1 is True; give a number"),
        ({"prompt": "x", "strict": "yes"}, "strict is 'yes'; give true or false"),
        ({"prompt": "x", "strict": 1}, "strict is 1; give true or false"),
        ({"prompt": "x", "more": ["v_max"]}, "more is \\['v_max'\\]; give a mapping of settings"),
        ({"prompt": "x", "more": {"seed": 3}}, "there is no further setting 'seed'; choose one of"),
        ({"prompt": "x", "more": {"depth": 3}}, "there is no further setting 'depth'; choose one of"),
        ({"prompt": "x", "more": {"v_max": 8}}, "--v-max is not used by method 'via-sd'"),
        ({"prompt": "x", "more": {"alpha": 0.2}}, "--alpha has no effect without --rule-c lossy"),
        ({"prompt": "x", "more": {"lookup_first": True}}, "--lookup-first has no effect with the drafter"),
        (
            {"prompt": "x", "drafter": "lookup", "method": "sd", "more": {"draft_p_min": 0.3}},
            "--draft-p-min has no effect with the drafter lookup",
        ),
        ({"prompt": "x", "more": {"debt_cap": "all"}}, "debt_cap is 'all'; give a number"),
        ({"prompt": "x", "more": {"tiers": "model:org/name"}}, "which this page does not offer"),
        ({"prompt": "x", "more": {"tiers": [0.4, 0.2]}}, "give text such as 0.5,0.2"),
        ({"prompt": "x", "more": {"tree_tiers": "via-sd"}}, "there is no further setting 'tree_tiers'"),
        ({"prompt": "x", "method": "sd", "more": {"tiers": "0.4"}}, "--tiers is not used by method 'sd'"),
        ({"prompt": "x", "method": "cure", "more": {"tiers": "0.4"}}, "tiers is '0.4'; choose one of"),
        (
            {"prompt": "x", "skip_ratio": 0.3, "more": {"tiers": "0.4,0.2"}},
            "skip_ratio and tiers contradict each other",
        ),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    shared: Shared, caller: Client, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        caller.predict(**arguments, api_name="/generate")
    assert shared[0].engine.idle


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", ["max_new_tokens", "temperature", "seed", "alpha1", "gamma", "skip_ratio"])
def test_a_number_that_is_none_is_answered_in_a_sentence(shared: Shared, name: str, number: str) -> None:
    """JSON as browsers and Python write it, which no client would send by itself."""
    page, address = shared
    data = {
        "prompt": "x", "preset": "tiny", "method": "via-sd", "drafter": "lookup", "max_new_tokens": 4,
        "temperature": 0, "seed": 0, "alpha1": None, "alpha2": None, "gamma": None, "skip_ratio": None,
        "strict": False, "mask": None, "more": None,
    }  # fmt: skip
    assert name in data
    text = json.dumps({"data": list((data | {name: "here"}).values())}).replace('"here"', number)
    headers = {"Content-Type": "application/json"}
    started = httpx.post(f"{address}gradio_api/call/generate", content=text, headers=headers)
    answer = httpx.get(f"{address}gradio_api/call/generate/{started.json()['event_id']}").text
    assert "event: error" in answer
    assert re.search(rf"{name} is -?(nan|inf); give a number", answer), answer
    assert page.engine.idle


def test_an_id_that_is_no_text_is_no_run(shared: Shared, client_of: ClientOf) -> None:
    for run in (["x"], {"run": "x"}, None, 7):
        with pytest.raises(AppError, match="there is no such run"):
            client_of(shared[1]).predict(run, api_name="/export")


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
    assert client_of(address).predict("the and", "tiny", "sd", max_new_tokens=4, api_name="/generate")


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
