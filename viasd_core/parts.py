"""What a run is made of, taken from a loaded pair: block runners, drafter, masks, token bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .dimr.masks import MaskStore, even_mask
from .drafters.autoregressive import AutoregressiveDrafter
from .drafters.base import Drafter
from .drafters.lookup import LookupDrafter
from .layers import BlockRunner, Runner
from .pair import ModelPair
from .paths import PRESETS, mask_folder
from .presets import DrafterSpec
from .text import Spelling, TokenBytes
from .tiers import TierStack
from .verifier import Verifier


@dataclass(frozen=True)
class Parts:
    """Everything `decode` needs that is not a setting. `drafter` makes a fresh one for a run of `capacity`
    rows.
    """

    runner: Runner
    spell: Spelling
    eos_ids: frozenset[int]
    masks: MaskStore | None = None
    drafter: Callable[[Verifier, int], Drafter] | None = None
    nested: tuple[int, ...] | None = None  # layers of a drafter that drafts in the verifier's own slots
    bos_id: int | None = None
    taps: tuple[int, ...] = ()  # verifier layers whose hidden states the drafter reads


def parts_of(pair: ModelPair) -> Parts:
    """Parts of a loaded pair; cheap, shares the models and nothing else. Raises MaskError, PairError."""
    runner = BlockRunner(pair.verifier.model, vocab_size=pair.n_vocab)
    masks = MaskStore(mask_files(pair), pair.verifier.identity)
    return Parts(
        runner=runner,
        spell=TokenBytes(pair.verifier.tokenizer),
        eos_ids=pair.verifier.eos_ids,
        masks=masks,
        drafter=drafter_factory(pair, runner, masks),
        nested=skip_layers(pair.drafter, masks) if pair.drafter.cache == "nested" else None,
        bos_id=pair.verifier.tokenizer.bos_token_id,
        taps=pair.trained.drafter.taps if pair.trained else (),
    )


def mask_files(pair: ModelPair) -> list[Path]:
    """The user's masks first, so that an own search counts, then the preset's and every shipped one; the
    store passes over those for other models.
    """
    own, shipped = (sorted(folder.glob("*.json")) for folder in (mask_folder(), PRESETS / "masks"))
    return list(dict.fromkeys([*own, *pair.preset.masks, *shipped]))


def skip_layers(spec: DrafterSpec, masks: MaskStore) -> tuple[int, ...]:
    """Layers a layer-skip drafter keeps: the nearest stored mask, an even one where none is stored.

    A drafter's mask cannot make the output wrong, only the drafts poor.
    """
    ratio = spec.skip_ratio or 0.0
    return (masks.nearest(ratio) if masks.stored else even_mask(ratio, masks.n_layers)).layers


def drafter_factory(
    pair: ModelPair, runner: BlockRunner, masks: MaskStore
) -> Callable[[Verifier, int], Drafter] | None:
    """How to make the pair's drafter for one run; None when nothing drafts."""
    spec, vocab_size = pair.drafter, runner.vocab_size
    if spec.kind == "lookup":
        return lambda verifier, capacity: LookupDrafter(vocab_size, runner.device, runner.dtype, runner.n_ctx)
    if spec.kind == "layer-skip" and spec.cache == "nested":
        return lambda verifier, capacity: AutoregressiveDrafter(
            "layer-skip", verifier.stack, verifier.nested_tier, runner.n_ctx, vocab_size
        )
    if spec.kind == "layer-skip":
        layers = skip_layers(spec, masks)
        return lambda verifier, capacity: AutoregressiveDrafter(
            "layer-skip", TierStack(runner, [layers], capacity), 0, runner.n_ctx, vocab_size
        )
    if pair.trained is not None:
        return pair.trained.drafter.make
    if pair.draft_model is not None:
        draft = BlockRunner(pair.draft_model.model, vocab_size=vocab_size)
        name = str(pair.draft_model.identity.get("id"))
        return lambda verifier, capacity: AutoregressiveDrafter(
            name, TierStack(draft, [range(draft.n_layers)], capacity), 0, draft.n_ctx, vocab_size
        )
    return None
