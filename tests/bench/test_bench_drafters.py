"""`bench` with trained drafters: several in one run, and Hugging Face's own assisted generation with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drafters.own_files import borrowed
from toys import loaded, toy_model, toy_pair, toy_tokenizer
from viasd_core.bench.baselines import hf_runner
from viasd_core.cli.main import main
from viasd_core.pair import with_drafter
from viasd_core.presets import parse_drafter
from viasd_core.settings import Settings

PROMPT = [5, 9, 11, 30, 8]
BLOCKS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verifier, two drafters of its own blocks, a preset and prompts."""
    home = tmp_path_factory.mktemp("models")
    model = toy_model(layers=4)
    model.save_pretrained(home / "verifier")
    toy_tokenizer().save_pretrained(home / "verifier")
    pair = toy_pair(drafter="none", layers=4)
    ids = range(pair.n_vocab)
    borrowed(home / "close", pair, BLOCKS, ids)
    borrowed(home / "far", pair, BLOCKS[:1], ids, noise=1.0)
    (home / "pair.yaml").write_text(
        "verifier: {folder: verifier}\ndrafter: {kind: model, source: {folder: close}}\nchat: false\n"
        "settings: {gamma: 3}\n"
    )
    lines = [{"prompt": "the answer and the other one"}, {"prompt": "on the other hand"}]
    (home / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return home


def test_drafting_methods_are_measured_with_every_drafter_named(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    arguments = [
        "--preset",
        str(home / "pair.yaml"),
        "--methods",
        "ar,sd",
        "--data",
        str(home / "prompts.jsonl"),
    ]
    fixed = ["--dtype", "float64", "--device", "cpu", "--max-new-tokens", "10", "--repeats", "1"]
    drafters = ["--more-drafters", f"lookup,{home / 'far'}", "--baselines", "hf-assisted"]
    assert main(["bench", *arguments, *fixed, *drafters, "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    entries: dict[str, dict[str, Any]] = {entry["label"]: entry for entry in result["methods"]}
    assert set(entries) == {"ar", "sd", "sd, lookup", "sd, far", "hf-assisted"}
    for entry in entries.values():
        assert entry["quality"]["identical_to_ar"] == 1.0, entry["label"]
    assert entries["sd, lookup"]["drafter"] == "lookup"
    assert entries["sd"]["rejection_rate"] < entries["sd, far"]["rejection_rate"]


def test_assisted_generation_drafts_with_the_blocks_and_the_whole_vocabulary(home: Path) -> None:
    pair = with_drafter(toy_pair(drafter="none", layers=4), parse_drafter(str(home / "close")))
    assert pair.trained is not None
    settings = Settings(method="sd", max_new_tokens=12)
    runner = hf_runner("hf-assisted", pair, settings)
    assert runner.assistant is not None
    ids = torch.tensor([PROMPT])
    verifier: Any = pair.verifier.model
    with torch.inference_mode():
        logits = runner.assistant(ids).logits
        hidden = verifier.model.embed_tokens(ids)
        rotary = verifier.model.rotary_emb(hidden, position_ids=torch.arange(len(PROMPT))[None])
        for layer in BLOCKS:
            hidden = verifier.model.layers[layer](hidden, position_embeddings=rotary, attention_mask=None)
        by_hand = verifier.lm_head(verifier.model.norm(hidden))
    assert logits.shape[-1] == verifier.config.vocab_size
    torch.testing.assert_close(logits, by_hand)
    plain = hf_runner("hf", pair, settings).run(PROMPT, 12).token_ids
    assert runner.run(PROMPT, 12).token_ids == plain
    assert loaded(verifier).n_layers == 4
