from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from page.catalog import Catalog
from page.layout import build
from page.limits import Limits
from page.options import BY_NAME, OPTIONS
from page.wiring import Wiring
from viasd_core.errors import PromptError, SettingsError
from viasd_core.method_options import METHODS
from viasd_core.settings import Settings


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(Limits(max_tokens=200, max_prompt=100))


def form(catalog: Catalog, **changes: Any) -> dict[str, Any]:
    """What the controls hold when the page opens, with some changed."""
    values = catalog.defaults("tiny")
    return {option.name: option.shown(values[option.name]) for option in OPTIONS} | changes


@pytest.mark.parametrize("method", METHODS)
def test_the_form_as_it_opens_can_be_run_with_every_method(catalog: Catalog, method: str) -> None:
    job = catalog.job("hello", "tiny", method, "preset", form(catalog))
    assert job.settings.method == method and job.settings.max_new_tokens == 128


def test_a_preset_opens_with_its_own_values(catalog: Catalog) -> None:
    assert catalog.settings("tiny", "via-sd", form(catalog)).skip_ratio == 0.2
    assert catalog.settings("qwen3", "via-sd", {}).alpha1 == Settings().alpha1


def shown_of(update: dict[str, Any]) -> tuple[Any, bool, bool]:
    return update["value"], update["interactive"], update["visible"]


def test_a_chosen_preset_brings_its_own_method_with_the_controls_that_it_uses(catalog: Catalog) -> None:
    nothing: Any = None
    wiring = Wiring(nothing, nothing, catalog, [])
    for preset, method in (("fast_margin100", "cure"), ("tiny", "via-sd")):
        prompt, chosen, _, drafter, *controls = wiring.preset_chosen(preset)
        assert (prompt, chosen) == (catalog.prompt(preset), method)
        assert drafter["value"] == "preset" and drafter["interactive"] and drafter["choices"]
        values = catalog.defaults(preset)
        assert [shown_of(update) for update in controls] == [
            (option.shown(values[option.name]), option.used_by(method), option.shown_with(method))
            for option in OPTIONS
        ]


def test_the_page_opens_with_the_method_of_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("verifier: org/name\ndrafter: {kind: lookup}\nmethod: sd\n")

    def fetch() -> None:
        raise AssertionError("nothing is fetched while the page is laid out")

    for first, method in ((str(path), "sd"), ("tiny", "via-sd"), ("fast_margin100", "cure")):
        with gr.Blocks():
            parts = build(Catalog(Limits(), first), [], fetch, fetch)
        assert parts.method.value == method
        for option in OPTIONS:
            assert parts.controls[option.name].visible == option.shown_with(method)
            assert parts.controls[option.name].interactive == option.used_by(method)


def test_settings_that_a_method_does_not_use_are_left_out(catalog: Catalog) -> None:
    settings = catalog.settings("tiny", "sd", form(catalog, strict=True, temperature=0.7, alpha1=0.9))
    assert settings == Settings(method="sd", temperature=0.7, max_new_tokens=128)


def test_strict_with_a_temperature_is_refused_in_a_sentence(catalog: Catalog) -> None:
    with pytest.raises(SettingsError, match="strict needs temperature 0, got"):
        catalog.settings("tiny", "via-sd", form(catalog, strict=True, temperature=0.7))


def test_every_option_reaches_the_settings_of_a_method_that_uses_it(catalog: Catalog) -> None:
    common = {
        "temperature": 0.5, "max_new_tokens": 7, "seed": 9, "top_k": 5, "top_p": 0.75, "min_p": 0.125,
    }  # fmt: skip
    three_tiers = {
        "gamma": 3, "alpha1": 0.0, "alpha2": 0.125, "skip_ratio": 0.3, "gate": "literal", "rule_c": "lossy",
        "alpha": 0.25, "beta": 2.0, "strict": False, "slim_kv": "own", "bonus": "slim",
        "after_escalation": "q", "draft_p_min": 0.3, "lookup_first": True, "debt_cap": 4,
        "mask": "even", "tiers": "0.5, 0.25",
    }  # fmt: skip
    trees = {
        "tau_margin": 0.5, "margin_scale": 2.0, "v_max": 32, "b_max": 3, "max_positions": 2, "beam": 4,
        "suffix": "S1", "branch0": False, "resync": False, "tree_tiers": "",
    }  # fmt: skip
    values = common | three_tiers | trees
    assert set(values) == set(BY_NAME)
    for method, used in (("via-sd", common | three_tiers), ("cure", common | trees)):
        settings = catalog.settings("tiny", method, values)
        parsed = {"tiers": (0.5, 0.25), "tree_tiers": ()}
        assert {name: getattr(settings, BY_NAME[name].field) for name in used} == {
            name: parsed.get(name, value) for name, value in used.items()
        }


def test_trees_go_through_the_tiers_of_via_sd_on_request(catalog: Catalog) -> None:
    assert catalog.settings("tiny", "cure", form(catalog)).tiers == ()
    settings = catalog.settings("tiny", "cure", form(catalog, tree_tiers="via-sd", alpha1=0.75))
    assert (settings.tiers, settings.alpha1) == (("via-sd",), 0.75)
    assert "cure: only with VIA-SD's tiers" in BY_NAME["alpha1"].info_for("cure")
    with pytest.raises(SettingsError, match="tiers is 'sideways'"):
        catalog.settings("tiny", "cure", form(catalog, tree_tiers="sideways"))
    assert [BY_NAME[name].shown_with("cure") for name in ("tiers", "tree_tiers")] == [False, True]
    assert [BY_NAME[name].shown_with("via-sd") for name in ("tiers", "tree_tiers")] == [True, False]


@pytest.mark.parametrize(
    ("text", "tiers"),
    [("", ()), ("  ", ()), ("0.5,0.2", (0.5, 0.2)), (" 0.5 , 1101 ", (0.5, "1101")), ("0.3", (0.3,))],
)
def test_several_slim_verifiers_are_named_in_the_form(
    catalog: Catalog, text: str, tiers: tuple[Any, ...]
) -> None:
    assert catalog.settings("tiny", "via-sd", form(catalog, tiers=text)).tiers == tiers
    assert catalog.settings("tiny", "cure", form(catalog, tiers=text)).tiers == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.2,0.5", "name the weakest tier first"),
        ("0.5,nan", "a tier's skip ratio is nan"),
        ("0.5,,0.2", "tiers names '', which this page does not offer"),
        ("model:org/name,0.3", "tiers names 'model:org/name', which this page does not offer"),
        ("/etc/passwd.json", "which this page does not offer"),
        ("via-sd", "which this page does not offer"),
        (",".join(f"0.{digit}" for digit in range(99, 89, -1)), "at most 8"),
        ("0.5," * 5000, "tiers has 20000 characters; at most"),
        ([0.5, 0.2], r"tiers is \[0.5, 0.2\]; give text"),
        (None, "tiers is None; give text"),
    ],
)
def test_slim_verifiers_that_cannot_be_are_refused_in_a_sentence(
    catalog: Catalog, text: Any, sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence) as refused:
        catalog.settings("tiny", "via-sd", form(catalog, tiers=text))
    assert len(str(refused.value)) < 200


def test_slim_verifiers_beside_a_mask_of_ones_own_are_refused(catalog: Catalog) -> None:
    with pytest.raises(SettingsError, match="name that mask as a tier instead"):
        catalog.settings("tiny", "via-sd", form(catalog, tiers="0.5,0.2", mask="1011"))


@pytest.mark.parametrize("own", [[0.5, 0.2], ["model:org/middle", 0.2]])
def test_a_preset_with_several_slim_verifiers_fills_the_form_which_starts_them(
    tmp_path: Path, own: list[Any]
) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(f"verifier: {{folder: .}}\ndrafter: {{kind: lookup}}\nsettings: {{tiers: {own}}}\n")
    catalog = Catalog(Limits(), str(path))
    values = catalog.defaults("layers")
    held = {option.name: option.shown(values[option.name]) for option in OPTIONS}
    assert (held["tiers"], held["tree_tiers"]) == (",".join(map(str, own)), "")
    assert catalog.settings("layers", "via-sd", held).tiers == tuple(own)
    assert catalog.settings("layers", "cure", held).tiers == ()
    assert catalog.settings("layers", "via-sd", held | {"tiers": ""}).tiers == ()
    with pytest.raises(SettingsError, match="does not offer"):
        catalog.settings("tiny", "via-sd", held | {"tiers": "model:org/middle"})
    with gr.Blocks():
        controls = build(catalog, [], lambda asked: {}, lambda asked: {}).controls
    assert controls["tiers"].value == held["tiers"] and not controls["tree_tiers"].visible


def test_a_margin_scale_of_zero_follows_tau_margin(catalog: Catalog) -> None:
    assert form(catalog)["margin_scale"] == 0
    assert catalog.settings("tiny", "cure", form(catalog)).margin_scale is None
    assert catalog.settings("tiny", "cure", form(catalog, margin_scale=0.5)).margin_scale == 0.5


def test_the_five_knobs_of_repair_trees_act_during_a_run_and_stand_where_they_are_used() -> None:
    knobs = {"tau_margin", "margin_scale", "v_max", "b_max", "max_positions"}
    shown = {method: {name for name in knobs if BY_NAME[name].shown_with(method)} for method in METHODS}
    assert {method: names for method, names in shown.items() if names} == {"cure": knobs, "eagle2": {"v_max"}}
    assert all(BY_NAME[name].live and BY_NAME[name].kind == "slider" for name in knobs)
    assert BY_NAME["alpha1"].shown_with("cure")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mask", "/etc/passwd"),
        ("gate", "sideways"),
        ("gamma", 2.5),
        ("gamma", "5"),
        ("alpha1", True),
        ("alpha1", float("nan")),
        ("alpha2", float("inf")),
        ("gamma", float("nan")),
        ("seed", float("inf")),
        ("seed", None),
        ("strict", "yes"),
        ("strict", 0),
        ("mask", ["auto"]),
        ("seed", -1),
        ("max_new_tokens", 201),
        ("max_new_tokens", 0),
    ],
)
def test_a_value_the_form_cannot_hold_is_refused(catalog: Catalog, name: str, value: object) -> None:
    with pytest.raises(SettingsError):
        catalog.settings("tiny", "via-sd", form(catalog, **{name: value}))


@pytest.mark.parametrize("preset", ["/etc/passwd.yaml", "../tiny", "nothing", ""])
def test_a_caller_cannot_name_a_file_as_preset(catalog: Catalog, preset: str) -> None:
    with pytest.raises(SettingsError, match="there is no preset"):
        catalog.job("hello", preset, "sd", "preset", {})


@pytest.mark.parametrize("prompt", ["", "  \n", "x" * 101, None, 7])
def test_an_empty_or_overlong_prompt_is_refused(catalog: Catalog, prompt: object) -> None:
    with pytest.raises(PromptError):
        catalog.job(prompt, "tiny", "sd", "preset", {})


def test_a_preset_file_given_at_the_start_is_offered_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("verifier: {folder: .}\ndrafter: {kind: lookup}\nsettings: {gamma: 7}\n")
    catalog = Catalog(Limits(), str(path))
    job = catalog.job("hello", "mine", "sd", "preset", {})
    assert catalog.first == "mine" and job.pair.preset == str(path) and job.settings.gamma == 7


def test_an_option_that_is_off_says_why() -> None:
    assert BY_NAME["alpha1"].info_for("sd") == "not used by sd"
    assert BY_NAME["gamma"].info_for("sd") == BY_NAME["gamma"].info


def test_caps_come_from_the_environment_and_nonsense_is_refused() -> None:
    limits = Limits.from_environment({"VIASD_MAX_TOKENS": "64", "VIASD_MAX_SECONDS": "2.5"})
    assert (limits.max_tokens, limits.max_seconds) == (64, 2.5)
    for variable, value in (
        ("VIASD_MAX_TOKENS", "many"),
        ("VIASD_MAX_TOKENS", "0"),
        ("VIASD_IDLE_SECONDS", "nan"),
    ):
        with pytest.raises(SettingsError, match=variable):
            Limits.from_environment({variable: value})


def test_an_empty_debt_cap_which_comes_as_zero_is_the_methods_own(catalog: Catalog) -> None:
    """Gradio shows an empty number as 0 and sends it so: it must not lift the cap."""
    assert form(catalog)["debt_cap"] == 0
    for given in (0, None):
        assert catalog.settings("tiny", "via-sd", form(catalog, debt_cap=given)).debt_cap is None
    no_cap = BY_NAME["debt_cap"].shown(0)
    assert catalog.settings("tiny", "via-sd", form(catalog, debt_cap=no_cap)).debt_limit(5) == 100_000
