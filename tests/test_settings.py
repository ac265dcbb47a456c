"""Settings: paper defaults, ranges, contradictions, gate conventions, unused options."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from viasd_core.errors import SettingsError
from viasd_core.method_options import COMMON_OPTIONS, METHOD_OPTIONS, METHODS, TIER_OPTIONS, refuse_unused
from viasd_core.settings import Settings, gate_thresholds, refuse_idle


def test_the_defaults_are_the_papers() -> None:
    settings = Settings()
    assert (settings.alpha1, settings.alpha2, settings.gamma, settings.skip_ratio) == (0.5, 0.3, 5, 0.45)
    assert (settings.gate, settings.rule_c, settings.slim_kv, settings.bonus_kind) == (
        "direct", "lossless", "shared", "none"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("convention", "expected"),
    [("direct", (0.5, 0.3)), ("literal", (0.5, 0.7)), ("swapped", (0.7, 0.5))],
)
def test_the_three_readings_of_the_papers_thresholds(convention: str, expected: tuple[float, float]) -> None:
    assert gate_thresholds(0.5, 0.3, convention) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"method": "magic"}, "choose one of ar, sd, lossy-sd, via-sd, block, cure, eagle2"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0; give a whole number from 1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens is 2.5; give a whole number"),
        ({"gamma": 0}, "gamma is 0; give a whole number from 1 to 64"),
        ({"gamma": 65}, "gamma is 65"),
        ({"gamma": True}, "gamma is True"),
        ({"top_k": -1}, "top_k is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"temperature": -0.1}, "temperature is -0.1; give a number from 0 to 100"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": 0.0}, "top_p is 0.0; give a number from above 0 to 1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": 1.5}, "min_p is 1.5"),
        ({"alpha1": 1.2}, "alpha1 is 1.2"),
        ({"alpha2": -0.2}, "alpha2 is -0.2"),
        ({"skip_ratio": 0.99}, "skip_ratio is 0.99"),
        ({"alpha": 1.0}, "alpha is 1.0; give a number from 0 to below 1"),
        ({"beta": 0.0}, "beta is 0.0"),
        ({"gate": "strict"}, "gate is 'strict'; choose one of direct, literal, swapped"),
        ({"rule_c": "typical"}, "rule_c is 'typical'"),
        ({"slim_kv": "mine"}, "slim_kv is 'mine'"),
        ({"after_escalation": "stop"}, "after_escalation is 'stop'"),
        ({"bonus": "always"}, "bonus is 'always'"),
        ({"method": "sd", "bonus": "slim"}, "bonus is 'slim'; choose one of none, q-if-called"),
        ({"tau_margin": -0.1}, "tau_margin is -0.1; give a number from 0"),
        ({"margin_scale": 0.0}, "margin_scale is 0.0; give a number from above 0"),
        ({"v_max": 0}, "v_max is 0; give a whole number from 1 to 256"),
        ({"b_max": 0}, "b_max is 0"),
        ({"beam": 2.5}, "beam is 2.5"),
        ({"max_positions": True}, "max_positions is True"),
        ({"suffix": "S3"}, "suffix is 'S3'; choose one of auto, S1, S2, S4"),
        ({"method": "cure", "tiers": ("0.4",)}, "tiers is ('0.4',); method cure takes via-sd, or none"),
        ({"method": "cure", "tiers": ("via-sd",), "branch0": False}, "an ablation of plain CURE"),
        ({"debt_cap": -1}, "debt_cap is -1"),
        ({"stop": ("",)}, "a stop string is empty"),
        ({"alpha": 0.3, "beta": 0.5}, "beta 0.5 is too small; the lossy rule needs beta >= 1 - alpha = 0.7"),
        ({"strict": True, "temperature": 0.7}, "strict needs temperature 0, got 0.7"),
        ({"strict": True, "rule_c": "lossy"}, "strict works with the lossless rule in region C only"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence_that_names_it(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(**changes)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0}, {"temperature": 100}, {"top_p": 1e-9}, {"alpha1": 0.0, "alpha2": 1.0},
        {"alpha": 0.3, "beta": 0.7}, {"gamma": 64}, {"skip_ratio": 0.0}, {"debt_cap": 0}, {"min_p": 1},
    ],
)  # fmt: skip
def test_values_on_the_border_are_allowed(changes: dict[str, Any]) -> None:
    settings = Settings(**changes)
    assert {name: getattr(settings, name) for name in changes} == changes


def test_the_defaults_of_cure_are_fast_margin100() -> None:
    settings = Settings(method="cure")
    assert (settings.tau_margin, settings.margin_scale, settings.b_max, settings.beam) == (1.0, None, 5, 5)
    assert (settings.v_max, settings.max_positions, settings.suffix) == (90, 1, "auto")
    assert settings.branch0 and settings.resync and not settings.tiers


def test_options_of_the_tiers_are_idle_without_them() -> None:
    with pytest.raises(SettingsError, match="--alpha1 has no effect without --tiers via-sd"):
        refuse_idle(Settings(method="cure", alpha1=0.4), {"alpha1"})
    refuse_idle(Settings(method="cure", alpha1=0.4, tiers=("via-sd",)), {"alpha1", "tiers"})
    refuse_idle(Settings(method="cure", v_max=20), {"v_max"})
    with pytest.raises(SettingsError, match="--no-branch0 is not used by method 'block'"):
        refuse_unused("block", {"branch0"})


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().gamma = 3  # type: ignore[misc]


def test_a_changed_copy_is_checked_like_a_new_one() -> None:
    assert Settings().with_(gamma=3).gamma == 3
    with pytest.raises(SettingsError, match="gamma is 0"):
        Settings().with_(gamma=0)
    with pytest.raises(SettingsError, match="unknown setting speed"):
        Settings().with_(speed=3)


def test_the_default_bonus_is_the_methods_own() -> None:
    assert Settings(method="sd").bonus_kind == "q-if-called"
    assert Settings(method="via-sd").bonus_kind == "none"
    assert Settings(method="sd", bonus="none").bonus_kind == "none"


def test_the_debt_cap_follows_gamma_unless_strict_or_given() -> None:
    assert Settings().debt_limit(5) == 20
    assert Settings(strict=True).debt_limit(5) == 16
    assert Settings(debt_cap=7).debt_limit(5) == 7
    assert Settings(debt_cap=0).debt_limit(5) is None


def test_a_run_records_the_common_options_and_its_methods_own() -> None:
    for method in METHODS:
        own = METHOD_OPTIONS[method] - (TIER_OPTIONS if method == "cure" else set())
        assert set(Settings(method=method).as_dict()) == COMMON_OPTIONS | own | {"method"}
    through_tiers = Settings(method="cure", tiers=("via-sd",)).as_dict()
    assert set(through_tiers) == COMMON_OPTIONS | METHOD_OPTIONS["cure"] | {"method"}
    assert through_tiers["tiers"] == ["via-sd"]
    recorded = Settings(stop=("a",)).as_dict()
    assert (recorded["stop"], recorded["bonus"], recorded["debt_cap"]) == (["a"], "none", 20)


def test_every_option_a_method_may_use_is_a_setting() -> None:
    known = set(Settings.__dataclass_fields__)
    assert known >= COMMON_OPTIONS
    assert all(options <= known for options in METHOD_OPTIONS.values())
    assert set(METHOD_OPTIONS) == set(METHODS)


def test_an_option_the_method_would_ignore_is_refused_by_its_flag() -> None:
    with pytest.raises(SettingsError) as refused:
        refuse_unused("sd", {"gamma", "alpha1", "slim_kv"})
    assert str(refused.value).startswith("--alpha1, --slim-kv are not used by method 'sd'")
    with pytest.raises(SettingsError, match="--gamma is not used by method 'ar'"):
        refuse_unused("ar", {"gamma"})
    refuse_unused("via-sd", {"alpha1", "temperature", "method", "gamma"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop": "ab"},
        {"stop": (1,)},
        {"mask": 3},
        {"strict": 1},
        {"core_thresholds": (0.5,)},
        {"core_thresholds": (0.5, float("nan"))},
        {"core_thresholds": "ab"},
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Settings(**wrong)
