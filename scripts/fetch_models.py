"""Bring the models of the named presets into the cache: `python scripts/fetch_models.py tiny`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from viasd_core.errors import ViasdError
from viasd_core.presets import load_preset
from viasd_core.sources import resolve


def main(names: list[str]) -> int:
    """Fetch and convert what is missing; exit status 2 with one sentence where that fails."""
    try:
        for name in names:
            preset = load_preset(name)
            for source in filter(None, (preset.verifier, preset.drafter.source)):
                print(f"{name}: {source} is in {resolve(source).folder}")
    except ViasdError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
