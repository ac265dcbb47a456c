"""The settings a user may change on the page: their names, ranges, words, and where they stand."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeGuard

from viasd_core.errors import SettingsError
from viasd_core.live import KNOB_NAMES, MASK_BYTES
from viasd_core.method_options import COMMON_OPTIONS, METHOD_OPTIONS, TIER_OPTIONS
from viasd_core.settings import BONUSES, GATES, MAX_TIERS, MAX_TREE, RULES, SUFFIXES
from viasd_core.tier_names import VIA_SD_TIERS, parse_tiers

LONGEST = MAX_TIERS * (MASK_BYTES + 2)  # characters of a text
LONGEST_LINES = 50_000
LARGEST = 1e300  # of a number that anybody may send; JSON knows no bound
METHOD_WORDS = {
    "via-sd": "VIA-SD (three tiers)",
    "sd": "SD (two tiers, lossless)",
    "lossy-sd": "lossy SD (two tiers)",
    "ar": "AR (full verifier alone)",
    "block": "block (parallel draft, lossless)",
    "cure": "CURE (block with repair trees)",
    "eagle2": "EAGLE-2 (dynamic trees)",
}


@dataclass(frozen=True)
class Option:
    """One field of `Settings` as a form control; kind is slider, number, choice, switch, tiers, bits (a layer
    mask, or empty) or lines (texts, one a line).

    A field that methods read differently has a control for each: `only` names its methods, `sets` the field.
    """

    name: str
    label: str
    info: str
    kind: str
    low: float = 0
    high: float = 1
    step: float = 0.01
    choices: tuple[tuple[str, str], ...] = ()  # (words, value)
    whole: bool = False
    none_at: float | None = None  # the value that stands for None: Gradio shows an empty number as 0
    apart: bool = False  # shown with the methods that use it only, not greyed out with the others
    optional: bool = False  # a number that may be left empty
    bits: bool = False  # a choice that may also be a string of 0 and 1
    sets: str = ""  # the field, where `name` is not its name
    only: tuple[str, ...] = ()  # methods; empty: all that use the field

    @property
    def field(self) -> str:
        return self.sets or self.name

    @property
    def longest(self) -> int:
        """Characters of a text, at most."""
        return LONGEST_LINES if self.kind == "lines" else LONGEST

    @property
    def live(self) -> bool:
        """Whether it acts during a run."""
        return self.name in KNOB_NAMES

    def used_by(self, method: str) -> bool:
        return (not self.only or method in self.only) and (
            self.field in COMMON_OPTIONS | METHOD_OPTIONS.get(method, frozenset())
        )

    def shown_with(self, method: str) -> bool:
        """Whether the form shows the control at all."""
        return not self.apart or self.used_by(method)

    def info_for(self, method: str) -> str:
        """The explanation, or why the control is disabled."""
        if not self.used_by(method):
            return f"not used by {method}"
        idle = method == "cure" and self.name in TIER_OPTIONS
        return f"{self.info}; cure: only with VIA-SD's tiers" if idle else self.info

    def shown(self, value: Any) -> Any:
        """A value of `Settings` as the control holds it; inverse of `read`."""
        if value is None and self.none_at is not None:
            return self.none_at
        if value is not None and value == self.none_at:
            return self.high  # no cap: the mark for None hides it, and no run reaches the largest one
        if self.field == "tiers":
            return ",".join(map(str, value))
        return "" if self.kind == "choice" and value is None else value

    def read(self, value: Any) -> Any:
        """A form's value as `Settings` takes it. Raises SettingsError."""
        if self.kind == "choice":
            if self.bits and is_bits(value):
                return value
            known = [choice for _, choice in self.choices]
            if value not in known:
                raise SettingsError(
                    f"{self.field} is {reprlib.repr(value)}; choose one of {', '.join(filter(None, known))}"
                )
            if self.field == "tiers":
                return VIA_SD_TIERS if value else ()
            return value or None
        if self.kind in ("tiers", "bits", "lines"):
            return self._read_text(value)
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise SettingsError(f"{self.name} is {reprlib.repr(value)}; give true or false")
            return value
        if value is None and self.optional:
            return None
        number = self._read_number(value)
        return None if number == self.none_at else number

    def _read_text(self, value: Any) -> Any:
        example = {"tiers": " such as 0.5,0.2", "bits": " of 0 and 1"}.get(self.kind, "")
        if not isinstance(value, str):
            raise SettingsError(f"{self.name} is {reprlib.repr(value)}; give text{example}")
        if len(value) > self.longest:
            raise SettingsError(f"{self.name} has {len(value)} characters; at most {self.longest} go")
        if self.kind == "lines":
            return [line.strip() for line in value.splitlines() if line.strip()]
        if not value.strip():
            return () if self.kind == "tiers" else None
        if self.kind == "tiers":
            return parse_tiers(value)
        if not is_bits(value.strip()):
            raise SettingsError(f"{self.name} is {reprlib.repr(value)}; give a layer mask of 0 and 1")
        return value.strip()

    def _read_number(self, value: Any) -> int | float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not abs(value) <= LARGEST:  # so that not-a-number is refused too
            raise SettingsError(f"{self.name} is {reprlib.repr(value)}; give a number")
        if self.whole and value == int(value):
            return int(value)
        return value if self.whole else float(value)


def is_bits(value: object) -> TypeGuard[str]:
    """Whether a value is a layer mask as a 0/1 string, which may come from anybody."""
    return isinstance(value, str) and 0 < len(value) <= MASK_BYTES and not set(value) - {"0", "1"}


def one_of(what: str, value: object, known: Collection[str]) -> str:
    """`value`, if it is one of the known words. Raises SettingsError."""
    if isinstance(value, str) and value in known:
        return value
    raise SettingsError(f"there is no {what} {reprlib.repr(value)}; choose one of {', '.join(known)}")


def _words(*values: str) -> tuple[tuple[str, str], ...]:
    return tuple((value, value) for value in values)


MASK_CHOICES = (("searched", "auto"), ("even", "even"))

OPTIONS = (
    Option(
        "tau_margin", "tau margin", "nats; a drafted position with a smaller top-2 margin is uncertain",
        "slider", high=5, step=0.05, apart=True,
    ),
    Option(
        "margin_scale", "margin scale s", "nats over which repairs fall from b max to 1; 0: as tau margin",
        "slider", high=5, step=0.05, none_at=0, apart=True,
    ),
    Option(
        "v_max", "V max", "nodes of a tree, at most; branch 0 is kept whole", "slider",
        low=1, high=MAX_TREE, step=1, whole=True, apart=True,
    ),
    Option(
        "b_max", "b max", "repairs at one position, at most", "slider",
        low=1, high=16, step=1, whole=True, apart=True,
    ),
    Option(
        "max_positions", "positions", "repaired in one block, at most", "slider",
        low=1, high=16, step=1, whole=True, apart=True,
    ),
    Option(
        "alpha1", "alpha1", "lower bound for keeping a draft on the slim verifier's word (region A)", "slider"
    ),
    Option("alpha2", "alpha2", "below it the full verifier decides (region C)", "slider"),
    Option(
        "gamma", "gamma", "drafted tokens a cycle, at most", "slider", low=1, high=16, step=1, whole=True
    ),
    Option(
        "skip_ratio", "skip ratio", "share of layers the slim verifier skips; nearest stored mask", "slider",
        high=0.6,
    ),
    Option("temperature", "temperature", "0 is greedy", "slider", high=2, step=0.05),
    Option("max_new_tokens", "max new tokens", "", "number", low=1, high=1_000_000, whole=True),
    Option("seed", "seed", "", "number", high=2**31 - 1, whole=True),
    Option("gate", "gate convention", "how the alphas become thresholds", "choice", choices=_words(*GATES)),
    Option("rule_c", "rule in region C", "how the full verifier judges", "choice", choices=_words(*RULES)),
    Option("alpha", "alpha (lossy rule)", "", "number", step=0.05),
    Option("beta", "beta (lossy rule)", "at least 1 - alpha", "number", high=1e6, step=0.05),
    Option("strict", "strict", "lossless by retro-audit and rollback; temperature 0 only", "switch"),
    Option(
        "slim_kv", "slim verifier's cache", "shared with the full verifier, or its own", "choice",
        choices=_words("shared", "own"),
    ),
    Option(
        "bonus", "bonus token", "after a block that was kept whole", "choice",
        choices=(("the method's own default", ""), *_words(*BONUSES)),
    ),
    Option(
        "draft_p_min", "draft p min", "a draft ends before a token of which the drafter is less sure; 0: off",
        "number", high=1, step=0.05,
    ),
    Option(
        "lookup_first", "look up first", "what followed the same words earlier, before the drafter is asked",
        "switch",
    ),
    Option(
        "after_escalation", "after escalation", "who judges the rest of the block", "choice",
        choices=_words("gate", "q"),
    ),
    Option(
        "debt_cap", "debt cap", "rows the full verifier may be behind; 0: 4 gamma (strict: 16)", "number",
        high=100_000, whole=True, optional=True, none_at=0,
    ),
    Option(
        "mask", "layer mask", "searched masks only, or evenly spaced (useless on small models)", "choice",
        choices=MASK_CHOICES, bits=True,
    ),
    Option(
        "tiers", "slim verifiers", "several, weakest first: skip ratios or masks, as 0.5,0.2; empty: one",
        "tiers", apart=True, only=("via-sd",),
    ),
    Option(
        "tree_tiers", "trees are verified by",
        "VIA-SD's gates choose a path before the full verifier is asked", "choice",
        choices=(("the full verifier alone", ""), ("VIA-SD's tiers", "via-sd")), apart=True,
        sets="tiers", only=("cure",),
    ),
    Option(
        "beam", "beam", "repair nodes at one depth, at most", "number",
        low=1, high=64, step=1, whole=True, apart=True,
    ),
    Option(
        "suffix", "suffix", "behind repairs: S1 reuse the draft, S2 draft anew, S4 redo Domino's correction, "
        "auto whichever of S1 and S2 suits the drafter",
        "choice", choices=_words(*SUFFIXES), apart=True,
    ),
    Option("branch0", "verify branch 0", "off: the repaired paths alone (ablation)", "switch", apart=True),
    Option(
        "resync", "resynchronise", "off: the drafter keeps stale features (ablation)", "switch", apart=True
    ),
    Option("top_k", "top-k", "0 is off", "number", high=10_000_000, whole=True),
    Option("top_p", "top-p", "", "number", high=1, step=0.05),
    Option("min_p", "min-p", "", "number", high=1, step=0.05),
)  # fmt: skip

LIVE = tuple(option for option in OPTIONS if option.live)
BASIC = ("max_new_tokens", "seed")
ADVANCED = tuple(option for option in OPTIONS if not option.live and option.name not in BASIC)
BY_NAME = {option.name: option for option in OPTIONS}
