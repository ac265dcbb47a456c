"""Drafters over so few ids that random ones are often right, and often nearly even."""

from __future__ import annotations

from pathlib import Path

from drafters.checkpoint_files import eagle, target_of
from toys import toy_pair
from viasd_core.drafters.checkpoints import Trained
from viasd_core.drafters.eagle import load
from viasd_core.pair import ModelPair


def eagle_pair(tmp_path: Path, vocab: int = 8) -> tuple[ModelPair, Trained]:
    """A toy verifier and a random EAGLE-3 drafter that can say all ids but one."""
    pair = toy_pair(drafter="none", layers=6, vocab=vocab)
    target = target_of(pair)
    return pair, load(eagle(tmp_path, target.config, vocab - 1, seed=5), target)
