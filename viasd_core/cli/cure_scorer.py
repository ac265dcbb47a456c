"""`cure-scorer`: from recorded CURE runs, how well useful repairs can be told beforehand (Table 5)."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from ..errors import DataError
from ..trace import Trace


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cure-scorer", help="how well recorded repairs could have been ranked before they were verified"
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="bundles of cure runs, of several prompts")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the split and of the boosting")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises DataError for traces without repairs or of a single prompt, TraceError for unreadable ones."""
    from ..cure.scorer import BUDGETS, MODELS, admit, base_rate, blocks_of, identity_gap, scores

    if not 0 <= args.seed < 2**32:
        raise DataError(f"--seed is {args.seed}; give a whole number from 0 to 4294967295")
    blocks = [block for path in args.traces for block in blocks_of(Trace.load(path))]
    if not blocks:
        raise DataError("these traces hold no repaired block; record runs with --method cure --trace")
    rate, gains = base_rate(blocks), [block.gain for block in blocks]
    prompts = len({block.prompt for block in blocks})
    print(f"{len(blocks)} repaired blocks of {prompts} prompts, {rate:.4f} of them useful")
    result: dict[str, Any] = {"blocks": len(blocks), "prompts": prompts, "base_rate": rate, "models": {}}
    for model in MODELS:
        found = admit(gains, scores(blocks, model, args.seed), BUDGETS)
        print(f"\n{model}\n{'r':>6} {'precision':>10} {'recall':>8} {'extra tokens':>13}")
        for one in found:
            print(f"{one.r:>6.3f} {one.precision:>10.3f} {one.recall:>8.3f} {one.extra_recall:>13.3f}")
        gap = identity_gap(found, rate)
        print(f"precision * r - recall * base rate: at most {gap:.1e}")
        result["models"][model] = {"budgets": [asdict(one) for one in found], "identity_gap": gap}
    if args.json:
        print(json.dumps(result))
    return 0
