"""How one CSV cell of a trace bundle is written and read: a codec a type, exact in both directions.

Empty means not available. Floats are written with `repr`, so reading gives the same number back. Text that
another program could misread (a spreadsheet formula, control characters, a leading quote) is written as a
JSON string, which starts with `"`.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_FLOAT = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,4})?|inf)|nan")
_FORMULA_STARTS = '=+-@"\uff1d\uff0b\uff0d\uff20'  # the last four are their full-width forms


@dataclass(frozen=True)
class Codec:
    """`write` turns a value into a cell, `read` the cell into the value; `read` raises ValueError."""

    wants: str  # completes "expected ..."
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def optional(codec: Codec) -> Codec:
    """The same, with None as the empty cell."""
    return Codec(
        f"{codec.wants} or nothing",
        lambda value: "" if value is None else codec.write(value),
        lambda cell: None if cell == "" else codec.read(cell),
    )


def enum(allowed: Iterable[str]) -> Codec:
    values = frozenset(allowed)
    wants = "one of " + ", ".join(sorted(value or "(empty)" for value in values))

    def read(cell: str) -> str:
        if cell not in values:
            raise ValueError(cell)
        return cell

    return Codec(wants, str, read)


def _read_integer(cell: str) -> int:
    if not _INTEGER.fullmatch(cell):
        raise ValueError(cell)
    return int(cell)


def _write_float(value: Any) -> str:
    return repr(float(value))


def _read_float(cell: str) -> float:
    if not _FLOAT.fullmatch(cell):
        raise ValueError(cell)
    return float(cell)


def _write_flag(value: Any) -> str:
    return "1" if value else "0"


def _read_flag(cell: str) -> bool:
    if cell not in ("0", "1"):
        raise ValueError(cell)
    return cell == "1"


def _read_json(cell: str) -> Any:
    try:
        return json.loads(cell)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _read_json_text(cell: str) -> str:
    text = _read_json(cell)
    if not isinstance(text, str):
        raise ValueError(cell)
    return text


def _write_text(text: str) -> str:
    number = bool(_FLOAT.fullmatch(text))  # "-0.5" is data a reader wants to compute with, not a formula
    plain = text.isprintable() and (number or not text.startswith(tuple(_FORMULA_STARTS)))
    return text if plain else json.dumps(text)


def _read_text(cell: str) -> str:
    return _read_json_text(cell) if cell.startswith('"') else cell


def _read_hex(cell: str) -> bytes:
    if not cell.isascii() or any(char.isspace() for char in cell):
        raise ValueError(cell)
    return bytes.fromhex(cell)


def _write_alternatives(pairs: tuple[tuple[int, float], ...]) -> str:
    """JSON has no -inf: a log-probability that is not finite is null."""
    finite = [[int(token), float(logp) if math.isfinite(logp) else None] for token, logp in pairs]
    return json.dumps(finite) if pairs else ""


def _read_alternatives(cell: str) -> tuple[tuple[int, float], ...]:
    if cell == "":
        return ()
    pairs = _read_json(cell)
    if not isinstance(pairs, list) or not all(_is_alternative(pair) for pair in pairs):
        raise ValueError(cell)
    return tuple((token, -math.inf if logp is None else float(logp)) for token, logp in pairs)


def _is_alternative(pair: Any) -> bool:
    if not isinstance(pair, list) or len(pair) != 2:
        return False
    token, logp = pair
    numeric = logp is None or (
        isinstance(logp, int | float) and not isinstance(logp, bool) and abs(logp) < 1e300
    )
    return isinstance(token, int) and not isinstance(token, bool) and numeric


def _read_integers(cell: str) -> tuple[int, ...]:
    return tuple(_read_integer(part) for part in cell.split(" ")) if cell else ()


INT = Codec("a whole number", lambda value: str(operator.index(value)), _read_integer)
FLOAT = Codec("a number", _write_float, _read_float)
FLAG = Codec("0 or 1", _write_flag, _read_flag)
TEXT = Codec("text, or a JSON string when it starts with a quote", _write_text, _read_text)
JSON_TEXT = Codec("a JSON string", json.dumps, _read_json_text)
HEX = Codec("bytes in hexadecimal", lambda value: value.hex(), _read_hex)
ALTERNATIVES = Codec("a JSON list of [token id, log-probability]", _write_alternatives, _read_alternatives)
INTS = Codec(
    "whole numbers with a space between them",
    lambda values: " ".join(str(operator.index(value)) for value in values),
    _read_integers,
)
OPT_INT = optional(INT)
OPT_FLOAT = optional(FLOAT)
