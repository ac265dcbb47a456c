"""What the browser must know of `viasd-trace/1` to write and read its files, from one source."""

from __future__ import annotations

from typing import Any

from viasd_core import cells
from viasd_core.bundle_format import RUN_FILE
from viasd_core.settings import MAX_GAMMA
from viasd_core.tables import TABLES, Column, Table
from viasd_core.trace import (
    DEFINITIONS,
    EMITTED_VERDICTS,
    EVENT_TYPES,
    PHASES,
    SCHEMA,
    SLIM_DECIDED,
    SOURCES,
    VERDICTS,
)
from viasd_core.trace_positions import ACCEPTED, DEFINITION, DRAFTED

from .wire import row_defaults

MAX_ROWS = 100_000  # a file; what a browser tab shows without stalling
MAX_ZIP_BYTES = 20 * 2**20
MAX_BYTES = 64 * 2**20  # all files together, uncompressed
ENUMS: dict[str, tuple[str, ...]] = {
    "source": SOURCES,
    "verdict": VERDICTS,
    "region": ("", "A", "B", "C"),
}
_KINDS = {
    id(cells.INT): "int",
    id(cells.FLOAT): "float",
    id(cells.INTS): "ints",
    id(cells.FLAG): "flag",
    id(cells.TEXT): "text",
    id(cells.JSON_TEXT): "json",
    id(cells.HEX): "hex",
    id(cells.ALTERNATIVES): "alt",
    id(cells.OPT_INT): "int?",
    id(cells.OPT_FLOAT): "float?",
}


def schema() -> dict[str, Any]:
    """Tables with columns and cell types, the words that may stand in them, definitions and caps."""
    return {
        "schema": SCHEMA,
        "runFile": RUN_FILE,
        "tables": [_table(table) for table in TABLES],
        "verdicts": VERDICTS,
        "emitted": EMITTED_VERDICTS,
        "slimDecided": SLIM_DECIDED,
        "phases": PHASES,
        "eventTypes": EVENT_TYPES,
        "definitions": DEFINITIONS,
        "positions": {
            "definition": DEFINITION,
            "accepted": ACCEPTED,
            "drafted": DRAFTED,
            "most": MAX_GAMMA,
        },
        "maxRows": MAX_ROWS,
        "maxZipBytes": MAX_ZIP_BYTES,
        "maxBytes": MAX_BYTES,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "file": table.file,
        "columns": [_column(column) for column in table.columns],
        "required": sorted(table.required),
        "derived": table.derived,
        "defaults": row_defaults(table.row),
    }


def _column(column: Column) -> dict[str, Any]:
    described: dict[str, Any] = {"name": column.name, "field": column.field, "wants": column.codec.wants}
    if column.name in ENUMS:
        return described | {"kind": "enum", "values": ENUMS[column.name]}
    return described | {"kind": _KINDS[id(column.codec)]}
