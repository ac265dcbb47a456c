"""How many masks a search scores until it has found the cheapest one, where that is known.

`python benchmarks/planted.py [--seeds 10] [--out benchmarks/planted.json]`

The costs are those of the tests, planted in a space so small that the cheapest mask is found by looking at
all 792: of 14 layers the first and the last are kept, and 5 of the others skipped. Writes a JSON file and
prints a Markdown table. Counts depend on the seeds alone: nothing is timed, and no model is run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "tests"))

from dimr.dimr_toys import evaluations_needed, separable, with_pairs
from viasd_core.atomic import replace_file
from viasd_core.bench.report import table
from viasd_core.dimr.space import Space

SPACE = Space(14, 5)
THETA = 5
COSTS = {"separable": separable, "with_pairs": with_pairs}
COST_TEXT = {
    "separable": "every layer has its price",
    "with_pairs": "neighbours that go together cost extra",
}
KINDS = ("dimr", "random")


def measure(seeds: int) -> dict[str, Any]:
    """The result file's content."""
    costs = {
        cost: {
            kind: summary([evaluations_needed(kind, planted, SPACE, seed, THETA) for seed in range(seeds)])
            for kind in KINDS
        }
        for cost, planted in COSTS.items()
    }
    space = {"layers": SPACE.n_layers, "skipped": SPACE.skipped, "masks": SPACE.size}
    return {"schema": "viasd-planted/1", "space": space, "theta": THETA, "seeds": seeds, "costs": costs}


def summary(needed: list[int]) -> dict[str, Any]:
    """One search's numbers; `evaluations` has an entry a seed."""
    return {"median": statistics.median(needed), "evaluations": needed}


def markdown(result: dict[str, Any]) -> str:
    """A line a cost and search."""
    space = result["space"]
    rows = [
        [
            COST_TEXT[cost],
            f"`{kind}`",
            f"{found['median']:g}",
            f"{min(found['evaluations'])} to {max(found['evaluations'])}",
        ]
        for cost, searches in result["costs"].items()
        for kind, found in searches.items()
    ]
    return (
        f"Evaluations until the cheapest of {space['masks']} masks ({space['skipped']} of {space['layers']} "
        f"layers skipped, the first and last kept) was found; {result['seeds']} seeds, a Bayesian step every "
        f"{result['theta']}, the scores of single layers counted:\n\n"
        + table(["cost", "search", "median", "range"], rows)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="searches of each kind (default 10)")
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error("--seeds must be at least 1")
    result = measure(args.seeds)
    if args.out is not None:
        text = json.dumps(result, indent=2) + "\n"
        replace_file(args.out, lambda place: place.write_text(text, encoding="utf-8"))
    print(markdown(result), end="")


if __name__ == "__main__":
    main()
