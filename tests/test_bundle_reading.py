"""Reading a bundle as untrusted input: everything malformed is refused in one sentence."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from sample_traces import via_sd_trace
from viasd_core.bundle import read_bundle, write_bundle
from viasd_core.bundle_format import FILES, decode, encode
from viasd_core.errors import TraceError
from viasd_core.trace import Trace


@pytest.fixture(params=["folder", "zip"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / ("run.zip" if request.param == "zip" else "run")


def contents_of(trace: Trace) -> dict[str, bytes]:
    return encode(trace)


def with_cell(contents: dict[str, bytes], file: str, row: int, column: str, value: str) -> dict[str, bytes]:
    """`row` as a spreadsheet counts: the header is row 1."""
    rows = list(csv.reader(io.StringIO(contents[file].decode(), newline="")))
    rows[row - 1][rows[0].index(column)] = value
    return contents | {file: as_csv(rows)}


def as_csv(rows: list[list[str]]) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def write_zip(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("file", "column", "value", "wants"),
    [
        ("tokens.csv", "cycle", "two", "a whole number"),
        ("tokens.csv", "cycle", "1_0", "a whole number"),
        ("tokens.csv", "cycle", "", "a whole number"),
        ("tokens.csv", "cycle", "9" * 5000, "a whole number"),
        ("tokens.csv", "out_pos", "1.0", "a whole number or nothing"),
        ("tokens.csv", "logp_slim", "0,5", "a number or nothing"),
        ("tokens.csv", "logp_slim", "1e", "a number or nothing"),
        ("tokens.csv", "emitted", "yes", "0 or 1"),
        ("tokens.csv", "verdict", "rewritten", "one of accepted_full"),
        ("tokens.csv", "source", "model", "one of bonus"),
        ("tokens.csv", "region", "D", r"one of \(empty\), A, B, C"),
        ("tokens.csv", "token_json", "plain", "a JSON string"),
        ("tokens.csv", "token_json", "5", "a JSON string"),
        ("tokens.csv", "token_json", "[" * 100_000, "a JSON string"),
        ("tokens.csv", "bytes_hex", "6", "bytes in hexadecimal"),
        ("tokens.csv", "bytes_hex", "zz", "bytes in hexadecimal"),
        ("tokens.csv", "alt_json", "[[1]]", "a JSON list"),
        ("tokens.csv", "alt_json", "[[true, 1]]", "a JSON list"),
        ("cycles.csv", "t_draft_us", "1.5", "a whole number or nothing"),
        ("cycles.csv", "temperature", "hot", "a number"),
        ("events.csv", "key", '"open', "text"),
    ],
)
def test_bad_value_is_named_with_file_row_and_column(file: str, column: str, value: str, wants: str) -> None:
    broken = with_cell(contents_of(via_sd_trace()), file, 2, column, value)
    with pytest.raises(TraceError, match=rf"^{file} row 2: {column} is .* expected {wants}"):
        decode(broken)


def test_row_number_is_the_spreadsheets() -> None:
    broken = with_cell(contents_of(via_sd_trace()), "tokens.csv", 7, "slot", "x")
    with pytest.raises(TraceError, match=r"tokens\.csv row 7: slot"):
        decode(broken)


def test_message_about_a_bad_value_escapes_it_and_cuts_it_short() -> None:
    broken = with_cell(contents_of(via_sd_trace()), "tokens.csv", 2, "slot", "\x1b[31m" + "x" * 9999)
    with pytest.raises(TraceError) as caught:
        decode(broken)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_unknown_columns_are_ignored() -> None:
    contents = contents_of(via_sd_trace())
    rows = list(csv.reader(io.StringIO(contents["tokens.csv"].decode())))
    wider = [[*row, "extra" if index == 0 else "?"] for index, row in enumerate(rows)]
    assert decode(contents | {"tokens.csv": as_csv(wider)}).tokens == via_sd_trace().tokens


def test_columns_are_found_by_name_not_by_place() -> None:
    contents = contents_of(via_sd_trace())
    rows = list(csv.reader(io.StringIO(contents["cycles.csv"].decode())))
    assert (
        decode(contents | {"cycles.csv": as_csv([row[::-1] for row in rows])}).cycles == via_sd_trace().cycles
    )


@pytest.mark.parametrize("column", ["schema", "run_id", "token_id", "token_json", "verdict", "emitted"])
def test_missing_required_column_is_named(column: str) -> None:
    contents = contents_of(via_sd_trace())
    renamed = contents["tokens.csv"].replace(f"{column},".encode(), f"{column}x,".encode(), 1)
    with pytest.raises(TraceError, match=rf"tokens\.csv lacks the column '{column}'"):
        decode(contents | {"tokens.csv": renamed})


def test_column_with_a_default_may_be_absent() -> None:
    contents = contents_of(via_sd_trace())
    renamed = contents["tokens.csv"].replace(b"audit_kl", b"other", 1)
    assert decode(contents | {"tokens.csv": renamed}).tokens[0].audit_kl is None


def test_column_named_twice_is_refused() -> None:
    contents = contents_of(via_sd_trace())
    doubled = contents["tokens.csv"].replace(b"node,parent", b"node,node", 1)
    with pytest.raises(TraceError, match="'node' twice"):
        decode(contents | {"tokens.csv": doubled})


@pytest.mark.parametrize("cells", [["one"], ["too"] * 99])
def test_row_of_another_length_is_named(cells: list[str]) -> None:
    contents = contents_of(via_sd_trace())
    rows = list(csv.reader(io.StringIO(contents["tokens.csv"].decode())))
    rows[4] = cells
    with pytest.raises(TraceError, match=rf"tokens\.csv row 5 has {len(cells)} cells"):
        decode(contents | {"tokens.csv": as_csv(rows)})


def test_unclosed_quote_is_named_with_its_row() -> None:
    contents = contents_of(via_sd_trace())
    with pytest.raises(TraceError, match=r"events\.csv row 3 is not valid CSV"):
        decode(contents | {"events.csv": contents["events.csv"] + b'viasd-trace/1,"open'})


@pytest.mark.parametrize("schema", ["viasd-trace/2", "viasd-trace/10", "other/1", "", None, 1])
def test_unknown_major_schema_is_refused(schema: object) -> None:
    contents = contents_of(via_sd_trace())
    run = json.loads(contents["run.json"]) | {"schema": schema}
    with pytest.raises(TraceError, match=r"run\.json has the schema .* reads viasd-trace/1"):
        decode(contents | {"run.json": json.dumps(run).encode()})


def test_unknown_major_schema_in_a_row_is_refused() -> None:
    broken = with_cell(contents_of(via_sd_trace()), "cycles.csv", 3, "schema", "viasd-trace/2")
    with pytest.raises(TraceError, match=r"cycles\.csv has the schema 'viasd-trace/2'"):
        decode(broken)


def test_later_minor_schema_is_read() -> None:
    contents = {
        name: data.replace(b"viasd-trace/1", b"viasd-trace/1.4")
        for name, data in contents_of(via_sd_trace()).items()
    }
    assert decode(contents).tokens == via_sd_trace().tokens


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"schema": ', b"[" * 100_000, b"\xff\xfe"])
def test_broken_run_json_is_one_sentence(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"^run\.json "):
        decode(contents_of(via_sd_trace()) | {"run.json": data})


def test_bytes_that_are_not_utf8_are_named_with_their_row() -> None:
    contents = contents_of(via_sd_trace())
    lines = contents["events.csv"].split(b"\n")
    lines[1] = lines[1].replace(b"alpha1", b"\xe9")
    with pytest.raises(TraceError, match=r"events\.csv row 2 is not UTF-8"):
        decode(contents | {"events.csv": b"\n".join(lines)})


def test_file_resaved_by_a_spreadsheet_with_bom_and_crlf_is_read_and_reported() -> None:
    contents = contents_of(via_sd_trace())
    resaved = b"\xef\xbb\xbf" + contents["tokens.csv"].replace(b"\n", b"\r\n")
    loaded = decode(contents | {"tokens.csv": resaved})
    assert loaded.tokens == via_sd_trace().tokens
    assert len(loaded.problems) == 1
    assert "tokens.csv does not match its sha256" in loaded.problems[0]


def test_rows_of_another_run_are_reported() -> None:
    contents = contents_of(via_sd_trace())
    other = via_sd_trace()
    other.run["run_id"] = "another"
    mixed = contents | {"cycles.csv": contents_of(other)["cycles.csv"]}
    assert any("cycles.csv holds rows of run 'another'" in problem for problem in decode(mixed).problems)


def test_row_cap_is_enforced() -> None:
    contents = contents_of(via_sd_trace())
    with pytest.raises(TraceError, match=r"tokens\.csv has more than 3 rows"):
        decode(contents, max_rows=3)
    assert decode(contents, max_rows=len(via_sd_trace().tokens)).tokens == via_sd_trace().tokens


def test_uncompressed_size_cap_is_enforced(target: Path) -> None:
    trace = via_sd_trace()
    trace.run["prompt"] = "a" * 300_000
    write_bundle(trace, target)
    with pytest.raises(TraceError, match="larger than"):
        read_bundle(target, max_bytes=200_000)


def test_zip_bomb_in_a_file_we_would_ignore_is_refused(tmp_path: Path) -> None:
    members = [*contents_of(via_sd_trace()).items(), ("padding.bin", b"\0" * 5_000_000)]
    with pytest.raises(TraceError, match="larger than"):
        read_bundle(write_zip(tmp_path / "a.zip", members), max_bytes=1_000_000)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../up.csv", "a/../../up.csv", "..\\up.csv", "C:\\up.csv", "\\up"]
)
def test_zip_member_that_could_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    members = [*contents_of(via_sd_trace()).items(), (name, b"x")]
    with pytest.raises(TraceError, match="unsafe name"):
        read_bundle(write_zip(tmp_path / "a.zip", members))


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_zip_member_given_twice_is_refused(tmp_path: Path) -> None:
    contents = contents_of(via_sd_trace())
    members = [*contents.items(), ("tokens.csv", contents["tokens.csv"])]
    with pytest.raises(TraceError, match=r"tokens\.csv more than once"):
        read_bundle(write_zip(tmp_path / "a.zip", members))


@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(target: Path, name: str) -> None:
    contents = contents_of(via_sd_trace())
    del contents[name]
    if target.suffix:
        write_zip(target, list(contents.items()))
    else:
        target.mkdir()
        for file, data in contents.items():
            (target / file).write_bytes(data)
    with pytest.raises(TraceError, match=f"^{name} is missing"):
        read_bundle(target)


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 40])
def test_file_that_is_no_zip_is_one_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(TraceError, match="neither a bundle folder nor a readable zip"):
        read_bundle(tmp_path / "a.zip")


def test_truncated_zip_is_one_sentence(tmp_path: Path) -> None:
    write_bundle(via_sd_trace(), tmp_path / "a.zip")
    whole = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "b.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="readable zip"):
        read_bundle(tmp_path / "b.zip")


def test_zip_with_a_flipped_byte_is_refused_or_reported(tmp_path: Path) -> None:
    write_bundle(via_sd_trace(), tmp_path / "a.zip")
    whole = bytearray((tmp_path / "a.zip").read_bytes())
    whole[200] ^= 0xFF
    (tmp_path / "b.zip").write_bytes(whole)
    with pytest.raises(TraceError, match="readable zip"):
        read_bundle(tmp_path / "b.zip")


def test_place_without_a_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace at"):
        read_bundle(tmp_path / "nowhere.zip")


def test_analysts_recipe_with_pandas_keeps_tokens_named_na(tmp_path: Path) -> None:
    write_bundle(via_sd_trace(), tmp_path / "run")
    frame = pd.read_csv(tmp_path / "run" / "tokens.csv", keep_default_na=False, dtype=str)
    texts = frame["token_json"].map(json.loads)
    assert "NA" in set(texts)
    assert list(texts) == [row.text for row in via_sd_trace().tokens]
