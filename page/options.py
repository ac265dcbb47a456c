"""The settings a user may change on the page: their names, ranges, words, and where they stand."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeGuard

from viasd_core.errors import SettingsError
from viasd_core.live import KNOB_NAMES, MASK_BYTES
from viasd_core.settings import BONUSES, COMMON_OPTIONS, GATES, METHOD_OPTIONS, RULES

LARGEST = 1e300  # of a number that anybody may send; JSON knows no bound
METHOD_WORDS = {
    "via-sd": "VIA-SD (three tiers)",
    "sd": "SD (two tiers, lossless)",
    "lossy-sd": "lossy SD (two tiers)",
    "ar": "AR (full verifier alone)",
}


@dataclass(frozen=True)
class Option:
    """One field of `Settings` as a form control; kind is slider, number, choice or switch."""

    name: str
    label: str
    info: str
    kind: str
    low: float = 0
    high: float = 1
    step: float = 0.01
    choices: tuple[tuple[str, str], ...] = ()  # (words, value)
    whole: bool = False
    optional: bool = False  # a number that may be left empty
    bits: bool = False  # a choice that may also be a string of 0 and 1

    @property
    def live(self) -> bool:
        """Whether it acts during a run."""
        return self.name in KNOB_NAMES

    def used_by(self, method: str) -> bool:
        return self.name in COMMON_OPTIONS | METHOD_OPTIONS[method]

    def info_for(self, method: str) -> str:
        """The explanation, or why the control is disabled."""
        return self.info if self.used_by(method) else f"not used by {method}"

    def shown(self, value: Any) -> Any:
        """A value of `Settings` as the control holds it; inverse of `read`."""
        return "" if self.kind == "choice" and value is None else value

    def read(self, value: Any) -> Any:
        """A form's value as `Settings` takes it. Raises SettingsError."""
        if self.kind == "choice":
            if self.bits and is_bits(value):
                return value
            known = [choice for _, choice in self.choices]
            if value not in known:
                raise SettingsError(
                    f"{self.name} is {reprlib.repr(value)}; choose one of {', '.join(filter(None, known))}"
                )
            return value or None
        if self.kind == "switch":
            if not isinstance(value, bool):
                raise SettingsError(f"{self.name} is {reprlib.repr(value)}; give true or false")
            return value
        if value is None and self.optional:
            return None
        return self._read_number(value)

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
        "after_escalation", "after escalation", "who judges the rest of the block", "choice",
        choices=_words("gate", "q"),
    ),
    Option(
        "debt_cap", "debt cap", "rows the full verifier may be behind; empty: 4 gamma, 0: no cap", "number",
        high=100_000, whole=True, optional=True,
    ),
    Option(
        "mask", "layer mask", "searched masks only, or evenly spaced (useless on small models)", "choice",
        choices=MASK_CHOICES, bits=True,
    ),
    Option("top_k", "top-k", "0 is off", "number", high=10_000_000, whole=True),
    Option("top_p", "top-p", "", "number", high=1, step=0.05),
    Option("min_p", "min-p", "", "number", high=1, step=0.05),
)  # fmt: skip

LIVE = tuple(option for option in OPTIONS if option.live)
BASIC = ("max_new_tokens", "seed")
ADVANCED = tuple(option for option in OPTIONS if not option.live and option.name not in BASIC)
BY_NAME = {option.name: option for option in OPTIONS}
