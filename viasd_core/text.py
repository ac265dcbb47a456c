"""Token ids to bytes, and bytes to text that streams safely when a character is split over tokens."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Any, Protocol

REPLACEMENT = "\ufffd"


def _byte_alphabet() -> dict[str, int]:
    """Inverse of the printable alphabet byte-level BPE writes bytes in."""
    printable = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    letters = {chr(byte): byte for byte in printable}
    spare = (byte for byte in range(256) if byte not in printable)
    return letters | {chr(256 + index): byte for index, byte in enumerate(spare)}


class Spelling(Protocol):
    """Bytes of every token id, and which ids are special (never shown)."""

    special_ids: frozenset[int]

    def __getitem__(self, token: int) -> bytes: ...


class TokenBytes:
    """The exact bytes of every id of a tokenizer, whatever its kind (byte-level BPE, or SentencePiece
    pieces).
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._alphabet = _byte_alphabet()
        added = tokenizer.added_tokens_decoder
        self._added = {index: str(token.content) for index, token in added.items()}
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._byte_level = "ByteLevel" in repr(
            getattr(tokenizer, "backend_tokenizer", None) and tokenizer.backend_tokenizer.decoder
        )
        self._known: dict[int, bytes] = {}

    def __getitem__(self, token: int) -> bytes:
        if token not in self._known:
            self._known[token] = self._spell(token)
        return self._known[token]

    def _spell(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # a padding row of the head: no token has this id
            return b""
        if self._byte_level and all(letter in self._alphabet for letter in piece):
            return bytes(self._alphabet[letter] for letter in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace("\u2581", " ").encode()


def incomplete_tail(data: bytes) -> int:
    """How many bytes at the end start a UTF-8 character that is not finished yet (0 to 3)."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-8:])
    return len(decoder.getstate()[0])


def display(pending: bytes, data: bytes) -> tuple[str, bytes]:
    """(text a token completes, bytes still pending after it): a split character belongs to its last token."""
    whole = pending + data
    keep = incomplete_tail(whole)
    return whole[: len(whole) - keep].decode("utf-8", "replace"), whole[len(whole) - keep :]


@dataclass
class OutputText:
    """The output as bytes, token by token, and how much of it has been streamed.

    Streamed text never ends inside a character, nor inside what may become a stop string; strict can take
    streamed text back.
    """

    hold_back: tuple[bytes, ...] = ()  # stop strings: a tail that may begin one waits
    pieces: list[bytes] = field(default_factory=list)  # shown bytes of each output token
    _streamed: bytes = b""
    _shown: bytes = b""

    def append(self, data: bytes) -> None:
        self.pieces.append(data)
        self._shown += data

    def truncate(self, count: int) -> None:
        """Keep the first `count` tokens."""
        gone = sum(len(piece) for piece in self.pieces[count:])
        self._shown = self._shown[: len(self._shown) - gone]
        del self.pieces[count:]

    def trim(self, index: int, data: bytes) -> None:
        """Show only `data` of token `index` (a stop string begins inside it)."""
        self.pieces[index] = data
        self._shown = b"".join(self.pieces)

    @property
    def pending(self) -> bytes:
        """Bytes of an unfinished character at the end."""
        keep = incomplete_tail(self._shown)
        return self._shown[len(self._shown) - keep :]

    def stream(self, *, final: bool) -> tuple[str, int]:
        """(text that became safe to show, characters of already streamed text to drop before it)."""
        safe = self._shown if final else self._shown[: len(self._shown) - self._held()]
        dropped = 0
        if not safe.startswith(self._streamed):
            common = _common_prefix(safe, self._streamed)
            dropped = len(self._streamed[common:].decode("utf-8", "replace"))
            self._streamed = self._streamed[:common]
        text = safe[len(self._streamed) :].decode("utf-8", "replace")
        self._streamed = safe
        return text, dropped

    def _held(self) -> int:
        starts = [
            length
            for stop in self.hold_back
            for length in range(min(len(stop) - 1, len(self._shown)), 0, -1)
            if self._shown.endswith(stop[:length])
        ]
        return max([incomplete_tail(self._shown), *starts])


def _common_prefix(left: bytes, right: bytes) -> int:
    """Length of the common prefix that ends on a character boundary."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count - incomplete_tail(left[:count])
