"""VIA-SD Explorer, the page: `python app.py`, then open the address it prints."""

from __future__ import annotations

import page.hardware  # isort: skip  # before anything that touches CUDA

import argparse
import sys

from page.server import close, launch, make_page
from viasd_core.errors import ViasdError


def say_loading(problem: str) -> None:
    if problem:
        print(f"only recorded runs play: {problem}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 2 with one sentence for bad input."""
    parser = argparse.ArgumentParser(description="Watch three-tier speculative decoding, token by token.")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1, or GRADIO_SERVER_NAME)")
    parser.add_argument("--port", type=int, help="default 7860 or the next free one, or GRADIO_SERVER_PORT")
    parser.add_argument("--preset", default="tiny", metavar="NAME|FILE.yaml", help="model pair to open with")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="value the page opens with")
    args = parser.parse_args(argv)
    try:
        made = make_page(preset=args.preset, max_new_tokens=args.max_new_tokens)
        if page.hardware.lends_gpu():
            say_loading(made.engine.load_now(args.preset))
        try:
            launch(made, host=args.host, port=args.port)
        finally:
            close(made)
    except ViasdError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
