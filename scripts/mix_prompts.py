"""Take the first prompts of several published sets into one JSON Lines file for `bench --data`.

python scripts/mix_prompts.py --each 8 --out mix.jsonl gsm8k_test.jsonl HumanEval.jsonl.gz question.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from viasd_core.bench.data import read_items
from viasd_core.errors import ViasdError


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--each", type=int, required=True, metavar="N", help="prompts from each file")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    try:
        sets = [(Path(name).name.split(".")[0], read_items(name, limit=args.each)) for name in args.files]
    except ViasdError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    lines = [
        json.dumps({"id": f"{name}-{item.id}", "task": name, "prompt": item.prompt})
        for name, items in sets
        for item in items
    ]
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{args.out}: {len(lines)} prompts of {len(sets)} sets")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
