"""`trace check|show|diff`: read a recorded bundle, without torch."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from ..errors import TraceError
from ..terminal import printable
from ..trace import Trace
from ..trace_check import check
from ..trace_show import diff, show
from .main import BAD_INPUT, report


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("trace", help="check, show or compare recorded traces")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    checker = actions.add_parser(
        "check", help="test every invariant of a trace; exit status 2 names what broke"
    )
    checker.add_argument("trace", metavar="TRACE", help="bundle folder or .zip")
    checker.set_defaults(run=run_check)
    shower = actions.add_parser("show", help="print the text with its tiers, the cycles and the summary")
    shower.add_argument("trace", metavar="TRACE", help="bundle folder or .zip")
    shower.set_defaults(run=run_show)
    differ = actions.add_parser("diff", help="compare two traces up to and from their first divergence")
    differ.add_argument("first", metavar="TRACE", help="bundle folder or .zip")
    differ.add_argument("second", metavar="TRACE2", help="bundle folder or .zip")
    differ.set_defaults(run=run_diff)


def run_check(args: argparse.Namespace) -> int:
    trace = Trace.load(args.trace)
    problems = check(trace)
    for problem in problems:
        report(problem)
    if problems:
        return BAD_INPUT
    print(
        f"{printable(args.trace)}: {len(trace.tokens)} token rows, {len(trace.cycles)} cycles, "
        f"{len(trace.tree)} tree rows, {len(trace.dimr)} masks, {len(trace.events)} events; ok"
    )
    return 0


def run_show(args: argparse.Namespace) -> int:
    print(show(Trace.load(args.trace), width=_width(), colour=sys.stdout.isatty()))
    return 0


def run_diff(args: argparse.Namespace) -> int:
    print(diff(_load(args.first), _load(args.second), width=_width(), colour=sys.stdout.isatty()))
    return 0


def _load(path: str) -> Trace:
    try:
        return Trace.load(path)
    except TraceError as error:
        known = Path(path).name in str(error)
        raise TraceError(str(error) if known else f"{path}: {error}") from error


def _width() -> int:
    return max(40, shutil.get_terminal_size((100, 24)).columns)
