"""The settings of a layer-mask search on the page: the options of the `dimr` command that a form shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from viasd_core.cli.dimr import PENALTIES, UNUSED
from viasd_core.errors import SettingsError

from .options import Option

KINDS = (("DIMR: random and Bayesian", "dimr"), ("random", "random"), ("greedy removal", "greedy"))
UNITS = (("whole layers", "layer"), ("halves: attention and MLP apart", "sublayer"))
PENALTY_WORDS = tuple((name, name) for name in PENALTIES)
LATER = ("steps", "patience", "curve")  # what may change when a search is resumed

SEARCH_OPTIONS = (
    Option("search", "search", "how masks are proposed", "choice", choices=KINDS),
    Option(
        "skip_ratio", "skip ratio of the mask", "share of layers to leave out", "slider", low=0.02, high=0.9
    ),
    Option("granularity", "what a mask skips", "of halves there are twice as many", "choice", choices=UNITS),
    Option("steps", "steps", "masks to score, at most", "number", low=1, high=100_000, whole=True),
    Option("theta", "theta", "every so many steps a Bayesian one", "number", low=1, high=100_000, whole=True),
    Option("patience", "patience", "steps without a better mask", "number", low=1, high=100_000, whole=True),
    Option(
        "window", "window", "rows behind a settle; 0: the debt cap", "number", high=100_000, whole=True,
        optional=True,
    ),
    Option("seed", "seed", "of every random choice", "number", high=2**31 - 1, whole=True),
    Option(
        "prompts", "prompts", "at most; every third is held out", "number", low=2, high=1000,
        whole=True,
    ),
    Option(
        "tokens", "tokens a prompt", "that the full verifier continues", "number", low=1, high=4096,
        whole=True,
    ),
    Option(
        "own", "your own prompts", "one a line, in place of the pair's; every third is held out", "lines"
    ),
    Option("rho", "rho", "cycles that call the full verifier", "number", high=0.99, step=0.05),
    Option("alpha", "alpha of the cost", "slack above the full verifier", "number", high=0.99, step=0.05),
    Option(
        "beta", "beta of the cost", "at least 1 - alpha; 0: that", "number", high=1e6, step=0.05, none_at=0
    ),
    Option("phi", "penalty", "of a token that the mask makes too likely", "choice", choices=PENALTY_WORDS),
    Option("ends", "the first and last layer may be skipped as well", "", "switch"),
    Option(
        "inside", "inside of the mask", "of 0 and 1: skip all it skips, for several slim verifiers", "bits"
    ),
    Option("curve", "also judge skip ratios from 5 to 75 %", "takes as long as 16 masks", "switch"),
)  # fmt: skip
SEARCH_BY_NAME = {option.name: option for option in SEARCH_OPTIONS}
DEFAULTS: dict[str, Any] = {
    "search": "dimr", "skip_ratio": None, "granularity": "layer", "steps": 120, "theta": 5, "patience": 60,
    "window": 0, "seed": 0, "prompts": 8, "tokens": 60, "own": "", "rho": 0.3, "alpha": 0.5, "beta": 0,
    "phi": "hinge", "ends": False, "inside": "", "curve": False,
}  # fmt: skip


def read_search(values: Mapping[str, Any]) -> dict[str, Any]:
    """A form's values as the command takes them; those that the chosen search does not use are None.

    Raises SettingsError.
    """
    kind = SEARCH_BY_NAME["search"].read(values["search"])
    asked = {"search": kind} | read_for(kind, [option.name for option in SEARCH_OPTIONS[1:]], values)
    own = asked["own"] = list(dict.fromkeys(asked["own"]))
    if len(own) > asked["prompts"]:
        raise SettingsError(
            f"own has {len(own)} prompts and prompts allows {asked['prompts']}; raise prompts"
        )
    return asked | {"window": asked["window"] or None}


def read_for(kind: str, names: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Some of a form's values, for a search of a known kind. Raises SettingsError."""
    options = {name: SEARCH_BY_NAME[name] for name in names}
    return {
        name: None if unused_by(kind, name) else _inside(option, option.read(values[name]))
        for name, option in options.items()
    }


def _inside(option: Option, value: Any) -> Any:
    """Raises SettingsError for a number out of range, or one that should be whole."""
    if option.kind not in ("slider", "number") or value is None:
        return value
    if not option.low <= value <= option.high or (option.whole and not isinstance(value, int)):
        whole = "a whole number" if option.whole else "a number"
        raise SettingsError(
            f"{option.name} is {value:g}; give {whole} from {option.low:g} to {option.high:g}"
        )
    return value


def unused_by(kind: str, name: str) -> bool:
    return name in UNUSED.get(kind, ())
