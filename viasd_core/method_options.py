"""Methods by name and the options each of them uses: what a run is refused for before any model is loaded."""

from __future__ import annotations

from collections.abc import Collection

from .errors import PairError, SettingsError

METHODS = ("ar", "sd", "lossy-sd", "via-sd", "block", "cure", "eagle2")
SWITCHED_OFF = ("regenerate", "final_audit", "branch0", "resync")  # on unless a --no- flag is given

COMMON_OPTIONS = frozenset(
    {"max_new_tokens", "stop", "temperature", "top_p", "top_k", "min_p", "seed", "trace"}
)
TIER_OPTIONS = frozenset(
    {
        "alpha1", "alpha2", "skip_ratio", "mask", "gate", "slim_kv", "debt_cap", "regenerate", "strict",
        "final_audit", "core_thresholds",
    }
)  # fmt: skip
METHOD_OPTIONS: dict[str, frozenset[str]] = {
    "ar": frozenset(),
    "sd": frozenset({"gamma", "draft_p_min", "lookup_first", "bonus"}),
    "lossy-sd": frozenset({"gamma", "draft_p_min", "lookup_first", "bonus", "alpha", "beta"}),
    "via-sd": frozenset(
        {
            "alpha1", "alpha2", "gamma", "draft_p_min", "lookup_first", "skip_ratio", "mask", "gate",
            "rule_c", "alpha", "beta", "slim_kv", "debt_cap", "bonus", "bonus_threshold", "after_escalation",
            "regenerate", "strict", "final_audit", "core_thresholds", "tiers",
        }
    ),
    "block": frozenset(),
    "eagle2": frozenset({"gamma", "v_max", "beam"}),
    "cure": frozenset(
        {
            "tau_margin", "margin_scale", "v_max", "b_max", "beam", "max_positions", "suffix", "branch0",
            "resync", "tiers", *TIER_OPTIONS,
        }
    ),
}  # fmt: skip
TREE_METHODS = ("cure", "eagle2")
DRAFTER_SHAPES = {"block": "dflash", "cure": "dflash", "eagle2": "eagle3"}  # format of the drafter
IDLE_WITH_LOOKUP = ("draft_p_min", "lookup_first")  # it copies anyway, and names no probabilities
BLOCK_METHODS = ("block", "cure")  # draft a whole block at once, as long as their drafter makes them


def flag_of(name: str) -> str:
    """The command-line flag that sets a field."""
    prefix = "--no-" if name in SWITCHED_OFF else "--"
    return prefix + name.replace("_", "-")


def refuse_unused(method: str, given: set[str]) -> None:
    """Refuse options the method would ignore. `given` are Settings field names the user set explicitly.

    Raises SettingsError.
    """
    unused = sorted(given - COMMON_OPTIONS - METHOD_OPTIONS[method] - {"method"})
    if unused:
        flags = ", ".join(flag_of(name) for name in unused)
        verb = "is not used" if len(unused) == 1 else "are not used"
        raise SettingsError(f"{flags} {verb} by method {method!r}; remove it or choose another method")


def check_drafter(method: str, kind: str, given: Collection[str] = ()) -> None:
    """A method that drafts needs a drafter: without one it would be plain decoding under another name.
    Methods that verify blocks or trees need a trained one. `given` are options set explicitly, which the
    drafter must not leave without effect.

    Raises SettingsError, PairError.
    """
    if method != "ar" and kind == "none":
        raise SettingsError(
            f"method {method!r} needs a drafter; choose --drafter lookup, layer-skip or a model"
        )
    if method in DRAFTER_SHAPES and kind != "model":
        raise PairError(wrong_shape(method, kind))
    idle = [flag_of(name) for name in IDLE_WITH_LOOKUP if name in given and kind == "lookup"]
    if idle:
        raise SettingsError(
            f"{idle[0]} has no effect with the drafter lookup, which copies whatever followed the same words "
            "before; remove it or choose another drafter"
        )


def wrong_shape(method: str, kind: str) -> str:
    """Why a drafter of this kind cannot serve the method, in a sentence."""
    shape = "a whole block at once (DFlash format)" if method != "eagle2" else "trees (EAGLE-3 format)"
    train = f", or train one with distill --kind {'block' if method != 'eagle2' else 'eagle'}"
    return (
        f"method {method!r} needs a drafter that proposes {shape}; this pair's is of kind {kind}: "
        f"name one with --drafter{train}"
    )
