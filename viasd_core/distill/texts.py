"""Answers without their features: a thousandth of the size, to keep, to share and to tap other layers for.

What is left out is recomputed by one forward over each text, several times quicker than writing it.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..atomic import replace_file
from ..errors import DataError
from .answers import STORED, Answer
from .lanes import LaneRunner
from .prompts import Prompt
from .shards import ShardFolder, read_shard, refuse_another

ARRAYS = ("index", "ends", "ids")  # of the prompts; behind each text; of all texts, end to end
ZIP_DAMAGE = (zipfile.BadZipFile, zlib.error, RuntimeError)  # what zipfile raises for a file that is none

Texts = dict[int, tuple[int, ...]]  # index of the prompt -> the ids that answer it


def identity_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What of a plan's identity decides the texts: all but the layers whose outputs are kept."""
    return {key: value for key, value in plan.items() if key != "taps"}


def read_texts(path: Path, plan: Mapping[str, Any], vocab_size: int) -> Texts:
    """The file's answers; none when there is no file.

    Raises DataError for a damaged file and for another plan's.
    """
    if not path.exists():
        return {}
    try:
        with np.load(path, allow_pickle=False) as file:
            kept = dict(json.loads(str(file["plan"])))
            index, ends, ids = (file[name].astype(np.int64, casting="same_kind") for name in ARRAYS)
        lengths = np.diff(ends, prepend=0)
    except (OSError, ValueError, TypeError, KeyError, EOFError, *ZIP_DAMAGE) as error:
        raise DataError(f"{path} is damaged or no file of texts; name another with --texts") from error
    refuse_another(path, kept, identity_of(plan))
    fits = index.shape == ends.shape == (len(np.unique(index)),) and ids.shape == (lengths.sum(),)
    longest = plan["max_new_tokens"]
    if not fits or not _between(lengths, 1, longest) or not _between(ids, 0, vocab_size - 1):
        raise DataError(f"{path} holds texts that this verifier cannot have written; name another")
    texts = np.split(ids, ends[:-1]) if index.size else []
    return {place: tuple(text.tolist()) for place, text in zip(index.tolist(), texts, strict=True)}


def _between(values: NDArray[np.int64], least: int, most: int) -> bool:
    return bool(((values >= least) & (values <= most)).all())


def write_texts(path: Path, folder: ShardFolder, plan: Mapping[str, Any], known: Texts) -> int:
    """Put `known` texts and those of the folder's shards into `path`; how many there are. Raises OSError."""
    found = dict(known)
    for shard in map(read_shard, folder.paths()):
        for one in map(shard.answer, range(len(shard))):
            found[one.index] = one.ids[one.prompt_tokens :]
    order = sorted(found)
    content = BytesIO()
    np.savez_compressed(
        content,
        plan=np.array(json.dumps(identity_of(plan))),
        index=np.array(order, np.uint32),
        ends=np.cumsum([len(found[index]) for index in order], dtype=np.uint32),
        ids=np.array([token for index in order for token in found[index]], np.uint32),
    )
    replace_file(path, lambda place: place.write_bytes(content.getbuffer()))
    return len(order)


@torch.inference_mode()
def recompute(lanes: LaneRunner, prompts: Sequence[Prompt], texts: Texts) -> Iterator[Answer]:
    """The answers to those of `prompts` that `texts` holds, with the verifier's features of every token."""
    for prompt in prompts:
        if prompt.index not in texts:
            continue
        ids = (*prompt.ids, *texts[prompt.index])
        row = torch.tensor(ids[:-1], device=lanes.runner.device)
        features, final = lanes.fill(0, row)
        yield Answer(prompt.index, ids, len(prompt.ids), features.to(STORED).cpu(), final.to(STORED).cpu())
