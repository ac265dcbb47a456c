"""`dimr`: search which layers the slim verifier should skip, and keep the mask."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SettingsError
from ..terminal import aligned
from .main import INTERRUPTED, report

if TYPE_CHECKING:
    from ..dimr.command import Found
    from ..dimr.request import Request
    from ..dimr.search import Observation

SMALL_BUDGET = 200  # up to so many steps a Bayesian step every 5 pays, above it every 25
PENALTIES = ("hinge", "squared", "huber", "soft", "power", "exponential")
UNUSED = {"greedy": ("steps", "theta", "patience", "seed"), "random": ("theta",), "dimr": ()}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "dimr",
        help="search a layer mask for the slim verifier",
        description="Scores masks on the verifier's own continuations, as serving will use them. Ctrl-C "
        "keeps the best mask so far; the log beside it lets --resume go on.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("--preset", required=True, metavar="NAME|FILE.yaml", help="whose verifier")
    parser.add_argument(
        "--skip-ratio", type=float, metavar="R", help="share of layers to skip (default: the preset's)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="MASK.json", help="default: the user's mask folder, where runs look"
    )
    search = parser.add_argument_group("search")
    search.add_argument("--search", default="dimr", help="dimr, random or greedy (default dimr)")
    search.add_argument("--steps", type=int, metavar="S", help="masks at most (default 1000)")
    search.add_argument(
        "--theta", type=int, metavar="T", help="every T-th step is Bayesian (default 25; 5 up to 200 steps)"
    )
    search.add_argument("--patience", type=int, metavar="P", help="steps without a new best (default 300)")
    search.add_argument("--seed", type=int, metavar="S", help="default 0")
    search.add_argument("--ends", action="store_true", help="the first and last layer may be skipped as well")
    search.add_argument(
        "--granularity", default="layer", metavar="G", help="layer, or sublayer: attention and MLP apart"
    )
    search.add_argument(
        "--inside", metavar="MASK", help="the mask of a stronger tier; the found one skips all it skips"
    )
    search.add_argument("--resume", action="store_true", help="continue from the log beside --out")
    score = parser.add_argument_group("scoring")
    score.add_argument("--window", type=int, metavar="W", help="rows behind a settle (default: the debt cap)")
    score.add_argument(
        "--rho", type=float, help="share of cycles that call q, for the weights of ages (default 0.3)"
    )
    score.add_argument("--slim-kv", metavar="KV", help="shared or own (default: the preset's)")
    score.add_argument("--alpha", type=float, help="of the cost (default 0.5)")
    score.add_argument("--beta", type=float, help="of the cost (default 1 - alpha)")
    score.add_argument("--phi", default="hinge", help=f"penalty: {', '.join(PENALTIES)} (default hinge)")
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--data", nargs="+", default=[], metavar="FILE", help="prompts (default: the preset's)"
    )
    texts.add_argument(
        "--held-out", nargs="+", default=[], metavar="FILE", help="prompts (default: every third of --data)"
    )
    texts.add_argument("--prompts", type=int, metavar="N", help="at most, held-out ones included (default 8)")
    texts.add_argument("--tokens", type=int, metavar="N", help="of a continuation, at most (default 60)")
    models = parser.add_argument_group("models and output")
    models.add_argument("--verifier", metavar="SOURCE", help="hub id, folder or GGUF file")
    models.add_argument("--drafter", metavar="D", help="none, layer-skip, lookup, or a model source")
    models.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64")
    models.add_argument("--device", default="auto", help="auto, cpu or cuda")
    models.add_argument("--curve", action="store_true", help="also judge skip ratios from 0.05 to 0.75")
    models.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def run(args: argparse.Namespace) -> int:
    """Everything that can be refused is refused before a model is loaded."""
    from ..dimr.command import Workplace, run_search
    from ..dimr.log import log_path, require_log
    from ..dimr.request import read_texts
    from ..dimr.store import check_target
    from ..pair import load_pair
    from ..presets import load_preset

    request = read_request(args)
    preset = load_preset(args.preset)
    request.scoring(request.settings(preset))
    if args.out is not None:
        check_target(args.out)
        if args.resume:
            require_log(log_path(args.out))
    texts = read_texts(preset, args.data, args.held_out, request.prompts)
    pair = load_pair(
        preset, verifier=args.verifier, drafter=args.drafter, dtype=args.dtype, device=args.device
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill keeps the best as Ctrl-C does
    place = Workplace.prepare(pair, request, texts, args.out)
    found = run_search(place, resume=args.resume, watch=progress(args.json))
    if found is None:
        report("interrupted before the first mask of the wanted size was scored; --resume goes on")
        return INTERRUPTED
    if not found.complete:
        report(f"interrupted; the best mask so far is kept in {found.out}, --resume goes on")
    print(json.dumps(found.as_dict()) if args.json else summary(found))
    return 0 if found.complete else INTERRUPTED


def read_request(args: argparse.Namespace) -> Request:
    """Raises SettingsError, also for options that the chosen search would ignore."""
    from ..dimr.cost import PHIS, CostSettings
    from ..dimr.request import Request
    from ..dimr.search import SearchSettings

    given = {
        key: value
        for key in ("steps", "theta", "patience", "seed")
        if (value := getattr(args, key)) is not None
    }
    unused = [f"--{key}" for key in UNUSED.get(args.search, ()) if key in given]
    if unused:
        raise SettingsError(f"{', '.join(unused)} not used by --search {args.search}; leave it out")
    if given.get("steps", SMALL_BUDGET + 1) <= SMALL_BUDGET:
        given.setdefault("theta", 5)
    values = {
        key: value
        for key in ("skip_ratio", "window", "rho", "slim_kv", "prompts", "tokens")
        if (value := getattr(args, key)) is not None
    }
    if args.phi not in PHIS:
        raise SettingsError(f"--phi is {args.phi!r}; choose one of {', '.join(PHIS)}")
    alpha = 0.5 if args.alpha is None else args.alpha
    beta = 1 - alpha if args.beta is None else args.beta
    return Request(
        SearchSettings(kind=args.search, **given),
        cost=CostSettings(alpha, beta, PHIS[args.phi]),
        ends=args.ends,
        granularity=args.granularity,
        inside=args.inside,
        curve=args.curve,
        **values,
    )


def progress(quiet: bool) -> Any:
    """A line on stderr for every new best mask."""

    def watch(seen: Observation) -> None:
        if seen.accepted and not quiet:
            print(
                f"step {seen.step} ({seen.method}), {seen.t_us / 1e6:.0f} s: "
                f"cost {seen.cost:.4f}  {seen.mask}",
                file=sys.stderr,
            )

    return watch


def summary(found: Found) -> str:
    """What was found, in a few lines."""
    content = found.content
    lines = [
        f"{found.out}: {content['mask']}",
        *([found.aside] if found.aside else []),
        f"cost {content['cost']:.4f} nats a position on the search's texts; "
        f"{found.evaluations} evaluations in {found.seconds:.0f} s",
    ]
    if (held := content["held_out"]) is not None:
        guess, gain = held["predicted"], held["tier_gain"]
        lines += [
            *judged_table("held out", {"found": held, **held["others"]}),
            f"predicted: q called in {guess['rho']:.0%} of cycles, {guess['committed']:.2f} tokens a cycle, "
            f"{guess['speed']:.2f} times speculative decoding; r_eff {held['r_eff']:.2f}",
            "gain of the tier: "
            + (f"{gain['value']:.4f} nats a position" if gain["value"] is not None else gain["reason"]),
        ]
        if "curve" in held:
            points = {f"{point['skip_ratio']:.3f}": point for point in held["curve"]["points"]}
            lines += [*judged_table("r", points), held["curve"]["sentence"]]
    return "\n".join(lines)


def judged_table(name: str, judged: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Judged masks, a line each: nats a position, agreement, and what serving is predicted to give."""
    rows = [
        [label, f"{mask['cost']:.4f}", f"{mask['agreement']:.3f}"]
        + [f"{mask['predicted'][key]:.2f}" for key in ("rho", "committed", "speed")]
        for label, mask in judged.items()
    ]
    return aligned([name, "cost", "agreement", "rho", "tokens/cycle", "speed"], rows, left=(name,))
