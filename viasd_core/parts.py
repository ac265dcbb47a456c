"""What a run is made of, taken from a loaded pair: block runners, drafter, masks, token bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from .dimr.chain import choose_chain
from .dimr.masks import LayerMask, MaskStore, even_mask, follows_ratio
from .drafters.autoregressive import AutoregressiveDrafter
from .drafters.base import Drafter
from .drafters.lookup import LookupDrafter
from .errors import MaskError, PairError
from .layers import BlockRunner, Runner
from .pair import ModelPair
from .paths import PRESETS, mask_folder
from .presets import DrafterSpec
from .settings import Settings
from .sublayers import Layer
from .text import Spelling, TokenBytes
from .tier_names import MODEL_TIER, public_tier
from .tiers import TierStack
from .verifier import Slim, Verifier


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
    nested: tuple[Layer, ...] | None = None  # layers of a drafter that drafts in the verifier's own slots
    bos_id: int | None = None
    taps: tuple[int, ...] = ()  # verifier layers whose hidden states the drafter reads
    tier_models: Mapping[str, Runner] = field(default_factory=dict)  # slim verifiers that are models, by tier


@dataclass(frozen=True)
class SlimPart:
    """One slim verifier of a run: the verifier under a mask, or a model of its own."""

    slim: Slim
    name: str
    mask: LayerMask | None = None
    tier: str = ""  # of a model: as the settings name it

    @property
    def model(self) -> Runner | None:
        return None if isinstance(self.slim, Sequence) else self.slim


def slim_parts(parts: Parts, settings: Settings) -> list[SlimPart]:
    """The slim verifiers of a run in the order they are asked; none for methods without one.

    Raises MaskError; PairError for a tier whose model is not loaded, or that a drafter cannot work with.
    """
    if not settings.uses_slim:
        return []
    tiers = settings.slim_tiers or (None,)
    masked = [tier for tier in tiers if not is_model(tier)]
    masks = iter(choose_masks(parts, settings, masked) if masked else ())
    found = []
    for tier in tiers:
        if not is_model(tier):
            mask = next(masks)
            found.append(SlimPart(mask.layers, mask.name, mask))
        elif tier in parts.tier_models:
            found.append(SlimPart(parts.tier_models[tier], str(public_tier(tier)), tier=tier))
        else:
            raise PairError(f"the model of tier {tier} is not loaded")
    if parts.taps and found[0].mask is None:
        raise PairError(
            "this drafter reads the verifier's layers, which a model as the first tier does not run; name a "
            "skip ratio as the first tier, or choose another drafter"
        )
    return found


def is_model(tier: float | str | None) -> TypeGuard[str]:
    return isinstance(tier, str) and tier.startswith(MODEL_TIER)


def choose_masks(
    parts: Parts, settings: Settings, tiers: Sequence[float | str | LayerMask | None]
) -> list[LayerMask]:
    """A mask for each tier that has one; None is the one of skip_ratio and mask. Raises MaskError."""
    if parts.masks is None:
        raise MaskError("this verifier has no layer masks; give one as a string of 0 and 1")
    given = [tier for tier in tiers if tier is not None]
    if not given:
        return [parts.masks.choose(settings.mask, settings.skip_ratio)]
    return choose_chain(parts.masks, given, settings.mask)


def choose_first(parts: Parts, choice: str, ratio: float, stronger: Sequence[LayerMask]) -> LayerMask:
    """The first slim verifier's mask by `choice` and skip `ratio`, inside the `stronger` ones'. Raises
    MaskError.
    """
    if parts.masks is None:
        raise MaskError("this verifier has no layer masks; give one as a string of 0 and 1")
    if not stronger:
        return parts.masks.choose(choice, ratio)
    follows = follows_ratio(choice)
    first = ratio if follows else choice
    return choose_chain(parts.masks, [first, *stronger], choice if follows else "auto")[0]


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
        tier_models={
            tier: BlockRunner(loaded.model, vocab_size=pair.n_vocab) for tier, loaded in pair.tiers.items()
        },
    )


def mask_files(pair: ModelPair) -> list[Path]:
    """The user's masks first, so that an own search counts, then the preset's and every shipped one; the
    store passes over those for other models.
    """
    own, shipped = (sorted(folder.glob("*.json")) for folder in (mask_folder(), PRESETS / "masks"))
    return list(dict.fromkeys([*own, *pair.preset.masks, *shipped]))


def skip_layers(spec: DrafterSpec, masks: MaskStore) -> tuple[Layer, ...]:
    """Layers a layer-skip drafter keeps, see `drafter_mask`."""
    return drafter_mask(spec, masks).layers


def drafter_mask(spec: DrafterSpec, masks: MaskStore) -> LayerMask:
    """A layer-skip drafter's mask: the nearest stored one, an even one where none is stored.

    A drafter's mask cannot make the output wrong, only the drafts poor.
    """
    ratio = spec.skip_ratio or 0.0
    return masks.nearest(ratio) if masks.stored else even_mask(ratio, masks.n_layers)


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
