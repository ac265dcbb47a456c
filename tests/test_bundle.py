"""The bundle on disk: exact round trip, safe writing, refusal of everything malformed."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sample_traces import draft, strict_trace, tree_trace, via_sd_trace
from viasd_core import bundle
from viasd_core.bundle import read_bundle, write_bundle
from viasd_core.bundle_format import decode, encode
from viasd_core.errors import TraceError
from viasd_core.tables import CYCLES, DIMR, EVENTS, TABLES, TOKENS, TREE
from viasd_core.trace import DimrRow, EventRow, Trace

HOSTILE_TEXTS = [
    "",
    "NA",
    "null",
    "nan",
    "None",
    "=cmd()",
    "+1",
    "-1+2",
    "@SUM(A1)",
    "\uff1d1+1",
    "'",
    '"',
    '"quoted',
    ",",
    ";",
    "\n",
    "\r",
    "\r\n",
    "\t",
    " ",
    "\u00a0",
    "a,b\nc",
    "\\",
    "\\n",
    "\x00",
    "\x1b[2J",
    "\x9b2J",
    "\u202e",
    "\u2028",
    "\ufeff",
    "\ud800",
    "\udcff",
    "\U0001f331",
    "{{x}}",
    "${x}",
    "</script>",
    "0",
    "1e5",
    "-0.5",
    "inf",
    "x" * 10_000,
]


def dimr_rows() -> list[DimrRow]:
    return [
        DimrRow(0, "even", 1 / 3, 1 / 3, "110111", 32, 0, True),
        DimrRow(1, "bo", math.inf, 1 / 3, "101111", 32, 9, False),
    ]


@pytest.fixture(params=["folder", "zip"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / ("run.zip" if request.param == "zip" else "run")


@pytest.mark.parametrize("make", [via_sd_trace, strict_trace, tree_trace])
def test_import_of_export_is_the_same_trace(make: Callable[[], Trace], target: Path) -> None:
    trace = make()
    trace.dimr = dimr_rows()
    write_bundle(trace, target)
    loaded = read_bundle(target)
    assert loaded == trace
    assert loaded.problems == []
    assert loaded.summary() == trace.summary()


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=ascii)
def test_hostile_text_survives_in_every_text_column(text: str) -> None:
    trace = via_sd_trace()
    trace.tokens[0] = replace(trace.tokens[0], text=text)
    trace.cycles[0] = replace(trace.cycles[0], reason=text, mask_id=text)
    trace.events = [EventRow(0, 0, "note", text, text, text)]
    trace.run["prompt"] = text
    assert decode(encode(trace)) == trace


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=ascii)
def test_no_cell_is_a_spreadsheet_formula_or_holds_control_characters(text: str) -> None:
    trace = via_sd_trace()
    trace.tokens[0] = replace(trace.tokens[0], text=text)
    trace.cycles[0] = replace(trace.cycles[0], reason=text, mask_id=text)
    trace.events = [EventRow(0, 0, "note", text, text, text)]
    contents = encode(trace)
    for table in TABLES:
        for row in csv.reader(io.StringIO(contents[table.file].decode(), newline="")):
            for cell in row:
                assert cell.isprintable()
                numeric = cell.lstrip("-").replace(".", "").replace("e", "").replace("inf", "0").isdigit()
                assert numeric or not cell.startswith(("=", "+", "-", "@", "\uff1d"))


def test_floats_come_back_bit_for_bit() -> None:
    rng = random.Random(5)
    values = [rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300) for _ in range(200)]
    values += [5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2, -math.inf]
    rows = [draft(0, 0, "a", "accepted_slim", "A", 0, logp_full=value) for value in values]
    loaded = decode(encode(Trace(tokens=rows)))
    assert [repr(row.logp_full) for row in loaded.tokens] == [repr(value) for value in values]


def test_not_available_and_minus_infinity_stay_apart() -> None:
    rows = [draft(0, 0, "a", "accepted_slim", "A", 0, logp_full=value) for value in (None, -math.inf)]
    text = encode(Trace(tokens=rows))["tokens.csv"].decode()
    loaded = decode(encode(Trace(tokens=rows)))
    assert [row.logp_full for row in loaded.tokens] == [None, -math.inf]
    assert ",-inf," in text


def test_phase_that_was_not_timed_is_not_read_as_zero() -> None:
    trace = via_sd_trace()
    trace.cycles[0] = replace(trace.cycles[0], phase_us={"draft": 0, "host": 7})
    assert decode(encode(trace)).cycles[0].phase_us == {"draft": 0, "host": 7}


def test_columns_stand_in_the_documented_order() -> None:
    assert ",".join(TOKENS.names) == (
        "schema,run_id,cycle,slot,branch,node,parent,out_pos,token_id,token_json,bytes_hex,source,verdict,region,"
        "emitted,shown,logp_draft,logp_slim,logp_full,p_used,slim_ratio,thr1,thr2,rand_u,top2_margin,is_ufp,"
        "alt_json,entropy_draft,t_us,audit_cycle,audit_rank,audit_logp,audit_accept,audit_kl,tier"
    )
    assert CYCLES.names[:4] == ("schema", "run_id", "cycle", "t_start_us")
    assert ",".join(TREE.names[2:]) == (
        "cycle,node,parent,depth,branch,token_id,token_json,logp_draft,margin,is_ufp,verified,accepted,"
        "on_best_path"
    )
    assert EVENTS.names[2:] == ("t_us", "cycle", "type", "key", "old", "new")
    assert DIMR.names[-2:] == ("kept", "skip_ratio")


def test_every_row_field_has_a_column() -> None:
    for table in TABLES:
        fields = {column.field.partition(".")[0] for column in table.columns}
        assert fields == {field.name for field in dataclasses.fields(table.row)}


def test_same_trace_gives_the_same_zip(tmp_path: Path) -> None:
    write_bundle(via_sd_trace(), tmp_path / "a.zip")
    write_bundle(via_sd_trace(), tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_run_json_is_strict_json_even_with_numbers_that_are_not_finite() -> None:
    trace = via_sd_trace()
    trace.run["settings"]["core_thresholds"] = (math.inf, math.nan)
    content = encode(trace)["run.json"].decode()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    run = json.loads(content, parse_constant=refuse)
    assert run["settings"]["core_thresholds"] == ["inf", "nan"]


def test_partial_trace_without_run_content_is_written_and_read() -> None:
    trace = Trace(tokens=via_sd_trace().tokens[:3])
    loaded = decode(encode(trace))
    assert loaded.tokens == trace.tokens
    assert loaded.run["run_id"]


# Writing


def test_missing_parent_folders_are_made(tmp_path: Path) -> None:
    write_bundle(via_sd_trace(), tmp_path / "runs" / "today" / "a.zip")
    assert read_bundle(tmp_path / "runs" / "today" / "a.zip").token_ids


def test_older_bundle_is_replaced(target: Path) -> None:
    write_bundle(via_sd_trace(), target)
    write_bundle(strict_trace(), target)
    assert read_bundle(target) == strict_trace()
    assert os.listdir(target.parent) == [target.name]


def test_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(TraceError, match=r"chapter1\.tex"):
        write_bundle(via_sd_trace(), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    assert os.listdir(tmp_path) == ["thesis"]


def test_zip_that_is_not_a_bundle_is_not_overwritten(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("cat.jpg", "x")
    before = (tmp_path / "photos.zip").read_bytes()
    with pytest.raises(TraceError, match="not a trace bundle"):
        write_bundle(via_sd_trace(), tmp_path / "photos.zip")
    assert (tmp_path / "photos.zip").read_bytes() == before


def test_plain_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("keep me")
    with pytest.raises(TraceError, match="choose another name"):
        write_bundle(via_sd_trace(), tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "keep me"


def test_failure_while_writing_leaves_the_old_bundle_and_no_debris(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(via_sd_trace(), target)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle.os, "replace", fail)
    monkeypatch.setattr(bundle.os, "rename", fail)
    with pytest.raises(TraceError, match="No space left on device"):
        write_bundle(strict_trace(), target)
    monkeypatch.undo()
    assert read_bundle(target) == via_sd_trace()
    assert os.listdir(target.parent) == [target.name]


def test_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(via_sd_trace(), tmp_path / "run")
    rename, calls = os.rename, []

    def fail_second(old: Path, new: Path) -> None:
        calls.append(old)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(old, new)

    monkeypatch.setattr(bundle.os, "rename", fail_second)
    with pytest.raises(TraceError, match="Input/output error"):
        write_bundle(strict_trace(), tmp_path / "run")
    assert read_bundle(tmp_path / "run") == via_sd_trace()
    assert os.listdir(tmp_path) == ["run"]
