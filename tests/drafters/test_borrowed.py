"""Drafters cut out of the verifier: their rows by the book, the verifier's text and law, what is refused."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drafters.checkpoint_files import saved, target_of
from drafters.own_files import borrowed, borrowed_parts
from drafters.runs import (
    CYCLES,
    GREEDY,
    cycle_settings,
    first_draft,
    noise,
    parts_with,
    sampled_p_values,
    texts_agree,
)
from toys import toy_model, toy_pair, toy_tokenizer
from viasd_core.decode import Loop
from viasd_core.drafters.borrowed import fits, load
from viasd_core.drafters.checkpoints import Trained
from viasd_core.errors import PairError, SourceError, ViasdError
from viasd_core.live import LiveSettings
from viasd_core.pair import ModelPair, load_pair
from viasd_core.presets import DrafterSpec, Preset
from viasd_core.probs import Sampling
from viasd_core.sources import Source
from viasd_core.verifier import Verifier

TEXT = [5, 9, 7, 30, 41, 2, 2, 17, 80]
MASKED = "110101"


def small(
    tmp_path: Path,
    *,
    family: str = "llama",
    vocab: int = 8,
    layers: int = 6,
    origins: Sequence[int] = (0, 1, 2, 4, 5),
    ids: Sequence[int] | None = None,
    **model: Any,
) -> tuple[ModelPair, Trained]:
    """A verifier of few ids, and a drafter of most of its blocks."""
    pair = toy_pair(family, drafter="none", layers=layers, vocab=vocab, **model)
    known = range(1, vocab) if ids is None else ids
    return pair, load(borrowed(tmp_path, pair, origins, known), target_of(pair))


def cut_model(pair: ModelPair, origins: Sequence[int]) -> Any:
    """The verifier itself with all other blocks taken out, in its own modelling code."""
    model: Any = copy.deepcopy(pair.verifier.model)
    model.model.layers = nn.ModuleList(model.model.layers[origin] for origin in origins)
    model.config.num_hidden_layers = len(origins)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[: len(origins)]
    return model


@torch.inference_mode()
def plain_chain(pair: ModelPair, origins: Sequence[int], ids: Sequence[int], count: int) -> Tensor:
    """Greedy draft logits [count, 267] behind TEXT, every token from a forward over the whole text."""
    model, text, rows = cut_model(pair, origins), list(TEXT), []
    for _ in range(count):
        logits = model(torch.tensor([text]), use_cache=False).logits[0, -1]
        row = torch.full((267,), -torch.inf, dtype=logits.dtype)
        row[list(ids)] = logits[list(ids)]
        rows.append(row)
        text.append(int(row.argmax()))
    return torch.stack(rows)


@pytest.mark.parametrize("origins", [(0, 1, 4), (3,)])
@pytest.mark.parametrize("window", [None, 4])
def test_a_drafted_chain_is_that_of_the_verifier_without_its_other_blocks(
    window: int | None, origins: tuple[int, ...], tmp_path: Path
) -> None:
    pair = toy_pair("mistral", drafter="none", layers=6, vocab=280, sliding_window=window)
    ids = [3, 5, 30, 41, 80, 111, 200, 266]
    trained = load(borrowed(tmp_path, pair, origins, ids), target_of(pair))
    draft = first_draft(pair, trained, TEXT, 5)
    wanted = plain_chain(pair, origins, ids, 5)
    assert draft.logits is not None and draft.forwards == draft.length == 5
    assert draft.logits.isfinite().sum(-1).tolist() == [len(ids)] * 5
    torch.testing.assert_close(draft.logits[:, ids], wanted[:, ids], atol=1e-9, rtol=0.0)
    assert draft.tokens.tolist() == wanted.argmax(-1).tolist()


def test_a_drafter_of_every_block_and_id_is_the_verifier(family: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path, family=family, origins=range(6), ids=range(8))
    kept = texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=4)
    assert kept == 32, "every draft stands: four a cycle, and a bonus behind them"


def test_greedy_text_is_plain_decodings_for_every_family(family: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path, family=family)
    assert texts_agree(pair, trained, [5, 1, 7, 3], method="sd", gamma=3) > 0


@pytest.mark.parametrize("slim_kv", ["shared", "own"])
def test_strict_three_tier_text_is_plain_decodings(slim_kv: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    assert texts_agree(pair, trained, [2, 6, 1], mask=MASKED, strict=True, gamma=4, slim_kv=slim_kv) > 0


def test_sampled_text_follows_the_verifiers_law(tmp_path: Path) -> None:
    """The id that the drafter does not know comes from the verifier alone."""
    pair, trained = small(tmp_path, vocab=4, layers=2, origins=(1,))
    ours, other = sampled_p_values(pair, trained, [1, 3, 0], runs=150)
    assert ours > 1e-3 and other < 1e-3


def test_every_token_is_drawn_from_the_row_it_reports(tmp_path: Path) -> None:
    pair, trained = small(tmp_path, vocab=12, ids=[0, 3, 4, 8, 11])
    for length in range(3, 9):
        draft = first_draft(pair, trained, [*range(length)], 4, Sampling(1.0))
        assert draft.logits is not None
        torch.testing.assert_close(draft.probs, draft.logits.softmax(-1))
        assert (draft.probs > 0).sum(-1).tolist() == [5] * 4
        assert set(draft.tokens.tolist()) <= {0, 3, 4, 8, 11}


@pytest.mark.parametrize("name", CYCLES)
def test_after_every_cycle_the_next_draft_is_that_of_a_fresh_replay(name: str, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    settings = cycle_settings(name, MASKED, 30)
    loop = Loop(parts_with(pair, trained), [5, 1, 7, 3], settings, LiveSettings(settings))
    compared = 0
    while loop.step().finish is None:
        run_, drafter = loop.run, loop.run.drafter
        assert drafter is not None
        with torch.inference_mode():
            fresh = trained.make(run_.verifier, run_.limit)
            fresh.begin(run_.tokens)
            room = min(3, run_.limit - len(run_.tokens))
            found, wanted = (each.draft(room, GREEDY, noise()).logits for each in (drafter, fresh))
        assert found is not None and wanted is not None
        torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0.0)
        drafter.rewind(len(run_.tokens) - 1)
        compared += 1
    assert compared > 5


@torch.inference_mode()
@pytest.mark.parametrize("length", [0, 1, 4, 8])
def test_a_rewind_to_any_row_is_made_good_by_the_next_draft(length: int, tmp_path: Path) -> None:
    pair, trained = small(tmp_path)
    text = [1, 4, 2, 7, 7, 0, 3, 5, 6]
    drafter = trained.make(Verifier(parts_with(pair, trained).runner, 64), 64)
    drafter.begin(text)
    before = drafter.draft(4, GREEDY, noise()).logits
    drafter.rewind(length)
    after = drafter.draft(4, GREEDY, noise()).logits
    assert before is not None and after is not None
    torch.testing.assert_close(after, before, atol=1e-9, rtol=0.0)


def test_the_verifier_lends_its_embedding_and_is_not_written_to(tmp_path: Path) -> None:
    pair = toy_pair(drafter="none", layers=6)
    before = {name: weight.clone() for name, weight in pair.verifier.model.state_dict().items()}
    trained = load(borrowed(tmp_path, pair, (0, 5), range(9), noise=0.1), target_of(pair))
    module: Any = trained.module
    lent: Any = pair.verifier.model.get_input_embeddings()
    assert module.model.embed_tokens.weight.data_ptr() == lent.weight.data_ptr()
    first_draft(pair, trained, TEXT, 3)
    for name, weight in pair.verifier.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_the_format_is_told_by_its_architecture() -> None:
    assert fits({"architectures": ["ViasdArDrafter"]})
    assert not fits({"architectures": ["LlamaForCausalLM"]}) and not fits({"architectures": None})


REFUSED: dict[str, tuple[dict[str, Any], type[ViasdError], str]] = {
    "family": ({"model_type": "qwen3"}, PairError, "model_type qwen3, and toy has llama"),
    "hidden size": ({"hidden_size": 64}, PairError, "hidden_size 64, and toy has 32"),
    "inner size": ({"intermediate_size": 64}, PairError, "intermediate_size 64, and toy has 48"),
    "heads": ({"num_key_value_heads": 4}, PairError, "num_key_value_heads 4, and toy has 2"),
    "vocabulary": ({"vocab_size": 300}, PairError, "vocabulary of 300 ids, toy has 267"),
    "no layers": ({"num_hidden_layers": ...}, SourceError, "no usable 'num_hidden_layers'"),
    "fewer layers": ({"num_hidden_layers": 1}, SourceError, "does not know: layers.1"),
    "more layers": ({"num_hidden_layers": 3}, SourceError, "no tensor 'layers.2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_verifiers_drafter_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    changes, kind, said = REFUSED[name]
    pair = toy_pair(drafter="none", layers=6)
    config, tensors = borrowed_parts(pair, (0, 5), range(40))
    with pytest.raises(kind, match=said) as caught:
        load(saved(tmp_path, config | changes, tensors), target_of(pair))
    assert "\n" not in str(caught.value) and "toy-drafter" in str(caught.value)


TENSORS: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({"norm.weight": None}, "no tensor 'norm.weight'"),
    "no id map": ({"d2t": None}, "no tensor 'd2t'"),
    "left over": ({"lm_head.weight": torch.zeros(40, 32)}, "does not know: lm_head.weight"),
    "misshapen": ({"norm.weight": torch.zeros(31)}, r"'norm.weight' has shape \[31\]"),
    "ids beyond": ({"d2t": torch.full((40,), 240)}, "distinct ids"),
    "ids twice": ({"d2t": -torch.arange(40)}, "distinct ids"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_an_incomplete_file_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    changes, said = TENSORS[name]
    pair = toy_pair(drafter="none", layers=6)
    config, tensors = borrowed_parts(pair, (0, 5), range(40))
    kept = {key: tensor for key, tensor in (tensors | changes).items() if tensor is not None}
    with pytest.raises(SourceError, match=said) as caught:
        load(saved(tmp_path, config, kept), target_of(pair))
    assert "\n" not in str(caught.value)


@pytest.fixture
def preset(tmp_path: Path) -> Preset:
    """A toy verifier in a folder."""
    toy_model(layers=6, dtype=torch.float32).save_pretrained(tmp_path / "verifier")
    toy_tokenizer().save_pretrained(tmp_path / "verifier")
    return Preset("toy", Source("folder", str(tmp_path / "verifier")), DrafterSpec("none"))


def test_a_folder_is_loaded_together_with_its_verifier(preset: Preset, tmp_path: Path) -> None:
    borrowed(tmp_path / "mine", load_pair(preset, dtype="float64"), (0, 1, 5), range(267))
    pair = load_pair(preset, drafter=str(tmp_path / "mine"), dtype="float64")
    assert pair.draft_model is None and pair.trained is not None
    assert pair.trained.drafter.kind == "ar" and pair.trained.identity["layers"] == 3


def test_a_drafter_named_as_verifier_is_refused_in_a_sentence(preset: Preset, tmp_path: Path) -> None:
    borrowed(tmp_path / "mine", load_pair(preset), (0, 5), range(267))
    with pytest.raises(PairError, match="name a whole model as verifier"):
        load_pair(preset, verifier=str(tmp_path / "mine"))


def test_a_damaged_weight_file_is_refused_in_a_sentence(preset: Preset, tmp_path: Path) -> None:
    borrowed(tmp_path / "mine", load_pair(preset), (0, 5), range(267))
    path = tmp_path / "mine" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"model\.safetensors of drafter mine cannot be read") as caught:
        load_pair(preset, drafter=str(tmp_path / "mine"))
    assert "\n" not in str(caught.value)
