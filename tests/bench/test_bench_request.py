"""Bad input of `bench` is one sentence on stderr and status 2, before any model is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from viasd_core.bench.request import Request
from viasd_core.cli.main import main
from viasd_core.errors import SettingsError

Attempt = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """Run `bench` with one thing wrong; gives the sentence. Loading a model is an error of the test."""

    def no_model(*arguments: object, **options: object) -> None:
        raise AssertionError("bad input was found only after a model was loaded")

    monkeypatch.setattr("viasd_core.bench.command.load_pair", no_model)
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "hello"}\n', encoding="utf-8")

    def attempt(*changes: str, methods: str = "ar,sd,via-sd") -> str:
        given = ["--preset", "tiny", "--methods", methods, "--data", str(data)]
        out = [] if "--out" in changes else ["--out", str(tmp_path / "result.json")]
        arguments = ["bench", *given, *out, *changes]
        try:
            status = main(arguments)
        except SystemExit as stop:
            status = int(str(stop.code))
        captured = capsys.readouterr()
        assert status == 2 and captured.out == ""
        last = captured.err.splitlines()[-1]
        assert last.startswith("error: ")
        assert not (tmp_path / "result.json").exists()
        return last

    return attempt


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--limit", "0"], "--limit is 0"),
        (["--ablations"], "--ablations takes parts of cure away; add cure to --methods"),
        (["--v-max", "9"], "--v-max is not used by ar, sd, via-sd"),
        (["--repeats", "-1"], "--repeats is -1"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--limit", "many"], "--limit"),
        (["--baselines", "hf,vllm"], "'vllm'"),
        (["--baselines", "hf,hf"], "more than once"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--skip-ratio", "1"], "skip_ratio is 1"),
        (["--gamma", "0"], "gamma is 0"),
        (["--preset", "no-such-preset"], "no-such-preset"),
        (["--task", "chess"], "'chess'"),
        (["--data", "missing.jsonl"], "missing.jsonl does not exist"),
        (["--speed", "9"], "--speed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_values(refused: Attempt, changes: list[str], words: str) -> None:
    assert words in refused(*changes)


@pytest.mark.parametrize(
    ("methods", "changes", "words"),
    [
        ("ar,warp", [], "'warp'"),
        ("ar,ar", [], "more than once"),
        (" , ", [], "--methods is empty"),
        ("ar,sd", ["--skip-ratio", "0.2"], "--skip-ratio is not used by ar, sd"),
        ("ar", ["--gamma", "3"], "--gamma is not used by ar"),
        ("ar", ["--best-gamma"], "--best-gamma needs a method that drafts"),
        ("ar,sd", ["--tracing-cost"], "add via-sd"),
    ],
)
def test_options_no_method_uses_are_refused_not_ignored(
    refused: Attempt, methods: str, changes: list[str], words: str
) -> None:
    assert words in refused(*changes, methods=methods)


def test_a_result_that_could_not_be_kept_is_refused_before_the_work(refused: Attempt, tmp_path: Path) -> None:
    assert "does not exist" in refused("--out", str(tmp_path / "no" / "result.json"))
    assert "cannot be written" in refused("--out", str(tmp_path))
    assert "does not exist" in refused("--traces", str(tmp_path / "no" / "traces"))
    both = str(tmp_path / "both")
    assert "is the file of --out as well" in refused("--out", both, "--traces", both)
    (tmp_path / "file").write_text("not a folder", "utf-8")
    assert "cannot be used" in refused("--traces", str(tmp_path / "file"))
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "001-ar.zip").write_bytes(b"an earlier trace")
    assert "is not empty" in refused("--traces", str(kept))


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"skip_ratios": (0.3, 0.3000000001)}, "via-sd, r 0.3"),
        ({"tiers": ("model:/a/verifier,0.2", "model:/b/verifier,0.2")}, "via-sd, tiers model:verifier,0.2"),
        ({"more_drafters": ("/a/block", "/b/block/")}, "block"),
    ],
)
def test_two_lanes_of_one_name_are_refused(changes: dict[str, Any], label: str, tmp_path: Path) -> None:
    """One would be measured in place of the other, and shown for both."""
    with pytest.raises(SettingsError, match=re.escape(repr(label))):
        Request("tiny", ("via-sd",), tmp_path / "d", tmp_path / "r", **changes)


def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--preset", "tiny"]) == 2
    assert "--methods, --data, --out" in capsys.readouterr().err


def test_plain_decoding_always_runs_because_every_ratio_is_taken_against_it(tmp_path: Path) -> None:
    request = Request("tiny", ("via-sd",), tmp_path / "d", tmp_path / "r")
    assert request.all_methods == ("ar", "via-sd")
    assert Request("tiny", ("sd", "ar"), tmp_path / "d", tmp_path / "r").all_methods == ("sd", "ar")
