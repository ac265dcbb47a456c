"""Text from models, files and arguments made safe and measurable for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence

# Control, format, surrogate, private-use and unassigned characters, line and paragraph separators: a terminal
# may act on them (escape sequences, bidirectional overrides) instead of showing them.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # part of ordinary Persian, Hindi and emoji text; they only join glyphs


def printable(text: str) -> str:
    """`text` with every character a terminal could act on written as a backslash escape, on one line."""
    return "".join(char if _is_safe(char) else _escape(char) for char in text)


def _is_safe(char: str) -> bool:
    return char in _JOINERS or unicodedata.category(char) not in _UNSAFE


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def display_width(text: str) -> int:
    """Terminal columns that already printable text takes: 2 for wide characters, 0 for combining marks."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str] = ()) -> list[str]:
    """Lines of a table of printable cells: columns padded to their widest cell; those named in `left` stand
    left, the rest right.
    """
    lines = [header, *rows]
    widths = [max(display_width(line[index]) for line in lines) for index in range(len(header))]
    out = []
    for line in lines:
        cells = []
        for name, cell, wide in zip(header, line, widths, strict=True):
            gap = " " * (wide - display_width(cell))
            cells.append(cell + gap if name in left else gap + cell)
        out.append("  ".join(cells).rstrip())
    return out
