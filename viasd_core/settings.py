"""Settings of one run: frozen, checked once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from .errors import SettingsError
from .method_options import (
    COMMON_OPTIONS,
    METHOD_OPTIONS,
    METHODS,
    SWITCHED_OFF,
    TIER_OPTIONS,
    TREE_METHODS,
    flag_of,
)
from .tier_names import MODEL_TIER, VIA_SD_TIERS, is_bits, public_tier

GATES = ("direct", "literal", "swapped")
RULES = ("lossless", "lossy", "pi", "greedy")
BONUSES = ("none", "q-if-called", "slim")
SUFFIXES = ("auto", "S1", "S2", "S4")
MAX_GAMMA = 64
MAX_TREE = 256  # nodes; the KV slots of a run hold them beside the text
MAX_TIERS = 8  # slim verifiers
STRICT_DEBT_CAP = 16


@dataclass(frozen=True)
class Settings:
    """What a run decodes with. Raises SettingsError when a value is out of range or two values contradict.

    VIA-SD defaults are the paper's (arXiv 2606.12243): alpha1 0.5, alpha2 0.3, gamma 5, skip 45 %. CURE's are
    those of fast_margin100, its paper's main configuration (arXiv 2608.00531).
    """

    method: str = "via-sd"
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    temperature: float = 0.0  # 0 = greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 = off
    min_p: float = 0.0
    seed: int = 0
    gamma: int = 5  # drafted tokens a cycle, at most
    lookup_first: bool = False  # copy what followed the same words earlier before the drafter is asked
    draft_p_min: float = (
        0.0  # a draft ends before a token of which the drafter is less sure than this; 0: off
    )
    alpha1: float = 0.5
    alpha2: float = 0.3
    skip_ratio: float = 0.45  # share of the verifier's layers that q' skips
    mask: str = "auto"  # auto | even | random:SEED | FILE.json | string of 0/1
    # VIA-SD: slim verifiers in the order they are asked, weak to strong: skip ratios, model:SOURCE, mask
    # files or strings of 0/1. Empty: one, by skip_ratio and mask. CURE: ("via-sd",), its trees go through q'.
    tiers: tuple[float | str, ...] = ()
    gate: str = "direct"
    core_thresholds: tuple[float, float] | None = (
        None  # (tau1, tau2) in place of the alphas; above 1: always C
    )
    rule_c: str = "lossless"
    alpha: float = 0.0  # lossy rule
    beta: float = 1.0  # lossy rule
    slim_kv: str = "shared"
    debt_cap: int | None = None  # rows; None = 4 gamma (strict: 16), 0 = no cap
    bonus: str | None = None  # None = the method's own default: q-if-called for SD, none for VIA-SD
    bonus_threshold: float = 0.9
    after_escalation: str = "gate"
    regenerate: bool = True  # False: region B escalates too (binary hierarchical SD)
    strict: bool = False
    final_audit: bool = True
    tau_margin: float = 1.0  # CURE: nats; a drafted position with a smaller margin is uncertain
    margin_scale: float | None = None  # nats over which the number of repairs falls to 1; None = tau_margin
    v_max: int = 90  # nodes of a tree, the anchor not counted; branch 0 is kept whole whatever it says
    b_max: int = 5  # repairs tried at one position, at most
    beam: int = 5  # repair nodes at one depth, at most; EAGLE-2: nodes expanded at one depth, and of each
    max_positions: int = 1  # positions repaired in one block, at most
    # Behind a repair: S1 reuse the draft, S2 draft anew, S4 redo Domino's correction; auto: S2 or S1, by what
    # the drafter was trained on or by measurement (suffix_choice.py).
    suffix: str = "auto"
    branch0: bool = True  # False: verify the repaired paths alone (ablation)
    resync: bool = True  # False: leave the drafter the features of the first rows, not the path's (ablation)
    trace: bool = True

    def __post_init__(self) -> None:
        _require(
            self.method in METHODS, f"unknown method {self.method!r}; choose one of {', '.join(METHODS)}"
        )
        _integer("max_new_tokens", self.max_new_tokens, 1, 1_000_000)
        _integer("gamma", self.gamma, 1, MAX_GAMMA)
        _integer("top_k", self.top_k, 0, 10_000_000)
        _integer("seed", self.seed, 0, 2**63 - 1)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _number("min_p", self.min_p, 0.0, 1.0)
        for name in ("alpha1", "alpha2", "bonus_threshold", "draft_p_min"):
            _number(name, getattr(self, name), 0.0, 1.0)
        _number("skip_ratio", self.skip_ratio, 0.0, 0.95)
        _number("alpha", self.alpha, 0.0, 1.0, open_high=True)
        _number("beta", self.beta, 0.0, 1e6, open_low=True)
        _choice("gate", self.gate, GATES)
        _choice("rule_c", self.rule_c, RULES)
        _choice("slim_kv", self.slim_kv, ("shared", "own"))
        _choice("after_escalation", self.after_escalation, ("gate", "q"))
        if self.bonus is not None:
            _choice("bonus", self.bonus, BONUSES if self.method == "via-sd" else BONUSES[:2])
        _number("tau_margin", self.tau_margin, 0.0, 1000.0)
        if self.margin_scale is not None:
            _number("margin_scale", self.margin_scale, 0.0, 1000.0, open_low=True)
        _integer("v_max", self.v_max, 1, MAX_TREE)
        for name in ("b_max", "beam", "max_positions"):
            _integer(name, getattr(self, name), 1, MAX_GAMMA)
        _choice("suffix", self.suffix, SUFFIXES)
        for name in (*SWITCHED_OFF, "lookup_first", "strict", "trace"):
            value = getattr(self, name)
            _require(isinstance(value, bool), f"{name} is {value!r}; give true or false")
        if self.debt_cap is not None:
            _integer("debt_cap", self.debt_cap, 0, 100_000)
        strings = isinstance(self.stop, tuple) and all(isinstance(stop, str) for stop in self.stop)
        _require(strings, f"stop is {self.stop!r}; give a tuple of strings")
        _require(all(map(is_text, self.stop)), "a stop string holds half a character (a lone surrogate)")
        _require(all(self.stop), "a stop string is empty; give at least one character")
        _require(isinstance(self.mask, str), f"mask is {self.mask!r}; give text, such as auto or a file name")
        if self.core_thresholds is not None:
            _require(
                isinstance(self.core_thresholds, tuple) and len(self.core_thresholds) == 2,
                f"core_thresholds is {self.core_thresholds!r}; give a pair (tau1, tau2)",
            )
            for tau in self.core_thresholds:
                _number("core_thresholds", tau, 0.0, 1e9)
        self._check_tiers()
        self._check_combinations()

    def _check_tiers(self) -> None:
        tiers = self.tiers
        if self.method == "cure":
            _require(tiers in ((), VIA_SD_TIERS), f"tiers is {tiers!r}; method cure takes via-sd, or none")
            return
        _require(
            isinstance(tiers, tuple), f"tiers is {tiers!r}; give skip ratios, masks and models as a tuple"
        )
        _require(len(tiers) <= MAX_TIERS, f"tiers names {len(tiers)} slim verifiers; at most {MAX_TIERS} go")
        _require(
            "via-sd" not in tiers,
            "tiers via-sd goes with method cure; name skip ratios, masks or model:SOURCE",
        )
        _require(MODEL_TIER not in tiers, "tier model: names no source; write model: and a hub id or folder")
        for tier in tiers:
            if isinstance(tier, str):
                named = tier.startswith(MODEL_TIER) and len(tier) > len(MODEL_TIER)
                _require(
                    named or tier.endswith(".json") or is_bits(tier),
                    f"tier {tier!r} is none of a skip ratio, model:SOURCE, a mask file (.json) and a mask of "
                    "0 and 1",
                )
            else:
                _number("a tier's skip ratio", tier, 0.0, 0.95, open_low=True)
            _require(tiers.count(tier) == 1, f"tiers names {tier!r} more than once; name it once")
        ratios = [tier for tier in tiers if not isinstance(tier, str)]
        _require(
            ratios == sorted(ratios, reverse=True),
            f"tiers has the skip ratios {', '.join(f'{ratio:g}' for ratio in ratios)}; name the weakest tier "
            "first, so that the ratios fall",
        )
        explicit = not (self.mask in ("auto", "even") or self.mask.startswith("random:"))
        _require(
            not (tiers and explicit),
            f"mask {self.mask} and tiers contradict each other; name that mask as a tier instead",
        )
        _require(
            len(tiers) < 2 or self.rule_c != "pi",
            "rule pi mixes one slim verifier with p and q; choose another rule, or a single tier",
        )

    def _check_combinations(self) -> None:
        _require(
            self.beta >= 1 - self.alpha - 1e-12,
            f"beta {self.beta:g} is too small; the lossy rule needs beta >= 1 - alpha = {1 - self.alpha:g}",
        )
        _require(
            not self.tiers or (self.branch0 and self.resync),
            "leaving out branch 0 or the resynchronisation is an ablation of plain CURE; drop tiers for it",
        )
        if self.method == "eagle2":
            _require(
                self.gamma * self.beam <= MAX_TREE,
                f"gamma {self.gamma} times beam {self.beam} expands more than {MAX_TREE} nodes; lower one",
            )
        if self.strict:
            _require(
                self.temperature == 0,
                f"strict needs temperature 0, got {self.temperature:g}; drop strict or the temperature",
            )
            _require(
                self.rule_c == "lossless",
                f"strict works with the lossless rule in region C only, got {self.rule_c!r}",
            )

    def with_(self, **changes: Any) -> Settings:
        """A checked copy with some values replaced."""
        unknown = sorted(set(changes) - set(self.__dataclass_fields__))
        _require(
            not unknown,
            f"unknown setting {', '.join(unknown)}; known: {', '.join(self.__dataclass_fields__)}",
        )
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for run.json: the common options and those the method uses."""
        used = COMMON_OPTIONS | self.own_options | {"method"}
        values = {key: value for key, value in asdict(self).items() if key in used}
        values["stop"] = list(self.stop)
        if values.get("mask", "").endswith(".json"):
            values["mask"] = PurePath(self.mask).name  # run.json may be shared: no folders of this machine
        if "tiers" in values:
            values["tiers"] = [public_tier(tier) for tier in self.tiers]
        if "skip_ratio" in values:
            values["skip_ratio"] = self.slim_ratio
        if "bonus" in values:
            values["bonus"] = self.bonus_kind
        if "debt_cap" in values and self.method == "via-sd":
            values["debt_cap"] = self.debt_limit(self.gamma)
        return values

    @property
    def uses_slim(self) -> bool:
        """Whether a slim verifier takes part."""
        return self.method == "via-sd" or bool(self.tiers)

    @property
    def own_options(self) -> frozenset[str]:
        """The method's options that have an effect."""
        known = METHOD_OPTIONS[self.method]
        return known - TIER_OPTIONS if self.method == "cure" and not self.tiers else known

    @property
    def copies_first(self) -> bool:
        """`lookup_first` where the method has it."""
        return self.lookup_first and "lookup_first" in self.own_options

    @property
    def least_sure(self) -> float:
        """`draft_p_min` where the method has it: whole blocks are drafted whole."""
        return self.draft_p_min if "draft_p_min" in self.own_options else 0.0

    @property
    def tree_room(self) -> int:
        """KV slots a run needs beside its text, for tree nodes that are not part of it."""
        return MAX_TREE if self.method in TREE_METHODS else 0

    @property
    def bonus_kind(self) -> str:
        """Where a token after a fully kept block comes from: none | q-if-called | slim."""
        if self.bonus is not None:
            return self.bonus
        return "none" if self.method == "via-sd" else "q-if-called"

    @property
    def slim_tiers(self) -> tuple[float | str, ...]:
        """The slim verifiers that `tiers` names."""
        return self.tiers if self.method == "via-sd" else ()

    @property
    def slim_ratio(self) -> float | None:
        """Skip ratio of the first slim verifier; None where a tier names a mask or a model instead."""
        if not self.slim_tiers:
            return self.skip_ratio
        first = self.slim_tiers[0]
        return None if isinstance(first, str) else first

    def debt_limit(self, gamma: int) -> int | None:
        """Most rows the full verifier may be behind before a settle is due; None = no cap."""
        if self.debt_cap is None:
            return STRICT_DEBT_CAP if self.strict else 4 * gamma
        return self.debt_cap or None


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: no lone surrogates, as undecodable arguments bring them."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def refuse_idle(settings: Settings, given: set[str]) -> None:
    """Refuse options that another setting switches off. `given` are field names the user set explicitly.

    Raises SettingsError.
    """
    idle = {
        "alpha": settings.method == "via-sd" and settings.rule_c != "lossy" and "--rule-c lossy",
        "beta": settings.method == "via-sd" and settings.rule_c != "lossy" and "--rule-c lossy",
        "bonus_threshold": settings.bonus_kind != "slim" and "--bonus slim",
    }
    idle |= dict.fromkeys(METHOD_OPTIONS[settings.method] - settings.own_options, "--tiers via-sd")
    named = settings.slim_tiers
    if named and "skip_ratio" in given:
        raise SettingsError("--skip-ratio and --tiers contradict each other; give the ratios to --tiers")
    if named and "mask" in given and all(isinstance(tier, str) for tier in named):
        raise SettingsError("--mask has no effect: no tier is a skip ratio; remove --mask")
    for name, needed in idle.items():
        if name in given and needed:
            flag = flag_of(name)
            raise SettingsError(f"{flag} has no effect without {needed}; add that or remove {flag}")


def gate_thresholds(alpha1: float, alpha2: float, convention: str) -> tuple[float, float]:
    """(tau1, tau2) of the core gate from the paper's two alphas.

    VIA-SD App. B is inconsistent: B.1-B.3 print tau_i = 1 - alpha_i, which leaves region B empty at the
    paper's own defaults, while its figures and text describe tau_i = alpha_i. `direct` is the latter,
    `literal` the former, `swapped` pairs 1 - alpha2 with tau1.
    """
    if convention == "direct":
        return alpha1, alpha2
    if convention == "literal":
        return 1 - alpha1, 1 - alpha2
    return 1 - alpha2, 1 - alpha1


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SettingsError(message)


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, f"{name} is {value!r}; choose one of {', '.join(allowed)}")


def _integer(name: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    _require(whole and low <= value <= high, f"{name} is {value!r}; give a whole number from {low} to {high}")


def _number(
    name: str, value: Any, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300
    inside = (
        number
        and low <= value <= high
        and not (open_low and value == low)
        and not (open_high and value == high)
    )
    edge_low, edge_high = ("above " if open_low else ""), ("below " if open_high else "")
    _require(inside, f"{name} is {value!r}; give a number from {edge_low}{low:g} to {edge_high}{high:g}")
