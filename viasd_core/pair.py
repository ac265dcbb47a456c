"""A verifier and what drafts for it: load both, and refuse two whose token ids disagree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from .drafters.checkpoints import Target, Trained
from .drafters.formats import load_trained, trained_format
from .errors import PairError
from .fetch import read_config
from .layers import BlockRunner
from .method_options import DRAFTER_SHAPES, wrong_shape
from .presets import DrafterSpec, Preset, load_preset, parse_drafter
from .settings import Settings
from .sources import LoadedModel, Weights, load_model, parse_source, resolve
from .tier_names import MODEL_TIER

SHOWN = 3  # differing ids named in a message


@dataclass(frozen=True)
class TrainedDrafter:
    """A drafter made for this verifier, and where it came from."""

    drafter: Trained
    identity: dict[str, Any]


@dataclass(frozen=True)
class ModelPair:
    """A verifier q, the drafter that proposes for it and, where the drafter is a model, that model p."""

    name: str
    verifier: LoadedModel
    drafter: DrafterSpec
    draft_model: LoadedModel | None  # set when drafter.kind == "model" and it is a model of its own
    preset: Preset
    trained: TrainedDrafter | None = None  # set when drafter.kind == "model" and it borrows from the verifier
    tiers: Mapping[str, LoadedModel] = field(default_factory=dict)  # slim verifiers that are models, by tier

    @cached_property
    def n_vocab(self) -> int:
        """Ids both models know: logits are sliced to this width, so that padding rows are never drawn."""
        sizes = [verifier_vocab(self.verifier)]
        if self.draft_model is not None:
            sizes.append(self.draft_model.n_vocab)
        return min([*sizes, *(model.n_vocab for model in self.tiers.values())])


def load_pair(
    preset: str | Preset,
    *,
    verifier: str | None = None,
    drafter: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
) -> ModelPair:
    """Load a preset's models; `verifier` (ID, PATH or FILE.gguf) and `drafter` (none, layer-skip, lookup, ID
    or PATH) replace the preset's own.

    dtype is auto, float32, bfloat16, float16 or float64; device auto, cpu or cuda. The loaded models are
    shared and read-only. Raises SettingsError, SourceError, PairError.
    """
    preset = load_preset(preset) if isinstance(preset, str) else preset
    if verifier is not None:
        preset = replace(preset, verifier=parse_source(verifier))
    if drafter is not None:
        preset = replace(preset, drafter=parse_drafter(drafter))
    weights = resolve(preset.verifier)
    if trained_format(read_config(weights.folder)) is not None:
        raise PairError(
            f"{preset.verifier} is a drafter that borrows from a verifier; name a whole model as verifier"
        )
    target = load_model(weights, dtype, device)
    return with_drafter(ModelPair(preset.name, target, preset.drafter, None, preset), preset.drafter)


def with_drafter(pair: ModelPair, spec: DrafterSpec) -> ModelPair:
    """The same verifier with another drafter, loaded in the verifier's dtype and on its device.

    Raises SourceError, PairError.
    """
    other = replace(
        pair, drafter=spec, draft_model=None, trained=None, preset=replace(pair.preset, drafter=spec)
    )
    if spec.source is None:
        return other
    weights = resolve(spec.source)
    config = read_config(weights.folder)
    if trained_format(config) is not None:
        trained = load_trained(weights, config, target_of(pair))
        return replace(other, trained=TrainedDrafter(trained, weights.identity))
    dtype = str(pair.verifier.dtype).removeprefix("torch.")
    draft = load_model(weights, dtype, pair.verifier.device.type)
    check_vocabulary(pair.verifier, draft)
    return replace(other, draft_model=draft)


def takes_drafter(method: str, pair: ModelPair) -> bool:
    """Whether the pair's drafter proposes in the shape the method verifies: whole blocks, or trees."""
    return method not in DRAFTER_SHAPES or (
        pair.trained is not None and pair.trained.drafter.kind.startswith(DRAFTER_SHAPES[method])
    )


def refuse_drafter(method: str, pair: ModelPair) -> None:
    """Raises PairError for a drafter the method cannot use."""
    if not takes_drafter(method, pair):
        kind = pair.trained.drafter.kind if pair.trained else pair.drafter.kind
        raise PairError(wrong_shape(method, kind))


def with_tiers(pair: ModelPair, settings: Settings) -> ModelPair:
    """The same pair with the models that `settings` names as slim verifiers (`model:SOURCE`), in the
    verifier's dtype and on its device.

    Raises SourceError; PairError for one with another vocabulary.
    """
    dtype = str(pair.verifier.dtype).removeprefix("torch.")
    loaded = {}
    for name, weights in tier_weights(settings).items():
        loaded[name] = load_model(weights, dtype, pair.verifier.device.type)
        check_vocabulary(pair.verifier, loaded[name], "tier")
    return replace(pair, tiers=loaded) if loaded else pair


def tier_weights(settings: Settings) -> dict[str, Weights]:
    """Where the models that `settings` names as slim verifiers lie, fetched if need be; quick to refuse one.

    Raises SourceError; PairError for one that is no whole model.
    """
    found = {}
    for name in settings.tiers:
        if isinstance(name, str) and name.startswith(MODEL_TIER):
            found[name] = resolve(parse_source(name.removeprefix(MODEL_TIER)))
            if trained_format(read_config(found[name].folder)) is not None:
                raise PairError(f"tier {name} is a drafter that borrows from a verifier; name a whole model")
    return found


def target_of(pair: ModelPair) -> Target:
    """The verifier as trained drafters see it."""
    runner = BlockRunner(pair.verifier.model, vocab_size=verifier_vocab(pair.verifier))
    return Target(str(pair.verifier.identity["id"]), runner, pair.verifier.model.config)


def verifier_vocab(verifier: LoadedModel) -> int:
    """Ids the verifier may draw: its head without padding rows."""
    return min(verifier.n_vocab, highest_id(verifier) + 1)


def highest_id(loaded: LoadedModel) -> int:
    """The largest id that the tokenizer gives out; rows of the output head above it are padding."""
    return max(loaded.tokenizer.get_vocab().values())


def check_vocabulary(verifier: LoadedModel, other: LoadedModel, role: str = "drafter") -> None:
    """Refuse a drafter, or a model in another `role`, whose ids mean something else to the verifier.

    Raises PairError.

    Output heads may differ in padding. Ids that only one tokenizer names are allowed (a base model lacks the
    tokens its chat version adds), as long as the other head reaches every id the verifier may draw:
    cutting the verifier's row shorter would change its distribution. The other model is fed the verifier's
    ids, so of its own special tokens only a BOS put before every text matters.
    """
    ours, theirs = by_id(verifier), by_id(other)
    differing = [index for index in sorted(ours.keys() & theirs.keys()) if ours[index] != theirs[index]]
    names = f"verifier {verifier.identity['id']} and {role} {other.identity['id']}"
    if differing:
        shown = ", ".join(f"{index} is {ours[index]!r} and {theirs[index]!r}" for index in differing[:SHOWN])
        raise PairError(
            f"{names} do not share a vocabulary: {len(differing)} ids differ, first {shown}; "
            f"choose a {role} with the verifier's tokenizer"
        )
    highest = max([highest_id(verifier), *verifier.eos_ids])
    if other.n_vocab <= highest:
        raise PairError(
            f"{names} do not share a vocabulary: the {role} ends at id {other.n_vocab - 1}, the verifier "
            f"uses ids up to {highest}; choose a {role} with the verifier's tokenizer"
        )
    if opening(verifier) != opening(other):
        raise PairError(
            f"{names} open a text differently: the verifier puts {opening(verifier)} in front, the {role} "
            f"{opening(other)}; choose a {role} with the verifier's tokenizer"
        )


def by_id(loaded: LoadedModel) -> dict[int, str]:
    """Token of every id, added and special tokens included."""
    return {index: token for token, index in loaded.tokenizer.get_vocab().items()}


def opening(loaded: LoadedModel) -> list[int]:
    """The ids the tokenizer puts before a text: its BOS, or nothing."""
    whole = list(loaded.tokenizer("a").input_ids)
    bare = list(loaded.tokenizer("a", add_special_tokens=False).input_ids)
    return whole[: whole.index(bare[0])] if bare and bare[0] in whole else whole
