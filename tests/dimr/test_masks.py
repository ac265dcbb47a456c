"""Layer masks: how many layers a ratio skips, which ones, and stored masks that fit a verifier."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from viasd_core.dimr.masks import (
    SCHEMA,
    LayerMask,
    MaskStore,
    contiguous_mask,
    even_mask,
    fits,
    follows_ratio,
    from_skipped,
    parse_bits,
    random_mask,
    read_mask,
    skip_count,
)
from viasd_core.errors import MaskError
from viasd_core.sublayers import Half

IDENTITY: dict[str, Any] = {"kind": "hub", "id": "org/model", "sha256": "ab" * 32, "layers": 8}


def stored(folder: Path, bits: str, name: str = "mask", **changes: Any) -> Path:
    """A mask file for IDENTITY."""
    content = {
        "schema": SCHEMA, "mask": bits, "layers": len(bits), "model": {"id": "org/model", "sha256": None}
    }  # fmt: skip
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("layers", "skipped"), [(42, 19), (46, 21), (40, 18), (80, 36), (36, 16), (28, 13), (24, 11)]
)
def test_the_papers_ratio_skips_the_papers_number_of_layers(layers: int, skipped: int) -> None:
    """Section 1.4: floor(.45 L + .5)."""
    assert skip_count(0.45, layers) == skipped


def test_the_first_and_last_layer_always_remain() -> None:
    assert skip_count(0.95, 4) == 2
    assert skip_count(0.95, 2) == 0
    assert skip_count(0.5, 1) == 0
    assert skip_count(0.0, 30) == 0


@pytest.mark.parametrize("layers", [3, 8, 30])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.45, 0.95])
def test_even_and_random_masks_skip_exactly_n_middle_layers(layers: int, ratio: float) -> None:
    """D1."""
    for mask in (even_mask(ratio, layers), random_mask(ratio, layers, 5)):
        assert len(mask.bits) == layers
        assert mask.bits.count("0") == skip_count(ratio, layers)
        assert mask.bits[0] == mask.bits[-1] == "1"


def test_an_even_mask_spreads_what_it_skips() -> None:
    skipped = [index for index, bit in enumerate(even_mask(0.3, 30).bits) if bit == "0"]
    gaps = {after - before for before, after in pairwise(skipped)}
    assert len(skipped) == 9 and gaps <= {3, 4}


def test_random_masks_are_uniform_over_layers_and_repeat_for_a_seed() -> None:
    assert random_mask(0.4, 10, 7) == random_mask(0.4, 10, 7)
    skips = Counter(
        layer
        for seed in range(2000)
        for layer, bit in enumerate(random_mask(0.4, 10, seed).bits)
        if bit == "0"
    )
    assert set(skips) == set(range(1, 9))
    assert all(abs(count - 1000) < 110 for count in skips.values())  # 5 standard deviations of binomial(.5)


def test_a_mask_names_its_kept_layers_and_its_ratio() -> None:
    mask = from_skipped([1, 3], 5, "x")
    assert (mask.bits, mask.layers, mask.skip_ratio) == ("10101", (0, 2, 4), 0.4)


def test_bits_may_skip_the_first_layer_but_not_all() -> None:
    assert parse_bits("0111", 4).layers == (1, 2, 3)
    with pytest.raises(MaskError, match="keeps no layer"):
        parse_bits("0000", 4)


def test_a_mask_of_sub_layers_names_attention_and_mlp_of_each_layer_in_turn() -> None:
    mask = parse_bits("11100100", 4)
    assert mask.granularity == "sublayer"
    assert mask.layers == (0, Half(1, attention=True), Half(2, attention=False))
    assert mask.skip_ratio == 0.5 and parse_bits("1010", 4).granularity == "layer"


@pytest.mark.parametrize("layers", [3, 8, 30])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.45, 0.5, 0.95])
def test_masks_of_sub_layers_skip_exactly_n_halves_of_middle_layers(layers: int, ratio: float) -> None:
    """D1 for sub-layers: floor(r 2L + .5), both halves of the first and last layer kept."""
    wanted = min(int(ratio * 2 * layers + 0.5), 2 * (layers - 2))
    assert skip_count(ratio, layers, "sublayer") == wanted
    for made in (even_mask, contiguous_mask):
        mask = made(ratio, layers, "sublayer")
        assert (len(mask.bits), mask.bits.count("0"), mask.granularity) == (2 * layers, wanted, "sublayer")
    mask = random_mask(ratio, layers, 5, "sublayer")
    assert (len(mask.bits), mask.bits.count("0")) == (2 * layers, wanted)
    assert mask.bits[:2] == mask.bits[-2:] == "11"
    assert even_mask(ratio, layers, "sublayer").bits[:2] == "11"


def test_an_even_mask_of_sub_layers_skips_both_halves_of_evenly_spaced_layers() -> None:
    """SWIFT's first mask, and not all MLPs, which even spacing over halves would give at one half."""
    layers = even_mask(2 / 6, 6).bits
    assert even_mask(4 / 12, 6, "sublayer").bits == "".join(2 * bit for bit in layers)


@pytest.mark.parametrize("text", ["101", "10101", "1021", "", "abcd"])
def test_bits_of_another_length_or_alphabet_are_refused(text: str) -> None:
    with pytest.raises(MaskError, match="give 4 characters 0 or 1, one a layer"):
        parse_bits(text, 4)


def test_a_stored_mask_is_named_after_its_file(tmp_path: Path) -> None:
    assert read_mask(stored(tmp_path, "11011011", "mine"), IDENTITY) == LayerMask("11011011", "mine")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "does not exist"),
        ("{", "cannot be read"),
        ("[]", "is not a mask file"),
        ('{"schema": "other", "mask": "11"}', "is not a mask file"),
        ('{"schema": "viasd-mask/1", "mask": 3}', "is not a mask file"),
        ("\xff", "was made for|is not a mask file|cannot be read"),
    ],
)
def test_a_file_that_holds_no_mask_is_refused(tmp_path: Path, content: str | None, part: str) -> None:
    path = tmp_path / "mask.json"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(MaskError, match=part):
        read_mask(path, IDENTITY)


def test_a_mask_for_another_model_or_depth_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MaskError, match="was made for org/other with 8 layers, not for org/model with 8"):
        read_mask(stored(tmp_path, "11011011", model={"id": "org/other"}), IDENTITY)
    with pytest.raises(MaskError, match="with 9 layers"):
        read_mask(stored(tmp_path, "110110111"), IDENTITY)


@pytest.mark.parametrize(
    ("kind", "key", "ours", "theirs"),
    [("hub", "revision", "1a2b" * 10, "9f8e" * 10), ("folder", "sha256", "0123" * 16, "4567" * 16)],
)
def test_a_mask_for_other_weights_of_that_name_is_refused_with_both_revisions_or_hashes(
    tmp_path: Path, kind: str, key: str, ours: str, theirs: str
) -> None:
    identity = {"kind": kind, "id": "org/model", key: theirs, "layers": 8}
    path = stored(tmp_path, "11011011", model={"id": "org/model", key: ours})
    said = rf"org/model \({key} {ours[:12]}\) with 8 layers, not for org/model \({key} {theirs[:12]}\) with 8"
    with pytest.raises(MaskError, match=said):
        read_mask(path, identity)
    assert MaskStore([path], identity).stored == []
    assert read_mask(path, identity | {key: ours}).bits == "11011011"


def test_a_mask_of_that_name_without_a_hash_is_refused_with_what_is_known(
    tmp_path: Path,
) -> None:
    path = stored(tmp_path, "11011011", model={"id": "model"})
    identity = {"kind": "folder", "id": "/home/me/model", "sha256": "ab" * 32, "layers": 8}
    said = r"for model \(no revision or hash\) with 8 layers, not for /home/me/model \(sha256 abababababab\)"
    with pytest.raises(MaskError, match=said):
        read_mask(path, identity)


def test_a_revision_counts_only_where_both_name_one() -> None:
    pinned = {"layers": 8, "model": {"id": "org/model", "revision": "1a2b"}}
    anywhere = {"layers": 8, "model": {"id": "org/model"}}
    hub = {"kind": "hub", "id": "org/model", "layers": 8}
    assert fits(pinned, hub) and fits(anywhere, hub | {"revision": "1a2b"})
    assert fits(pinned, hub | {"revision": "1a2b"}) and not fits(pinned, hub | {"revision": "9f8e"})
    assert not fits({"layers": 8, "model": {"id": "org/model", "sha256": "cd" * 32}}, IDENTITY)


def test_a_mask_whose_bits_disagree_with_its_own_depth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaskError, match="give 8 characters"):
        read_mask(stored(tmp_path, "1101101", layers=8), IDENTITY)


def test_a_mask_fits_by_file_hash_whatever_the_id_and_by_id_only_on_the_hub() -> None:
    content = {"layers": 8, "model": {"id": "elsewhere", "sha256": "ab" * 32}}
    assert fits(content, IDENTITY)
    by_id = {"layers": 8, "model": {"id": "org/model", "sha256": None}}
    assert fits(by_id, IDENTITY)
    assert not fits(by_id, IDENTITY | {"kind": "folder"})
    assert not fits({"layers": 8}, IDENTITY | {"sha256": None, "id": None, "kind": "folder"})


def test_the_store_takes_the_nearest_ratio_and_of_two_the_one_that_skips_less(tmp_path: Path) -> None:
    files = [stored(tmp_path, bits, bits) for bits in ("11101111", "11001011", "10000011")]
    store = MaskStore(files, IDENTITY)
    assert store.nearest(0.13).bits == "11101111"
    assert store.nearest(0.25).bits == "11101111"  # 1/8 and 3/8 are as near
    assert store.nearest(0.9).bits == "10000011"
    assert store.choose("auto", 0.375).bits == "11001011"


def test_a_stored_mask_of_sub_layers_is_one_of_the_choices(tmp_path: Path) -> None:
    halves = "1100110111011111"
    path = stored(tmp_path, halves, "halves", layers=8)
    assert read_mask(path, IDENTITY) == LayerMask(halves, "halves", "sublayer")
    store = MaskStore([path, stored(tmp_path, "10000011", "many")], IDENTITY)
    assert store.nearest(0.3).name == "halves"


def test_the_store_passes_over_masks_of_other_models(tmp_path: Path) -> None:
    files = [stored(tmp_path, "11101111", "a", model={"id": "x"}), tmp_path / "absent.json"]
    store = MaskStore([*files, stored(tmp_path, "11001111", "b")], IDENTITY)
    assert [mask.name for mask in store.stored] == ["b"]


def test_without_a_stored_mask_auto_says_what_else_to_choose() -> None:
    with pytest.raises(MaskError, match="no searched mask is stored for org/model; choose --mask even"):
        MaskStore([], IDENTITY).choose("auto", 0.3)


def test_each_form_of_a_mask_choice_is_understood(tmp_path: Path) -> None:
    store = MaskStore([], IDENTITY)
    assert store.choose("even", 0.25) == even_mask(0.25, 8)
    assert store.choose("random:3", 0.25) == random_mask(0.25, 8, 3)
    assert store.choose("11100111", 0.9).bits == "11100111"
    assert store.choose(str(stored(tmp_path, "11011011", "file")), 0.9).name == "file"
    for wrong in ("random:x", "random:", "random:-1", "random:²", "random:" + "9" * 5000):
        with pytest.raises(MaskError, match="needs a whole number after random"):
            store.choose(wrong, 0.2)
    with pytest.raises(MaskError, match="does not exist"):
        store.choose("nearest", 0.2)


def test_an_explicit_mask_does_not_follow_the_skip_ratio() -> None:
    assert follows_ratio("auto") and follows_ratio("even") and follows_ratio("random:3")
    assert not follows_ratio("1011") and not follows_ratio("mask.json")
