"""Entry point of the command line: builds the parser, runs one command, turns errors into one sentence.

A command is a module of `viasd_core.cli` with `add_parser(commands)`, which sets `run` as a default of its
parser; `run(args) -> int` returns the exit status. Every module is imported on every start, so torch is
imported only inside `run`.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NoReturn

from .. import cli
from ..errors import ViasdError
from ..terminal import printable

PROGRAM = "python -m viasd_core"
BAD_INPUT = 2
INTERRUPTED = 130
BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


class Parser(argparse.ArgumentParser):
    """Reports bad arguments as one sentence, and takes no abbreviated flags: scripts call this interface."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        report(f"{message}; see {self.prog} --help")
        raise SystemExit(BAD_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 2 for bad input (`error: ...` on stderr) or 130 when interrupted."""
    _tolerate_any_text()
    try:
        args = build_parser().parse_args(arguments)
        status: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except ViasdError as error:
        report(str(error))
        return BAD_INPUT
    except BrokenPipeError:
        # The reader (head, less) is gone; Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        report(f"{place}{error.strerror or error}")
        return BAD_INPUT
    except (ValueError, OverflowError, RecursionError) as error:
        # What a user wrote can fail in more ways than are told apart; a sentence serves better.
        report(f"the input cannot be used ({type(error).__name__}): {error}"[:400])
        return BAD_INPUT
    except KeyboardInterrupt:
        report("interrupted before the command was done")
        return INTERRUPTED


def build_parser() -> Parser:
    parser = Parser(
        prog=PROGRAM, description="Decode with three tiers (VIA-SD), measure it, and read its traces."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in command_modules():
        module.add_parser(commands)
    return parser


def command_modules() -> Iterator[ModuleType]:
    for found in iter_modules(cli.__path__):
        module = import_module(f"{cli.__name__}.{found.name}")
        if hasattr(module, "add_parser"):
            yield module


def report(message: str) -> None:
    """Print a message as `error: ...` on stderr, on one line, with nothing in it that a terminal acts on."""
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)


def _tolerate_any_text() -> None:
    """A terminal that cannot show a character gets its escape, not a UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
