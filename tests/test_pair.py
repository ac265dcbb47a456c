"""A pair: what loads together, and which vocabularies may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from toys import VOCAB, loaded, toy_model, toy_pair, toy_tokenizer
from viasd_core.errors import PairError, SettingsError
from viasd_core.pair import check_vocabulary, load_pair
from viasd_core.presets import DrafterSpec, Preset
from viasd_core.sources import LoadedModel, Source


@pytest.fixture
def preset(tmp_path: Path) -> Preset:
    """A preset over two folders: a verifier of 5 layers and a drafter of 2."""
    for name, layers in (("verifier", 5), ("draft", 2)):
        toy_model(dtype=torch.float32, layers=layers).save_pretrained(tmp_path / name)
        toy_tokenizer().save_pretrained(tmp_path / name)
    source = Source("folder", str(tmp_path / "draft"))
    return Preset(
        "two",
        verifier=Source("folder", str(tmp_path / "verifier")),
        drafter=DrafterSpec("model", source=source),
    )


def wrapped(tokenizer: PreTrainedTokenizerFast, vocab: int = VOCAB, name: str = "other") -> LoadedModel:
    return replace(loaded(toy_model(layers=2, vocab=vocab), name), tokenizer=tokenizer)


def renamed(swap: dict[str, str]) -> PreTrainedTokenizerFast:
    """The toy tokenizer with some tokens' names changed; ids stay."""
    tokenizer = toy_tokenizer()
    true_vocab = tokenizer.get_vocab()
    other = {swap.get(token, token): index for token, index in true_vocab.items()}
    tokenizer.get_vocab = lambda: other  # type: ignore[method-assign]
    return tokenizer


def test_a_preset_loads_both_models_as_asked(preset: Preset) -> None:
    pair = load_pair(preset, dtype="float64", device="cpu")
    assert pair.draft_model is not None
    assert (pair.verifier.n_layers, pair.draft_model.n_layers) == (5, 2)
    assert pair.verifier.dtype == pair.draft_model.dtype == torch.float64
    assert (pair.name, pair.n_vocab) == ("two", VOCAB)


@pytest.mark.parametrize("word", ["none", "lookup", "layer-skip"])
def test_a_drafter_word_replaces_the_presets_model(word: str, preset: Preset) -> None:
    pair = load_pair(preset, drafter=word, dtype="float32", device="cpu")
    assert pair.drafter.kind == pair.preset.drafter.kind == word
    assert pair.draft_model is None


def test_paths_replace_both_models(preset: Preset) -> None:
    assert preset.drafter.source is not None
    pair = load_pair(preset, verifier=preset.drafter.source.name, drafter=preset.verifier.name)
    assert pair.draft_model is not None
    assert (pair.verifier.n_layers, pair.draft_model.n_layers) == (2, 5)


def test_an_unknown_preset_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(SettingsError, match="no preset 'huge'"):
        load_pair("huge")


@pytest.mark.parametrize(("head", "draft_head"), [(VOCAB, VOCAB + 21), (VOCAB + 21, VOCAB), (288, 320)])
def test_padded_heads_are_accepted_and_cut_to_the_ids_that_exist(head: int, draft_head: int) -> None:
    pair = toy_pair(drafter="model", vocab=head, draft_vocab=draft_head)
    assert pair.draft_model is not None
    check_vocabulary(pair.verifier, pair.draft_model)
    assert pair.n_vocab == VOCAB


def test_differing_ids_are_named_from_the_first() -> None:
    vocab = toy_tokenizer().get_vocab()
    first, second = (next(token for token, index in vocab.items() if index == at) for at in (40, 50))
    other = wrapped(renamed({first: "<x>", second: "<y>"}))
    with pytest.raises(PairError) as caught:
        check_vocabulary(loaded(toy_model()), other)
    expected = (
        f"share a vocabulary: 2 ids differ, first 40 is {first!r} and '<x>', 50 is {second!r} and '<y>'"
    )
    assert expected in str(caught.value)


def test_a_special_token_under_another_id_is_refused() -> None:
    other = wrapped(renamed({"<|im_end|>": "<|eot|>"}))
    with pytest.raises(PairError, match=r"1 ids differ, first 2 is '<\|im_end\|>' and '<\|eot\|>'"):
        check_vocabulary(loaded(toy_model()), other)


def test_tokens_that_only_the_chat_version_added_are_allowed() -> None:
    tokenizer = toy_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<tool>", "</tool>"]})
    verifier = wrapped(tokenizer, vocab=VOCAB + 2)
    check_vocabulary(verifier, wrapped(toy_tokenizer(), vocab=VOCAB + 8))


def test_a_drafter_whose_head_ends_before_the_verifiers_ids_is_refused() -> None:
    tokenizer = toy_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<tool>", "</tool>"]})
    verifier = wrapped(tokenizer, vocab=VOCAB + 2, name="toy")
    with pytest.raises(PairError, match=f"ends at id {VOCAB - 1}, the verifier uses ids up to {VOCAB + 1}"):
        check_vocabulary(verifier, wrapped(toy_tokenizer()))


def test_a_drafter_that_opens_every_text_with_a_bos_is_refused() -> None:
    tokenizer = toy_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    with pytest.raises(PairError, match=r"the verifier puts \[\] in front, the drafter \[1\]"):
        check_vocabulary(loaded(toy_model()), wrapped(tokenizer))
