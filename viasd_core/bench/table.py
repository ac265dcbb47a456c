"""Cells and tables of the Markdown reports."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines)


def escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def with_interval(value: float, interval: Sequence[float | None], digits: int = 2) -> str:
    low, high = interval
    if low is None or high is None:
        return number(value, digits)
    return f"{number(value, digits)} [{number(low, digits)}, {number(high, digits)}]"


def share(value: float | None, count: int) -> str:
    return "-" if value is None else f"{100 * value:.0f} % of {count}"


def total(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
