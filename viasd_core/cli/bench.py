"""`viasd_core bench`: measure decoding methods against each other, and print result files as Markdown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SettingsError
from ..terminal import printable
from .main import INTERRUPTED

if TYPE_CHECKING:
    from ..bench.request import Request

REQUIRED = ("preset", "methods", "data", "out")
OVERRIDES = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "seed": int,
    "gamma": int,
    "draft_p_min": float,
    "skip_ratio": float,
    "alpha1": float,
    "alpha2": float,
    "tau_margin": float,
    "margin_scale": float,
    "b_max": int,
    "v_max": int,
    "max_positions": int,
    "suffix": str,
}


def add_parser(commands: Any) -> None:
    """Add `bench` and `bench report` to the command line."""
    parser = commands.add_parser(
        "bench",
        help="measure methods, interleaved and paired",
        description="Measure decoding methods on a file of prompts: interleaved, warmed up, medians per "
        "prompt, speed ratios to plain decoding with a bootstrap interval. Prints a Markdown table and "
        "writes a JSON file.",
    )
    parser.set_defaults(run=run)
    # Not a sub-command: that would be required, or claim the value of every mistyped flag.
    parser.add_argument(
        "report",
        nargs="*",
        metavar="report RESULT.json",
        help="print result files as Markdown, measure nothing",
    )
    parser.add_argument("--preset", metavar="NAME", help="preset name, or a preset file")
    parser.add_argument(
        "--methods", metavar="LIST", help="comma-separated, such as ar,sd,via-sd (ar always runs)"
    )
    parser.add_argument(
        "--baselines", metavar="LIST", default="", help="hf,hf-assisted,hf-lookup: the same weights"
    )
    parser.add_argument(
        "--data", metavar="FILE", help="prompts: JSON lines with a prompt each, or a published set"
    )
    parser.add_argument("--task", metavar="NAME", help="layout of --data where it cannot be recognised")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N prompts")
    parser.add_argument("--raw", action="store_true", help="prompts as they are, without the chat template")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="M")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="K", help="runs a prompt and method (default 3)"
    )
    parser.add_argument(
        "--best-gamma", action="store_true", help="each method also at its own best draft length"
    )
    parser.add_argument(
        "--skip-ratios",
        default="",
        metavar="LIST",
        help="comma-separated: via-sd also with each of these shares of layers skipped",
    )
    parser.add_argument(
        "--tiers",
        action="append",
        default=[],
        metavar="T,T",
        help="via-sd also with these slim verifiers, weakest first, as generate takes them; may be repeated",
    )
    parser.add_argument(
        "--ablations",
        action="store_true",
        help="cure also without branch 0, without resynchronisation, and without both",
    )
    parser.add_argument(
        "--tracing-cost", action="store_true", help="via-sd also without a trace, and the difference"
    )
    for name, kind in OVERRIDES.items():
        parser.add_argument(
            "--" + name.replace("_", "-"), type=kind, metavar="X", help="in place of the preset's"
        )
    parser.add_argument("--lookup-first", action="store_true", default=None, help="as generate takes it")
    parser.add_argument("--verifier", metavar="SOURCE", help="hub id, folder or GGUF file")
    parser.add_argument("--drafter", metavar="D", help="as generate takes it")
    parser.add_argument(
        "--more-drafters",
        metavar="LIST",
        default="",
        help="comma-separated: the drafting methods once more with each of these",
    )
    parser.add_argument(
        "--dtype", default="auto", metavar="D", help="auto, float32, bfloat16, float16, float64"
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda")
    parser.add_argument(
        "--traces", metavar="DIR", help="a new folder for a trace of every prompt and method of the engine"
    )
    parser.add_argument("--out", metavar="RESULT.json", help="the result file")


def run(args: argparse.Namespace) -> int:
    """Returns the exit status. Raises ViasdError for bad input."""
    if args.report:
        return print_reports(report_paths(args))
    request = request_from(args)

    from ..bench.command import run_benchmark
    from ..bench.report import markdown

    result = run_benchmark(request, say)
    print(markdown(result, request.out.name))
    return 0 if result["complete"] else INTERRUPTED


def report_paths(args: argparse.Namespace) -> list[Path]:
    """The files of `bench report FILE...`. Raises SettingsError for anything else."""
    word, *names = args.report
    if word != "report":
        raise SettingsError(
            f"bench takes no {word!r}; use `bench --preset ...` or `bench report RESULT.json`"
        )
    if not names:
        raise SettingsError("bench report needs at least one result file, as bench --out wrote it")
    if any(getattr(args, flag) is not None for flag in REQUIRED):
        raise SettingsError("bench report only prints result files; leave the other options out")
    return [Path(name) for name in names]


def print_reports(paths: list[Path]) -> int:
    """Print all files or, where one of them is not a result, none. Raises DataError."""
    from ..bench.report import markdown
    from ..bench.results import read_result

    results = [(path.name, read_result(path)) for path in paths]
    print("\n".join(markdown(result, name) for name, result in results))
    return 0


def request_from(args: argparse.Namespace) -> Request:
    """The checked request. Raises SettingsError, DataError."""
    from ..bench.request import Request, split_names

    missing = [flag for flag in REQUIRED if getattr(args, flag) is None]
    if missing:
        flags = ", ".join("--" + flag for flag in missing)
        raise SettingsError(f"bench needs {flags}; see `bench --help`, or use `bench report RESULT.json`")
    overrides: dict[str, Any] = {name: getattr(args, name) for name in (*OVERRIDES, "lookup_first")}
    return Request(
        preset=args.preset,
        methods=split_names(args.methods),
        baselines=split_names(args.baselines),
        data=Path(args.data),
        out=Path(args.out),
        traces=Path(args.traces) if args.traces else None,
        task=args.task,
        limit=args.limit,
        max_new_tokens=args.max_new_tokens,
        repeats=args.repeats,
        best_gamma=args.best_gamma,
        ablations=args.ablations,
        tracing_cost=args.tracing_cost,
        raw=args.raw,
        overrides={name: value for name, value in overrides.items() if value is not None},
        verifier=args.verifier,
        drafter=args.drafter,
        more_drafters=split_names(args.more_drafters),
        skip_ratios=_ratios(args.skip_ratios),
        tiers=tuple(args.tiers),
        dtype=args.dtype,
        device=args.device,
    )


def _ratios(text: str) -> tuple[float, ...]:
    """`"0.1,0.2"` -> (0.1, 0.2)."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise SettingsError(f"--skip-ratios {text} is not a list of numbers such as 0.1,0.2") from None


def say(message: str) -> None:
    """Progress goes to stderr, so that stdout is the report alone."""
    print(printable(message), file=sys.stderr, flush=True)
