"""The five CSV tables of a trace bundle: their columns in file order, and rows to cells and back.

A column is required when its row field has no default; columns a reader does not know are ignored, so new
ones are only ever added at the end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any

from .cells import ALTERNATIVES, FLAG, FLOAT, HEX, INT, INTS, JSON_TEXT, OPT_FLOAT, OPT_INT, TEXT, Codec, enum
from .errors import TraceError
from .terminal import printable
from .trace import PHASES, SCHEMA, SOURCES, VERDICTS, CycleRow, DimrRow, EventRow, TokenRow, TreeRow

_QUOTED_CELL = 60  # characters of a bad cell shown in a message


@dataclass(frozen=True)
class Column:
    """One CSV column: its name in the file, the row field it holds, and how a cell is written."""

    name: str
    codec: Codec
    field: str


@dataclass(frozen=True)
class Table:
    """One CSV file. `derived` columns are written for other programs and ignored on reading."""

    file: str
    row: type
    columns: tuple[Column, ...]
    derived: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return ("schema", "run_id", *(column.name for column in self.columns), *self.derived)

    @property
    def required(self) -> frozenset[str]:
        free = {item.name for item in fields(self.row) if item.default is not MISSING} | {"phase_us"}
        kept = {column.name for column in self.columns if column.field.partition(".")[0] not in free}
        return frozenset({"schema", "run_id"} | kept)


def _columns(**codecs: Codec) -> tuple[Column, ...]:
    return tuple(Column(name, codec, name) for name, codec in codecs.items())


TOKENS = Table(
    "tokens.csv",
    TokenRow,
    (
        *_columns(cycle=INT, slot=INT, branch=INT, node=INT, parent=INT, out_pos=OPT_INT, token_id=INT),
        Column("token_json", JSON_TEXT, "text"),
        Column("bytes_hex", HEX, "data"),
        *_columns(source=enum(SOURCES), verdict=enum(VERDICTS), region=enum(("", "A", "B", "C"))),
        *_columns(emitted=FLAG, shown=FLAG, logp_draft=OPT_FLOAT, logp_slim=OPT_FLOAT, logp_full=OPT_FLOAT),
        *_columns(p_used=OPT_FLOAT, slim_ratio=OPT_FLOAT, thr1=OPT_FLOAT, thr2=OPT_FLOAT, rand_u=OPT_FLOAT),
        *_columns(top2_margin=OPT_FLOAT, is_ufp=FLAG),
        Column("alt_json", ALTERNATIVES, "alt"),
        *_columns(entropy_draft=OPT_FLOAT, t_us=INT, audit_cycle=OPT_INT, audit_rank=OPT_INT),
        *_columns(audit_logp=OPT_FLOAT, audit_accept=OPT_FLOAT, audit_kl=OPT_FLOAT, tier=OPT_INT),
    ),
)


def _phase_column(phase: str) -> Column:
    name = "other" if phase == "host" else phase
    return Column(f"t_{name}_us", OPT_INT, f"phase_us.{phase}")


CYCLES = Table(
    "cycles.csv",
    CycleRow,
    (
        *_columns(cycle=INT, t_start_us=INT),
        *(_phase_column(phase) for phase in PHASES),
        *_columns(gamma=INT, alpha1=OPT_FLOAT, alpha2=OPT_FLOAT, skip_ratio=OPT_FLOAT, temperature=FLOAT),
        *_columns(tau_margin=OPT_FLOAT, v_max=OPT_INT, param_version=INT, drafted=INT),
        *_columns(region_a=INT, region_b=INT, region_c_accepted=INT, region_c_rejected=INT),
        *_columns(committed=INT, retracted=INT, draft_forwards=INT, slim_forwards=INT, full_forwards=INT),
        *_columns(settle_forwards=INT, tree_nodes=INT, kv_len=INT, n_q=INT, n_s=INT, debt=INT),
        *_columns(mask_id=TEXT, reason=TEXT, cuda_synced=FLAG, tier_forwards=INTS, tier_us=INTS),
        *_columns(branch0_kept=OPT_INT, ufps=OPT_INT),
    ),
)
TREE = Table(
    "tree.csv",
    TreeRow,
    (
        *_columns(cycle=INT, node=INT, parent=INT, depth=INT, branch=INT, token_id=INT),
        Column("token_json", JSON_TEXT, "text"),
        *_columns(logp_draft=OPT_FLOAT, margin=OPT_FLOAT, is_ufp=FLAG, verified=FLAG, accepted=FLAG),
        *_columns(on_best_path=FLAG),
    ),
)
DIMR = Table(
    "dimr.csv",
    DimrRow,
    _columns(step=INT, method=TEXT, cost=FLOAT, best_cost=FLOAT, mask=TEXT, tau=INT, t_us=INT, accepted=FLAG),
    derived=("kept", "skip_ratio"),
)
EVENTS = Table("events.csv", EventRow, _columns(t_us=INT, cycle=INT, type=TEXT, key=TEXT, old=TEXT, new=TEXT))
TABLES = (TOKENS, CYCLES, TREE, DIMR, EVENTS)


def write_table(table: Table, rows: Iterable[Any], run_id: str) -> str:
    """The CSV text of `rows`: header, LF line ends, RFC 4180 quoting."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.names)
    own = TEXT.write(run_id)
    for row in rows:
        _refuse_unknown_phases(row)
        cells = [column.codec.write(_get(row, column.field)) for column in table.columns]
        writer.writerow([SCHEMA, own, *cells, *_derived_cells(row)])
    return out.getvalue()


def _get(row: Any, name: str) -> Any:
    head, _, phase = name.partition(".")
    return getattr(row, head).get(phase) if phase else getattr(row, head)


def _refuse_unknown_phases(row: Any) -> None:
    unknown = sorted(set(getattr(row, "phase_us", ())) - set(PHASES))
    if unknown:
        raise TraceError(f"cycle {row.cycle} times a phase {unknown[0]!r} that has no column; use {PHASES}")


def _derived_cells(row: Any) -> list[str]:
    if not isinstance(row, DimrRow):
        return []
    kept = row.mask.count("1")
    return [str(kept), repr(1 - kept / max(1, len(row.mask)))]


def read_table(table: Table, text: str, *, max_rows: int) -> tuple[list[Any], set[tuple[str, str]]]:
    """Rows of a CSV text, and every (schema, run_id) that stands in them.

    Raises TraceError naming the file and the row (the header is row 1), or the missing column.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[Any] = []
    labels: set[tuple[str, str]] = set()
    try:
        where = _places(table, next(reader, []))
        for number, cells in enumerate(reader, start=2):
            if number - 1 > max_rows:
                raise TraceError(f"{table.file} has more than {max_rows} rows, the most this reader takes")
            rows.append(_read_row(table, where, cells, number))
            labels.add((cells[where["schema"]], cells[where["run_id"]]))
    except csv.Error as error:
        raise TraceError(f"{table.file} row {reader.line_num} is not valid CSV: {error}") from error
    return rows, labels


def _places(table: Table, header: list[str]) -> dict[str, int]:
    """Column name -> index, with the header's length under the empty name."""
    missing = [name for name in table.names if name in table.required and name not in header]
    if missing:
        raise TraceError(f"{table.file} lacks the column {missing[0]!r}; its first row must name the columns")
    twice = [name for name in table.names if header.count(name) > 1]
    if twice:
        raise TraceError(f"{table.file} names the column {twice[0]!r} twice; keep one")
    return {name: index for index, name in enumerate(header) if name in table.names} | {"": len(header)}


def _read_row(table: Table, where: dict[str, int], cells: list[str], number: int) -> Any:
    if len(cells) != where[""]:
        raise TraceError(
            f"{table.file} row {number} has {len(cells)} cells, expected {where['']} as in its header"
        )
    values: dict[str, Any] = {}
    phases: dict[str, int] = {}
    for column in table.columns:
        index = where.get(column.name)
        if index is None:
            continue
        value = _read_cell(table, column, cells[index], number)
        head, _, phase = column.field.partition(".")
        if not phase:
            values[head] = value
        elif value is not None:
            phases[phase] = value
    if table is CYCLES:
        values["phase_us"] = phases
    return table.row(**values)


def _read_cell(table: Table, column: Column, cell: str, number: int) -> Any:
    try:
        return column.codec.read(cell)
    except ValueError as error:
        shown = printable(cell[:_QUOTED_CELL]) + ("..." if len(cell) > _QUOTED_CELL else "")
        raise TraceError(
            f"{table.file} row {number}: {column.name} is '{shown}', expected {column.codec.wants}"
        ) from error
