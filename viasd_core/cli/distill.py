"""`distill`: train a drafter for a preset's verifier on prompts of one's own."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..errors import SettingsError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "distill",
        help="train a drafter for a verifier",
        description="The verifier answers the prompts itself; a small drafter learns to say what it would. "
        "Run the same command again after an interruption: finished work is kept.",
    )
    parser.add_argument("--preset", required=True, metavar="NAME|FILE.yaml", help="whose verifier")
    parser.add_argument(
        "--kind",
        required=True,
        choices=("ar", "eagle", "block"),
        help="token by token; the same, reading the verifier's hidden states; a block in parallel",
    )
    parser.add_argument(
        "--data", required=True, nargs="+", metavar="FILE", help="prompts: JSON, JSONL, CSV or text"
    )
    parser.add_argument("--task", metavar="NAME", help="layout of --data where it cannot be recognised")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the drafter is written")
    parser.add_argument(
        "--answers", type=Path, metavar="DIR", help="where answers are kept (default OUT/answers)"
    )
    parser.add_argument(
        "--texts",
        type=Path,
        metavar="FILE.npz",
        help="answers without features: read if it is there, completed when all are answered",
    )
    parser.add_argument("--tokens", type=int, help="tokens the verifier shall write (default 1000000)")
    parser.add_argument(
        "--start",
        metavar="DRAFTER",
        help="go on from a drafter that distill made: its folder, or a name in presets/drafters",
    )
    parser.add_argument("--blocks", metavar="L,L,...", help="verifier layers the drafter starts from")
    parser.add_argument(
        "--layers", type=int, help="how many blocks, chosen by importance (default 2; eagle: 1; block: 3)"
    )
    parser.add_argument("--draft-vocab", type=int, help="ids the drafter can say (default 16384)")
    parser.add_argument("--slots", type=int, help="block: slots, the anchor among them (default 8)")
    parser.add_argument("--taps", type=int, help="eagle, block: verifier layers that are fused (default 4)")
    parser.add_argument("--domino", action="store_true", help="block: train a causal correction as well")
    parser.add_argument(
        "--temperatures", type=float, nargs="+", metavar="T", help="of the answers (default 0.2 0.7)"
    )
    parser.add_argument("--max-new-tokens", type=int, help="of an answer (default 256)")
    parser.add_argument(
        "--longest-prompt", type=int, help="tokens; longer prompts are left out (default 160)"
    )
    parser.add_argument("--lanes", type=int, help="answers written side by side (default 64)")
    parser.add_argument("--epochs", type=float, help="times the answers are seen (default 2)")
    parser.add_argument("--batch", type=int, help="answers a step (default 16)")
    parser.add_argument("--learning-rate", type=float, help="peak of the cosine schedule (default 0.001)")
    parser.add_argument("--seed", type=int, help="of prompts' order, answers and training (default 0)")
    parser.add_argument(
        "--workers", type=int, help="answering processes (default: CPU cores up to 4; CUDA: 1)"
    )
    parser.add_argument("--dtype", default="auto", help="of the verifier (default auto)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--json", action="store_true", help="figures as the last line of stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from ..distill.command import distill
    from ..distill.request import DOMINO, Request
    from ..distill.workers import default_workers
    from ..sources import choose_device

    named = {name: getattr(args, name) for name in FIELDS if getattr(args, name) is not None}
    if args.blocks is not None:
        named["origins"] = layer_list(args.blocks)
    if args.temperatures is not None:
        named["temperatures"] = tuple(args.temperatures)
    request = Request(kind=args.kind, domino=DOMINO if args.domino else (), **named)
    if args.kind != "block" and args.slots is not None:
        raise SettingsError(f"--slots shapes a block drafter; leave it out with --kind {args.kind}")
    if args.kind == "ar" and args.taps is not None:
        raise SettingsError("--taps shapes a drafter that reads features; leave it out with --kind ar")
    shaped = [flag for flag in SHAPE if getattr(args, flag) not in (None, False)]
    if args.start is not None and shaped:
        flags = ", ".join("--" + flag.replace("_", "-") for flag in shaped)
        raise SettingsError(f"{flags} shapes a fresh drafter; with --start leave it out")
    workers = default_workers(choose_device(args.device)) if args.workers is None else args.workers
    if workers < 1:
        raise SettingsError(f"--workers must be at least 1; got {workers}")
    facts = distill(
        args.preset,
        request,
        args.data,
        args.out,
        task=args.task,
        answers=args.answers,
        kept_texts=args.texts,
        workers=workers,
        dtype=args.dtype,
        device=args.device,
        command=shareable(sys.argv[1:]),
    )
    if args.json:
        print(json.dumps(facts))
    else:
        print(f"{args.out}: drafter of kind {args.kind}, {facts['parameters']} trained weights")
    return 0


SHAPE = ("blocks", "layers", "draft_vocab", "slots", "taps", "domino")
FIELDS = (
    "tokens",
    "layers",
    "draft_vocab",
    "slots",
    "taps",
    "max_new_tokens",
    "longest_prompt",
    "lanes",
    "epochs",
    "batch",
    "learning_rate",
    "seed",
    "start",
)


def shareable(arguments: list[str]) -> list[str]:
    """The command for the card: a card is shared, so files and folders stand there by name only."""
    return [Path(part).name if "/" in part else part for part in arguments]


def layer_list(text: str) -> tuple[int, ...]:
    """0,1,29 -> (0, 1, 29). Raises SettingsError."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"--blocks takes layer numbers with commas, as 0,1,29; got {text!r}") from None
