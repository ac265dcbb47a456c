"""EAGLE-3 (arXiv 2503.01840): a chain drafter of one layer that reads the verifier's hidden states.

Layout as published, in safetensors: `fc`, `midlayer`, `norm`, `lm_head`, `d2t`, `t2d`, and `embed_tokens`,
which may be missing and is then the verifier's. Features are the hidden states at the input of the verifier's
layers 2, L // 2 and L - 3, unless `eagle_config.eagle_aux_hidden_state_layer_ids` names the layers they lie
behind. With `borrowed_head` in the config (what `distill` writes) the head is the verifier's, cut to the
draft vocabulary, and `lm_head` is not in the file.

Row t joins the feature of token t with the embedding of token t + 1 and predicts token t + 2. Behind the
newest feature, the layer's own output stands in for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ..errors import PairError, SourceError
from ..masks import chain_pass, tree_pass
from ..probs import Noise, Sampling, draw, logits_to_probs, raw_log_probs
from ..slots import SlotCache
from ..thin import suits, thin_view
from ..tiers import PREFILL_CHUNK
from ..transfer import to_device, to_host
from ..verifier import Verifier
from .base import Candidate, Draft, Drafter, unsure
from .borrowed import cut_head, from_offsets, spread
from .checkpoints import Checkpoint, Target, Trained, check_equal
from .eagle_network import EagleNetwork, WideLayer, network_config

AUX_LAYERS = "eagle_aux_hidden_state_layer_ids"
BORROWED_HEAD = "borrowed_head"
UNUSED = ("d2t", "t2d")  # read apart, or follows from d2t
PICKLED = ("*.bin", "*.pt", "*.pth")


class Reader:
    """What one loaded drafter gives every run: its network, and how tokens and features enter it."""

    def __init__(
        self, checkpoint: Checkpoint, target: Target, network: EagleNetwork, ids: Sequence[int]
    ) -> None:
        config = target.config
        self.name, self.vocab_size = checkpoint.name, target.runner.vocab_size
        self.n_ctx = min(int(checkpoint.need("max_position_embeddings")), target.runner.n_ctx)
        self.taps = tuple(sorted(set(ids)))
        self._places = [self.taps.index(layer) for layer in ids]
        self._draft_ids, self._padded = draft_ids(checkpoint, target), int(config.vocab_size)
        own = "embed_tokens.weight" in network.state_dict()
        self._embedding = network.embed_tokens.weight if own else target.embedding
        self.network: Any = thin_view(network) if suits(network.lm_head.weight) else network

    def new_slots(self, capacity: int) -> SlotCache:
        attention = self.network.midlayer.self_attn
        weight, head_dim = attention.k_proj.weight, attention.head_dim
        return SlotCache((0,), weight.shape[0] // head_dim, head_dim, capacity, weight.dtype, weight.device)

    def embed(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self._embedding)

    def fuse(self, features: Tensor) -> Tensor:
        fused: Tensor = self.network.fuse(features[:, self._places])
        return fused

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, V]: -inf outside the draft vocabulary; padding of the verifier's head is cut off."""
        return spread(self.network.logits(hidden), self._draft_ids, self._padded)[:, : self.vocab_size]


class FeatureDrafter:
    """The text, and one row of keys and values for each of its tokens but the last.

    Rows below `rows` were built from q's own features. Rows above (features from q', or the network's own
    output) are built again with the next draft. Row t reads token t + 1 as well.
    """

    def __init__(self, reader: Reader, verifier: Verifier, capacity: int) -> None:
        self.name, self.n_ctx = reader.name, reader.n_ctx
        self.rows = 0
        self._reader, self._verifier = reader, verifier
        self._slots = reader.new_slots(capacity)
        self._context: list[int] = []

    def begin(self, context: Sequence[int]) -> None:
        """Writes all rows but the newest, whose output the first draft needs."""
        self._context, self.rows = list(context), 0
        last = min(len(context) - 2, self._verifier.n_q)
        while self.rows < last:
            end = min(self.rows + PREFILL_CHUNK, last)
            embeds, hidden = self._inputs(self.rows, end)
            plan = chain_pass(self.rows, end - self.rows, embeds.device)
            self._reader.network(embeds, hidden, plan, self._slots)
            self.rows = end

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self._context[start:] = tokens
        self.rewind(start - 1)

    def rewind(self, length: int) -> None:
        self.rows = max(0, min(self.rows, length))

    def _pending(self) -> int:
        """First row the coming draft runs over: it needs the newest one in any case."""
        return min(self.rows, len(self._context) - 2)

    def _inputs(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Embeddings and fused features [end - start, H] of rows start..end-1."""
        features = self._verifier.features(start, end)
        return self._reader.embed(
            to_device(self._context[start + 1 : end + 1], features.device)
        ), self._reader.fuse(features)

    def _written(self) -> None:
        self.rows = min(len(self._context) - 1, self._verifier.n_q)

    def _nothing(self) -> Draft:
        """A text of one token has no features yet."""
        tokens = to_device([], self._slots.keys[0].device)
        return Draft(tokens, tokens.new_zeros(0, self._reader.vocab_size, dtype=torch.float32), None, 0)


class EagleDrafter(FeatureDrafter):
    """A chain, or EAGLE-2's tree: the first level costs one forward over the pending rows, each further one a
    row more, of a tree `width` rows.
    """

    def draft_tree(self, depth: int, width: int) -> tuple[list[Candidate], int]:
        """EAGLE-2 (arXiv 2406.16858): a node's value is the product of draft probabilities down to it."""
        length = len(self._context) - 1
        if length < 1:
            return [], 0
        start = self._pending()
        embeds, hidden = self._inputs(start, length)
        plan = chain_pass(start, length - start, embeds.device)
        out = self._reader.network(embeds, hidden, plan, self._slots)
        found = self._children(out, width, [(-1, 0.0)])
        frontier = list(range(len(found)))
        run: list[int] = []  # candidates that have a row, in its order
        parents: list[int] = []  # of those rows
        level = out.expand(len(frontier), -1)
        for _ in range(1, depth):
            places = {candidate: row for row, candidate in enumerate(run)}
            parents += [places.get(found[candidate].parent, -1) for candidate in frontier]
            plan = tree_pass(length, parents, out.device, written=len(run))
            tokens = to_device([found[candidate].token for candidate in frontier], out.device)
            outs = self._reader.network(self._reader.embed(tokens), level, plan, self._slots, len(frontier))
            run += frontier
            first = len(found)
            found += self._children(
                outs, width, [(candidate, found[candidate].value) for candidate in frontier]
            )
            ranked = sorted(range(first, len(found)), key=lambda index: (-found[index].value, index))
            frontier = ranked[:width]
            rows = {candidate: row for row, candidate in enumerate(run[-len(outs) :])}
            level = outs[to_device([rows[found[candidate].parent] for candidate in frontier], outs.device)]
        self._written()
        return found, depth

    def _children(self, hidden: Tensor, width: int, parents: Sequence[tuple[int, float]]) -> list[Candidate]:
        """The `width` likeliest tokens behind each of `parents` (candidate, value); `hidden` [n, H] are their
        outputs.
        """
        logp, tokens = raw_log_probs(self._reader.logits(hidden)).topk(
            min(width, self._reader.vocab_size), dim=-1
        )
        host = to_host(tokens=tokens, logp=logp)
        each = tokens.shape[1]
        return [
            Candidate(int(token), *parents[index // each][:1], one, parents[index // each][1] + one)
            for index, (token, one) in enumerate(zip(host["tokens"], host["logp"], strict=True))
            if one > -torch.inf
        ]

    def draft(self, count: int, sampling: Sampling, noise: Noise, p_min: float = 0.0) -> Draft:
        length = len(self._context) - 1
        if length < 1:
            return self._nothing()
        start = self._pending()
        embeds, hidden = self._inputs(start, length)
        rows, probs, tokens = [], [], []
        for end in range(length, length + count):
            plan = chain_pass(start, end - start, embeds.device)
            hidden = self._reader.network(embeds, hidden, plan, self._slots)
            rows.append(self._reader.logits(hidden))
            drawn = draw_rows(rows[-1], sampling, noise)
            tokens.append(drawn[0])
            probs.append(drawn[1])
            if p_min and unsure(rows[-1], p_min):
                break
            start, embeds = end, self._reader.embed(drawn[0])
        self._written()
        return Draft(torch.cat(tokens), torch.cat(probs), torch.cat(rows), len(tokens))


def draw_rows(logits: Tensor, sampling: Sampling, noise: Noise) -> tuple[Tensor, Tensor]:
    """One token of each row of logits [g, V], and the rows [g, V] they were drawn from."""
    probs = logits_to_probs(logits, sampling)
    rows = [draw(row[None], noise.exponentials("draft", sampling, 1, len(row))) for row in probs]
    return torch.cat(rows), probs


def fits(config: Mapping[str, Any]) -> bool:
    """By architecture; the first releases call themselves LlamaForCausalLM and have a draft vocabulary."""
    names = config.get("architectures") or ()
    named = any("eagle3" in name.lower() for name in names) and "transformer_layer_config" not in config
    first = "LlamaForCausalLM" in names and "draft_vocab_size" in config and "draft_length" not in config
    return named or first


def load(checkpoint: Checkpoint, target: Target) -> Trained:
    """Raises PairError for another verifier's drafter, SourceError for unusable files."""
    need_safetensors(checkpoint)
    layers = feature_layers(checkpoint, target)
    network = load_network(
        checkpoint, target, WideLayer, len(layers), "embed_tokens.weight" in checkpoint.files
    )
    reader = Reader(checkpoint, target, network, layers)

    def make(verifier: Verifier, capacity: int) -> Drafter:
        return EagleDrafter(reader, verifier, capacity)

    return Trained("eagle3", reader.taps, make, network)


def load_network(
    checkpoint: Checkpoint,
    target: Target,
    layer: type[WideLayer],
    features: int,
    embedding: bool,
    unused: tuple[str, ...] = UNUSED,
) -> EagleNetwork:
    """The filled network, whose midlayer is a `layer` and which reads `features` hidden states a row."""
    config = network_config(checkpoint)
    theirs = checkpoint.config.get("target_hidden_size") or config.hidden_size
    check_equal(checkpoint, target, "hidden size", theirs, target.config.hidden_size)
    check_equal(checkpoint, target, "vocabulary size", config.vocab_size, target.config.vocab_size)
    if not embedding and theirs != config.hidden_size:
        raise SourceError(
            f"{checkpoint.name} is incomplete: its hidden size {config.hidden_size} is not the verifier's "
            f"{theirs}, so it needs a tensor 'embed_tokens.weight'"
        )
    borrowed = checkpoint.config.get(BORROWED_HEAD) is True
    width = 0 if borrowed else draft_width(checkpoint)
    network = EagleNetwork(config, features * theirs, width, embedding, layer(config))
    checkpoint.fill(network, target, ignore=unused)
    if borrowed:
        network.lm_head = lent_head(checkpoint, target, config.hidden_size)
    # Made anew: in bfloat16, which `fill` casts to, the angles of far positions would be wrong.
    network.rotary_emb = LlamaRotaryEmbedding(config).to(target.runner.device)
    return network


def lent_head(checkpoint: Checkpoint, target: Target, hidden_size: int) -> nn.Linear:
    """The verifier's head over the draft vocabulary. Raises PairError where it reads another width."""
    check_equal(checkpoint, target, "hidden size", hidden_size, target.config.hidden_size)
    ids = draft_ids(checkpoint, target)
    return target.head if ids is None else cut_head(target.head, ids)


def feature_layers(checkpoint: Checkpoint, target: Target) -> list[int]:
    """Verifier layers behind which the features lie, in the order `fc` reads them. Raises PairError."""
    count = target.runner.n_layers
    named = (checkpoint.config.get("eagle_config") or {}).get(AUX_LAYERS)
    layers = [int(layer) for layer in named] if named else [1, count // 2 - 1, count - 4]
    if not all(0 <= layer < count for layer in layers):
        raise PairError(
            f"drafter {checkpoint.name} reads the hidden states behind layers {layers} of its verifier, and "
            f"{target.name} has {count} layers; use the drafter made for this verifier"
        )
    return layers


def draft_width(checkpoint: Checkpoint) -> int:
    """Rows of the drafter's head: null means the whole vocabulary. Raises SourceError."""
    reduced = checkpoint.config.get("draft_vocab_size") is not None
    return int(checkpoint.need("draft_vocab_size" if reduced else "vocab_size"))


def draft_ids(checkpoint: Checkpoint, target: Target) -> Tensor | None:
    """The verifier's id of each draft id; None where they are the same. Raises SourceError."""
    whole, width = int(target.config.vocab_size), draft_width(checkpoint)
    if width == whole:
        return None
    ids = from_offsets(checkpoint.name, checkpoint.read("d2t"), whole)
    if len(ids) != width:
        raise SourceError(f"{checkpoint.name}: d2t has {len(ids)} entries, its config asks for {width}")
    return ids.to(target.runner.device)


def need_safetensors(checkpoint: Checkpoint) -> None:
    """Refuse weights that only a pickle holds: reading one can run code. Raises SourceError."""
    if checkpoint.files:
        return
    pickles = sorted(path.name for pattern in PICKLED for path in checkpoint.folder.glob(pattern))
    if pickles:
        raise SourceError(
            f"{checkpoint.name} holds its weights as a pickle ({pickles[0]}), which can run code and is not "
            "opened; convert it to model.safetensors"
        )
    raise SourceError(f"{checkpoint.name} has no *.safetensors file; fetch it again")
