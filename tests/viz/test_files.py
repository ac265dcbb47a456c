"""Saving and opening traces in the browser: the same files as the command line writes and reads."""

from __future__ import annotations

import io
import json
import math
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import sample_traces
from viasd_core.bundle_format import encode
from viasd_core.trace import DimrRow, EventRow, Trace
from viasd_core.trace_check import check
from viewer_site import Site
from viz import wire

MAKERS = [
    sample_traces.via_sd_trace,
    sample_traces.tiered_trace,
    sample_traces.strict_trace,
    sample_traces.tree_trace,
]


EDGES = (
    1e-7, 1e16, 123456789012345680.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, 1e22, 1e-4, 9.999e-5,
    -math.inf, math.nan, 3.0, -1e15,
)  # fmt: skip


def odd_trace() -> Trace:
    """Every kind of cell at its edges: floats of all sizes, formulas, controls, quotes, a mask search."""
    trace = sample_traces.via_sd_trace()
    numbers = random.Random(5)
    drawn = [numbers.uniform(-1, 1) * 10 ** numbers.randint(-20, 20) for _ in range(60)]
    floats = [*EDGES, *drawn]
    words = [
        "=1+1",
        '"quoted", twice',
        "NA",
        "null",
        "\ud800",
        "\u202ex",
        "\x00",
        "a\nb",
        "😀",
        "\uff1d1",
        "-0.5",
        "\u2019",
    ]
    for index, value in enumerate(floats):
        word = words[index % len(words)]
        row = sample_traces.draft(
            0, 0, "x", "discarded", "", None, logp_draft=value, alt=((7, value), (8, -math.inf))
        )
        trace.tokens.insert(0, replace(row, text=word))
        trace.events.insert(0, EventRow(5, 0, "note", word.replace("\ud800", "?"), str(value), "plain text"))
    trace.dimr.append(DimrRow(0, "random", 0.25, 1 / 3, "110111", 32, 5, True))
    return trace


def export(page: Page) -> dict[str, str]:
    return dict(page.evaluate("__viasd.exportFiles()"))


def read_zip(data: bytes, tmp_path: Path) -> Trace:
    path = tmp_path / "saved.zip"
    path.write_bytes(data)
    return Trace.load(path)


@pytest.mark.parametrize("make", MAKERS)
def test_saved_files_equal_those_of_the_command_line(
    page: Page, show: Callable[..., None], make: Callable[[], Trace]
) -> None:
    trace = make()
    show(page, trace)
    saved = export(page)
    expected = {name: data.decode() for name, data in encode(trace).items()}
    for name in expected:
        if name.endswith(".csv"):
            assert saved[name] == expected[name], name
    assert json.loads(saved["run.json"]) == json.loads(expected["run.json"])


def test_cells_at_their_edges_are_written_as_python_writes_them(
    page: Page, show: Callable[..., None]
) -> None:
    trace = odd_trace()
    show(page, trace)
    saved = export(page)
    for name, data in encode(trace).items():
        if name.endswith(".csv"):
            assert saved[name].splitlines() == data.decode().splitlines(), name


@pytest.mark.parametrize("make", MAKERS)
def test_the_downloaded_zip_is_a_whole_trace_without_contradictions(
    page: Page, show: Callable[..., None], tmp_path: Path, make: Callable[[], Trace]
) -> None:
    trace = make()
    show(page, trace)
    page.locator(".menu summary").click()
    with page.expect_download() as caught:
        page.locator(".menu-list button").first.click()
    assert caught.value.suggested_filename == "viasd-5f0c4b1e.zip"
    loaded = read_zip(Path(caught.value.path()).read_bytes(), tmp_path)
    assert check(loaded) == []
    assert loaded == trace


def test_a_single_table_is_saved_under_its_name(page: Page, show: Callable[..., None]) -> None:
    show(page, sample_traces.via_sd_trace())
    page.locator(".menu summary").click()
    with page.expect_download() as caught:
        page.get_by_role("menuitem", name="cycles.csv").click()
    assert caught.value.suggested_filename == "viasd-5f0c4b1e-cycles.csv"
    assert Path(caught.value.path()).read_text().startswith("schema,run_id,cycle,t_start_us")


@pytest.mark.parametrize("make", MAKERS[:2])
def test_a_run_saved_before_its_end_is_a_readable_partial_trace(
    page: Page, tmp_path: Path, make: Callable[[], Trace]
) -> None:
    trace = make()
    start = {
        key: value
        for key, value in trace.run.items()
        if key not in ("token_ids", "text", "totals", "complete")
    }
    messages = [wire.start_event(start), *wire.trace_messages(trace)[1:3]]
    page.evaluate("value => push(value)", wire.batch("r", 1, messages))
    loaded = read_zip(bytes(page.evaluate("[...__viasd.exportZip()]")), tmp_path)
    assert loaded.run["complete"] is False
    assert loaded.run["token_ids"] == trace.token_ids[:6]
    assert loaded.run["totals"] == loaded.summary()
    assert [problem for problem in check(loaded) if "audit" not in problem] == []


def test_saving_nothing_says_that_there_is_nothing(page: Page) -> None:
    page.locator(".menu summary").click()
    page.locator(".menu-list button").first.click()
    expect(page.locator(".error")).to_have_text("There is nothing to save yet: the run has no cycle.")


def choose(page: Page, files: dict[str, bytes]) -> None:
    payloads: list[Any] = [
        {"name": name, "mimeType": "application/octet-stream", "buffer": data} for name, data in files.items()
    ]
    page.locator(".files input").set_input_files(payloads)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_an_opened_zip_is_the_same_trace_when_saved_again(page: Page, method: int) -> None:
    trace = odd_trace()
    files = encode(trace)
    choose(page, {"some trace.zip": zipped(files, method)})
    expect(page.locator(".pill")).to_have_text("Replay")
    assert page.evaluate("[__viasd.replay, __viasd.tokens]") == [True, len(trace.token_ids)]
    saved = export(page)
    assert {name: saved[name] for name in files if name.endswith(".csv")} == {
        name: data.decode() for name, data in files.items() if name.endswith(".csv")
    }
    assert page.evaluate("triggers.at(-1)") == [
        "replay_loaded",
        {"run_id": trace.run["run_id"], "tokens": 11},
    ]
    expect(page.locator(".warning")).to_be_hidden()


def test_the_files_of_a_bundle_open_one_by_one(page: Page) -> None:
    files = encode(sample_traces.via_sd_trace())
    choose(page, {name: files[name] for name in ("tokens.csv", "cycles.csv", "run.json")})
    expect(page.locator(".pill")).to_have_text("Replay")
    assert page.evaluate("__viasd.text") == sample_traces.via_sd_trace().text


def test_an_opened_trace_is_not_driven_away_by_a_running_one(page: Page) -> None:
    messages = wire.trace_messages(sample_traces.strict_trace())
    page.evaluate("value => push(value)", wire.batch("live", 1, messages[:2]))
    choose(page, {"t.zip": zipped(encode(sample_traces.via_sd_trace()))})
    expect(page.locator(".pill")).to_have_text("Replay")
    page.evaluate("value => push(value)", wire.batch("live", 3, messages[2:3]))
    assert page.evaluate("__viasd.replay") is True
    page.get_by_role("button", name="Back to the live run").click()
    assert page.evaluate("[__viasd.run, __viasd.cycles]") == ["live", 2]


def test_neither_file_nor_run_is_driven_away_by_the_run_a_new_tab_begins_with(page: Page, site: Site) -> None:
    """On a slow machine a file can be chosen, or Run pressed, before the recorded run has come."""
    begins = site.keep("first", sample_traces.strict_trace()) | {"show": False, "fresh": True}
    choose(page, {"t.zip": zipped(encode(sample_traces.via_sd_trace()))})
    expect(page.locator(".pill")).to_have_text("Replay")
    page.evaluate("value => push(value)", begins)
    assert page.evaluate("__viasd.replay") is True
    messages = wire.trace_messages(sample_traces.strict_trace())
    page.evaluate("value => push(value)", wire.batch("live", 1, messages[:2]))
    page.evaluate("value => push(value)", begins | {"run": "other"})
    assert page.evaluate("__viasd.run") == "live"
    page.evaluate("value => push(value)", site.keep("asked", sample_traces.strict_trace()))
    page.wait_for_function("__viasd.run === 'asked'")


def edited(name: str, old: bytes, new: bytes) -> dict[str, bytes]:
    files = encode(sample_traces.via_sd_trace())
    assert old in files[name]
    return {**files, name: files[name].replace(old, new, 1)}


def without(name: str) -> dict[str, bytes]:
    return {key: data for key, data in encode(sample_traces.via_sd_trace()).items() if key != name}


LABELS = b"viasd-trace/1,5f0c4b1e-0000-4000-8000-000000000001"
BAD = {
    "tokens.csv row 2: slot is": edited("tokens.csv", b",0,0,0,-1,-1,0,100,", b",0,zero,0,-1,-1,0,100,"),
    "tokens.csv row 2: verdict is": edited("tokens.csv", b"accepted_slim", b"accepted_by_me"),
    "tokens.csv lacks the column verdict": edited("tokens.csv", b"verdict", b"judgement"),
    "cycles.csv row 2 has 45 cells": edited("cycles.csv", b"\nviasd-trace/1", b"\n,viasd-trace/1"),
    "has the schema": edited("events.csv", b"\nviasd-trace/1", b"\nviasd-trace/2"),
    "run.json is not valid JSON": edited("run.json", b"{", b"["),
    "cycles.csv is missing": without("cycles.csv"),
    "run.json is missing": without("run.json"),
    "never closed": edited("events.csv", b"param_change", b'param_change,"'),
    "which cycles.csv does not list": edited("tokens.csv", b"\n" + LABELS + b",3,", b"\n" + LABELS + b",77,"),
    "the same out_pos": edited("tokens.csv", b",-1,-1,1,101,", b",-1,-1,0,101,"),
    "is not UTF-8": edited("events.csv", b"param_change", b"param_\xff\xfe"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_a_file_that_cannot_be_right_is_refused_with_its_place(page: Page, sentence: str) -> None:
    choose(page, {"bad.zip": zipped(BAD[sentence])})
    expect(page.locator(".error")).to_contain_text("The trace was not opened.")
    expect(page.locator(".error")).to_contain_text(sentence)
    assert page.evaluate("__viasd.tokens") == 0


def test_a_trace_edited_by_hand_opens_and_says_so(page: Page) -> None:
    choose(page, {"t.zip": zipped(edited("tokens.csv", b",-0.25,", b",-0.75,"))})
    expect(page.locator(".warning")).to_contain_text("tokens.csv does not match its sha256")


@pytest.mark.parametrize("name", ["../run.json", "/run.json", "C:\\run.json"])
def test_a_zip_that_leaves_its_folder_is_refused(page: Page, name: str) -> None:
    choose(page, {"t.zip": zipped({**encode(sample_traces.via_sd_trace()), name: b"{}"})})
    expect(page.locator(".error")).to_contain_text("leaves its folder")


@pytest.mark.parametrize(
    "data",
    [b"", b"not a zip", b"PK\x05\x06" + b"\xff" * 18, zipped({"a": b"b"})[:-30]],
    ids=["empty", "not a zip", "end record only", "cut short"],  # bytes as a name would hold the time
)
def test_a_damaged_zip_is_one_sentence(page: Page, data: bytes) -> None:
    choose(page, {"t.zip": data})
    expect(page.locator(".error")).to_contain_text(
        "The trace was not opened. The file is not a zip that can be read"
    )


def test_a_zip_that_unpacks_to_more_than_it_says_is_stopped(page: Page) -> None:
    data = bytearray(zipped({**encode(sample_traces.via_sd_trace()), "events.csv": b"x" * 3_000_000}))
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"events.csv"))
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    choose(page, {"t.zip": bytes(data)})
    expect(page.locator(".error")).to_contain_text("The file is not a zip that can be read")


def test_a_zip_larger_than_the_cap_is_not_unpacked(page: Page) -> None:
    choose(page, {"t.zip": zipped({**encode(sample_traces.via_sd_trace()), "big": b"\0" * (65 * 2**20)})})
    expect(page.locator(".error")).to_contain_text("larger than 64 MiB uncompressed")


def test_more_rows_than_the_cap_are_refused(page: Page) -> None:
    files = encode(sample_traces.via_sd_trace())
    row = LABELS + b",1,1,note,a,b,c\n"
    files["events.csv"] = files["events.csv"].splitlines(keepends=True)[0] + row * 100_001
    choose(page, {"t.zip": zipped(files)})
    expect(page.locator(".error")).to_contain_text("events.csv has more than 100000 rows")
