"""`python -m viasd_core trace ...`, `list ...` and how the command line refuses bad input."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sample_traces import via_sd_trace
from viasd_core.bundle import write_bundle
from viasd_core.cli import trace as trace_command
from viasd_core.cli.main import main

ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    write_bundle(via_sd_trace(), tmp_path / "a.zip")
    return str(tmp_path / "a.zip")


def one_error(captured: Captured) -> str:
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_check_says_what_was_checked_and_ok(bundle: str, capsys: Captured) -> None:
    assert main(["trace", "check", bundle]) == 0
    assert capsys.readouterr().out.endswith("14 token rows, 4 cycles, 0 tree rows, 0 masks, 1 events; ok\n")


def test_check_names_each_problem_and_exits_2(tmp_path: Path, capsys: Captured) -> None:
    trace = via_sd_trace()
    trace.run["text"] = "another text"
    trace.run["totals"]["cycles"] = 9
    write_bundle(trace, tmp_path / "a")
    assert main(["trace", "check", str(tmp_path / "a")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:16] for line in err.splitlines()] == ["error: run.json:"] * 2


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["trace"],
        ["trace", "check"],
        ["trace", "fold", "a.zip"],
        ["trace", "check", "a.zip", "--fast"],
        ["trace", "check", "nowhere.zip"],
        ["trace", "check", "line\nbreak\x1b[31m.zip"],
        ["trace", "diff", "nowhere.zip"],
        ["trace", "diff", "nowhere.zip", "nowhere.zip"],
        ["list"],
        ["list", "wishes"],
    ],
    ids=" ".join,
)
def test_bad_arguments_are_one_error_line_and_exit_status_2(arguments: list[str], capsys: Captured) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else -1
    assert status == 2
    assert not ESCAPES.search(one_error(capsys).removesuffix("\n"))


def test_abbreviated_flags_are_refused(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", "--hel"])
    assert ended.value.code == 2
    assert "--hel" in one_error(capsys)


def test_file_that_is_no_bundle_is_one_error_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04garbage")
    assert main(["trace", "show", str(tmp_path / "a.zip")]) == 2
    assert "readable zip" in one_error(capsys)


def test_diff_says_which_of_two_traces_cannot_be_read(bundle: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "b.zip").write_bytes(b"")
    assert main(["trace", "diff", bundle, str(tmp_path / "b.zip")]) == 2
    assert "b.zip" in one_error(capsys)


def test_interrupt_is_one_sentence_and_130(
    bundle: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def interrupt(_: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(trace_command, "check", interrupt)
    assert main(["trace", "check", bundle]) == 130
    assert "interrupted" in one_error(capsys)


def test_system_error_names_the_file(bundle: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def fail(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied", "secret.zip")

    monkeypatch.setattr(trace_command, "check", fail)
    assert main(["trace", "check", bundle]) == 2
    assert one_error(capsys) == "error: secret.zip: Permission denied\n"


def test_module_runs_as_a_program_and_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    trace = via_sd_trace()
    trace.cycles *= 3000  # more than a pipe buffers
    write_bundle(trace, tmp_path / "a.zip")
    command = [sys.executable, "-m", "viasd_core", "trace", "show", str(tmp_path / "a.zip")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("run ")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


def test_trace_and_list_commands_start_without_torch(bundle: str) -> None:
    code = (
        "import sys\nfrom viasd_core.cli.main import main\n"
        f"assert main(['trace', 'check', {bundle!r}]) == 0 and main(['list', 'methods']) == 0\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_text_a_terminal_cannot_encode_is_escaped_not_a_traceback(bundle: str) -> None:
    command = [sys.executable, "-m", "viasd_core", "trace", "show", bundle]
    done = subprocess.run(
        command, capture_output=True, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, check=False
    )
    assert done.returncode == 0
    assert b"\\U0001f331" in done.stdout
