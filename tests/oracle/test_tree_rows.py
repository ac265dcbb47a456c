"""A tree pass gives each node what decoding its path alone gives, and the kept path becomes plain rows."""

from __future__ import annotations

import random

import pytest
import torch

from oracle.models import LAYERS, VARIANTS, WINDOW, model, prompt
from oracle.reference import first, recompute
from oracle.rows import difference, tolerance
from viasd_core import masks, tree
from viasd_core.layers import BlockRunner
from viasd_core.tiers import TierStack

SLIM = (1, 3)


def random_tree(dice: random.Random, size: int) -> list[int]:
    """Parents of a random tree; new nodes prefer late parents, so that some paths are deep."""
    return [-1, *(max(dice.randrange(-1, node), dice.randrange(-1, node)) for node in range(1, size))]


def path_logits(variant: str, text: list[int], tokens: list[int], parents: list[int]) -> torch.Tensor:
    """Logits of every node, each path decoded by itself."""
    rows = []
    for node in range(len(parents)):
        path = [tokens[index] for index in tree.path(parents, node)]
        rows.append(recompute(model(variant), text + path)[0][-1])
    return torch.stack(rows)


@torch.inference_mode()
def check_tree(
    variant: str, *, bucketed: bool, attention: str, committed: int, size: int, seed: int, spare: int = 1
) -> None:
    """One tree pass, the accepted path made rows, and one more token, against the definition."""
    dice = random.Random(seed)
    text, tokens, parents = prompt(committed, seed), prompt(size, seed + 1), random_tree(dice, size)
    made = model(variant, attention=attention)
    exact = tolerance(made)
    stack = TierStack(BlockRunner(made, bucketed=bucketed), [range(LAYERS)], committed + size + spare)
    stack.prefill(text)
    logits = stack.run_tree(0, torch.tensor(tokens), parents)
    assert (logits - path_logits(variant, text, tokens, parents)).abs().max() < exact
    path = tree.path(parents, dice.randrange(size))
    stack.keep_path(0, path)
    text += [tokens[node] for node in path]
    assert stack.rows == [len(text)]
    following = prompt(1, seed + 2)
    logits = stack.run(0, following, logit_rows=1)
    expected, rows = recompute(model(variant), text + following)
    assert (logits[-1] - expected[-1]).abs().max() < exact
    assert difference(stack, rows, 0, len(text) + 1) < exact


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("bucketed", [False, True], ids=["exact", "bucketed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_tree_pass_equals_its_paths(variant: str, bucketed: bool, attention: str) -> None:
    for seed, committed in enumerate((0, 5, WINDOW, 2 * WINDOW + 3)):
        check_tree(variant, bucketed=bucketed, attention=attention, committed=committed, size=9, seed=seed)


@pytest.mark.parametrize("bucketed", [False, True], ids=["exact", "bucketed"])
@pytest.mark.parametrize("variant", ["mistral-window", "qwen3-window"])
def test_windows_are_measured_in_positions_not_in_slots(variant: str, bucketed: bool) -> None:
    """A wide tree has far more slots than positions, a deep one outgrows the window by itself."""
    text = prompt(4)
    wide, deep = [-1] * (3 * WINDOW), list(tree.chain(2 * WINDOW))
    late = [*wide[:6], *range(5, 6 + WINDOW + 3)]  # a deep path that starts in a late slot
    for parents in (wide, deep, late):
        tokens = prompt(len(parents), 7)
        runner = BlockRunner(model(variant), bucketed=bucketed)
        stack = TierStack(runner, [range(LAYERS)], len(text) + len(tokens))
        with torch.inference_mode():
            stack.prefill(text)
            logits = stack.run_tree(0, torch.tensor(tokens), parents)
        assert (logits - path_logits(variant, text, tokens, parents)).abs().max() < tolerance(runner.model)


@pytest.mark.parametrize("variant", ["llama", "qwen2-window"])
def test_slim_tier_grows_a_tree_behind_its_debt(variant: str) -> None:
    text, debt, tokens, parents = prompt(9), prompt(4, 1), prompt(6, 2), [-1, 0, 0, -1, 3, 2]
    made = model(variant)
    stack = TierStack(BlockRunner(made), [range(LAYERS), SLIM], 30)
    with torch.inference_mode():
        stack.prefill(text)
        stack.run(1, debt, logit_rows=1)
        logits = stack.run_tree(1, torch.tensor(tokens), parents)
        full_rows = recompute(model(variant), text)[1]
        for node in range(len(parents)):
            ids = text + debt + [tokens[index] for index in tree.path(parents, node)]
            expected, _ = recompute(model(variant), ids, SLIM, {layer: full_rows[layer] for layer in SLIM})
            assert (logits[node] - expected[-1]).abs().max() < tolerance(made)
        stack.keep_path(1, [0, 2, 5])
        text = text + debt + [tokens[0], tokens[2], tokens[5]]
        assert stack.rows == [9, 16]
        logits = stack.run(0, text[9:], logit_rows=1)
        expected, rows = recompute(model(variant), text)
    assert (logits[-1] - expected[-1]).abs().max() < tolerance(made)
    assert difference(stack, rows, 0, 16) < tolerance(made)


def test_every_width_in_every_key_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains as such and as trees, 1 to 9 rows behind 0 to 17, in buckets of 8 keys."""
    monkeypatch.setattr(masks, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(masks, "KEY_BUCKET", 8)
    made, text = model("qwen3-window"), prompt(18)
    runner = BlockRunner(made, bucketed=True)
    rows = recompute(made, text)[1]
    with torch.inference_mode():
        for committed in (0, 1, 6, 7, 8, 9, 14, 17):
            for width in range(1, 10):
                stack = TierStack(runner, [range(LAYERS)], committed + width)
                stack.prefill(text[:committed])
                tokens = prompt(width, committed)
                block = torch.tensor(tokens)
                as_tree = stack.run_tree(0, block, tree.chain(width))
                as_chain = stack.run(0, block, logit_rows=width)
                behind = first(rows, committed) if committed else None
                expected, _ = recompute(made, text[:committed] + tokens, prefix=behind)
                assert (as_tree - expected).abs().max() < tolerance(made), (committed, width)
                assert (as_chain - expected).abs().max() < tolerance(made), (committed, width)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_random_trees(seed: int) -> None:
    dice = random.Random(seed)
    check_tree(
        dice.choice(list(VARIANTS)),
        bucketed=dice.random() < 0.5,
        attention=dice.choice(["sdpa", "eager"]),
        committed=dice.randrange(30),
        size=dice.randrange(1, 25),
        seed=seed,
        spare=dice.randrange(1, 4),
    )


@pytest.mark.parametrize("bucketed", [False, True], ids=["exact", "bucketed"])
def test_padding_rows_never_reach_a_committed_row(bucketed: bool) -> None:
    """Whatever lies in scratch and in slots behind the end may be garbage: nobody reads it."""
    made, text = model("llama"), prompt(11)
    stack = TierStack(BlockRunner(made, bucketed=bucketed), [range(LAYERS)], 40)
    with torch.inference_mode():
        for tensors in (stack.slots.keys, stack.slots.values):
            for tensor in tensors.values():
                tensor[:, :, 12:] = 1e6
        stack.prefill(text)
        logits = stack.run(0, prompt(3, 1), logit_rows=3)
    assert (logits - recompute(made, text + prompt(3, 1))[0][-3:]).abs().max() < tolerance(made)


def test_a_tree_that_does_not_fit_is_refused() -> None:
    stack = TierStack(BlockRunner(model("llama")), [range(LAYERS)], 12)
    with torch.inference_mode(), pytest.raises(ValueError, match="do not fit 12 KV slots"):
        stack.prefill(prompt(10))
        stack.run_tree(0, torch.tensor(prompt(3)), [-1, -1, -1])
