"""Settings of one run: frozen, checked once, and the only place that knows which options a method uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from .errors import SettingsError

METHODS = ("ar", "sd", "lossy-sd", "via-sd")
GATES = ("direct", "literal", "swapped")
RULES = ("lossless", "lossy", "pi", "greedy")
BONUSES = ("none", "q-if-called", "slim")
MAX_GAMMA = 64
MAX_TIERS = 8  # slim verifiers
MODEL_TIER = "model:"
STRICT_DEBT_CAP = 16

COMMON_OPTIONS = frozenset(
    {"max_new_tokens", "stop", "temperature", "top_p", "top_k", "min_p", "seed", "trace"}
)
METHOD_OPTIONS: dict[str, frozenset[str]] = {
    "ar": frozenset(),
    "sd": frozenset({"gamma", "bonus"}),
    "lossy-sd": frozenset({"gamma", "bonus", "alpha", "beta"}),
    "via-sd": frozenset(
        {
            "alpha1", "alpha2", "gamma", "skip_ratio", "mask", "gate", "rule_c", "alpha", "beta", "slim_kv",
            "debt_cap", "bonus", "bonus_threshold", "after_escalation", "regenerate", "strict", "final_audit",
            "core_thresholds", "tiers",
        }
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What a run decodes with. Raises SettingsError when a value is out of range or two values contradict.

    VIA-SD defaults are the paper's (arXiv 2606.12243): alpha1 0.5, alpha2 0.3, gamma 5, skip 45 %.
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
    alpha1: float = 0.5
    alpha2: float = 0.3
    skip_ratio: float = 0.45  # share of the verifier's layers that q' skips
    mask: str = "auto"  # auto | even | random:SEED | FILE.json | string of 0/1
    # Slim verifiers in the order they are asked, weak to strong: skip ratios, model:SOURCE, mask files or
    # strings of 0/1. Empty: one, by skip_ratio and mask.
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
        for name in ("alpha1", "alpha2", "bonus_threshold"):
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
        for name in ("regenerate", "strict", "final_audit", "trace"):
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
        _require(
            isinstance(tiers, tuple) and len(tiers) <= MAX_TIERS,
            f"tiers is {tiers!r}; give a tuple of at most {MAX_TIERS} skip ratios, masks and models",
        )
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
        used = COMMON_OPTIONS | METHOD_OPTIONS[self.method] | {"method"}
        values = {key: value for key, value in asdict(self).items() if key in used}
        values["stop"] = list(self.stop)
        if values.get("mask", "").endswith(".json"):
            values["mask"] = PurePath(self.mask).name  # run.json may be shared: no folders of this machine
        if "tiers" in values:
            values |= {"tiers": [public_tier(tier) for tier in self.tiers], "skip_ratio": self.slim_ratio}
        if "bonus" in values:
            values["bonus"] = self.bonus_kind
        if "debt_cap" in values:
            values["debt_cap"] = self.debt_limit(self.gamma)
        return values

    @property
    def bonus_kind(self) -> str:
        """Where a token after a fully kept block comes from: none | q-if-called | slim."""
        if self.bonus is not None:
            return self.bonus
        return "none" if self.method == "via-sd" else "q-if-called"

    @property
    def slim_ratio(self) -> float | None:
        """Skip ratio of the first slim verifier; None where a tier names a mask or a model instead."""
        if not self.tiers:
            return self.skip_ratio
        first = self.tiers[0]
        return None if isinstance(first, str) else first

    def debt_limit(self, gamma: int) -> int | None:
        """Most rows the full verifier may be behind before a settle is due; None = no cap."""
        if self.debt_cap is None:
            return STRICT_DEBT_CAP if self.strict else 4 * gamma
        return self.debt_cap or None


def is_bits(text: str) -> bool:
    """Whether a text is an explicit layer mask, a string of 0 and 1."""
    return bool(text) and not set(text) - {"0", "1"}


def parse_tiers(text: str) -> tuple[float | str, ...]:
    """Tiers as the command line names them, separated by commas: `0.6,0.45` or `model:org/name,0.3`."""
    return tuple(_tier(part.strip()) for part in text.split(","))


def _tier(part: str) -> float | str:
    try:
        return part if is_bits(part) and len(part) > 1 else float(part)
    except ValueError:
        return part


def public_tier(tier: float | str) -> float | str:
    """A tier without folders of this machine; a hub id stays whole."""
    if not isinstance(tier, str):
        return tier
    if not tier.startswith(MODEL_TIER):
        return PurePath(tier).name
    source = tier.removeprefix(MODEL_TIER)
    local = source.startswith(("/", ".", "~")) or source.count("/") > 1 or source.endswith(".gguf")
    return MODEL_TIER + PurePath(source).name if local and not source.startswith("wheel:") else tier


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: no lone surrogates, as undecodable arguments bring them."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def refuse_unused(method: str, given: set[str]) -> None:
    """Refuse options the method would ignore. `given` are Settings field names the user set explicitly.

    Raises SettingsError.
    """
    unused = sorted(given - COMMON_OPTIONS - METHOD_OPTIONS[method] - {"method"})
    if unused:
        flags = ", ".join("--" + name.replace("_", "-") for name in unused)
        verb = "is not used" if len(unused) == 1 else "are not used"
        raise SettingsError(f"{flags} {verb} by method {method!r}; remove it or choose another method")


def refuse_idle(settings: Settings, given: set[str]) -> None:
    """Refuse options that another setting switches off. `given` are field names the user set explicitly.

    Raises SettingsError.
    """
    idle = {
        "alpha": settings.method == "via-sd" and settings.rule_c != "lossy" and "--rule-c lossy",
        "beta": settings.method == "via-sd" and settings.rule_c != "lossy" and "--rule-c lossy",
        "bonus_threshold": settings.bonus_kind != "slim" and "--bonus slim",
    }
    if settings.tiers and "skip_ratio" in given:
        raise SettingsError("--skip-ratio and --tiers contradict each other; give the ratios to --tiers")
    if settings.tiers and "mask" in given and all(isinstance(tier, str) for tier in settings.tiers):
        raise SettingsError("--mask has no effect: no tier is a skip ratio; remove --mask")
    for name, needed in idle.items():
        if name in given and needed:
            flag = "--" + name.replace("_", "-")
            raise SettingsError(f"{flag} has no effect without {needed}; add that or remove {flag}")


def check_drafter(method: str, kind: str) -> None:
    """A method that drafts needs a drafter: without one it would be plain decoding under another name.

    Raises SettingsError.
    """
    if method != "ar" and kind == "none":
        raise SettingsError(
            f"method {method!r} needs a drafter; choose --drafter lookup, layer-skip or a model"
        )


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
