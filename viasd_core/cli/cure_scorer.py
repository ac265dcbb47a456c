"""`cure-scorer`: from recorded CURE runs, how well useful repairs can be told beforehand (Table 5)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import replace_file
from ..bench.table import number, table
from ..errors import DataError
from ..trace import Trace

if TYPE_CHECKING:
    from ..cure.scorer import Admission

MEASURES = ("precision", "recall", "extra tokens")
PUBLISHED = {  # Table 5: share admitted -> MEASURES
    0.1: (0.359, 0.308, 0.396),
    0.2: (0.291, 0.500, 0.603),
    0.3: (0.246, 0.635, 0.716),
    0.4: (0.221, 0.760, 0.834),
    0.5: (0.195, 0.837, 0.888),
}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cure-scorer", help="how well recorded repairs could have been ranked before they were verified"
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="bundles of cure runs, of several prompts")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the split and of the boosting")
    parser.add_argument("--out", metavar="REPORT.md", help="also write the tables to a file")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Raises DataError for traces without repairs or of a single prompt and for a report that cannot be
    written, TraceError for unreadable traces.
    """
    from ..cure.scorer import MODELS, admit, base_rate, blocks_of, identity_gap, scores

    if not 0 <= args.seed < 2**32:
        raise DataError(f"--seed is {args.seed}; give a whole number from 0 to 4294967295")
    blocks = [block for path in args.traces for block in blocks_of(Trace.load(path))]
    if not blocks:
        raise DataError(
            "these traces hold no repaired block that can be compared with branch 0; record runs with "
            "--method cure --trace"
        )
    rate, gains = base_rate(blocks), [block.gain for block in blocks]
    prompts = len({block.prompt for block in blocks})
    result: dict[str, Any] = {"blocks": len(blocks), "prompts": prompts, "base_rate": rate, "models": {}}
    parts = [f"{len(blocks)} repaired blocks of {prompts} prompts, {rate:.4f} of them useful (paper: 0.1165)"]
    for model in MODELS:
        found = admit(gains, scores(blocks, model, args.seed), PUBLISHED)
        gap = identity_gap(found, rate)
        parts += [f"### {model}", admissions_table(found)]
        parts += [f"precision * r - recall * base rate: at most {gap:.1e}"]
        result["models"][model] = {"budgets": [asdict(one) for one in found], "identity_gap": gap}
    report = "\n\n".join(parts)
    print(report)
    if args.out:
        write_report(Path(args.out), report)
    if args.json:
        print(json.dumps(result))
    return 0


def admissions_table(admissions: Sequence[Admission]) -> str:
    """What each budget admits, beside the paper's Table 5."""
    head = ("r", "precision", "recall", "extra tokens", *(f"paper: {name}" for name in MEASURES))
    rows = []
    for budget, one in zip(PUBLISHED, admissions, strict=True):
        measured = (one.r, one.precision, one.recall, one.extra_recall)
        rows.append([number(value, 3) for value in (*measured, *PUBLISHED[budget])])
    return table(head, rows)


def write_report(path: Path, text: str) -> None:
    try:
        replace_file(path, lambda beside: beside.write_text(text + "\n", encoding="utf-8"))
    except OSError as error:
        raise DataError(f"--out {path} cannot be written ({error.strerror}); give another file") from error
