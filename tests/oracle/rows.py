"""Are the rows in a run's KV slots what their definition says? Every tier, recomputed from scratch."""

from __future__ import annotations

from typing import Any

from oracle.reference import Rows, first, of_layers, recompute
from viasd_core.decode import Loop
from viasd_core.drafters.autoregressive import AutoregressiveDrafter
from viasd_core.tiers import TierStack


def tolerance(model: Any) -> float:
    """How far float64 arithmetic may be off: eager attention takes its softmax in float32 all the same."""
    return 1e-5 if model.config._attn_implementation == "eager" else 1e-10


def difference(stack: TierStack, expected: Rows, start: int, end: int) -> float:
    """Largest deviation of slots start+1..end (rows start..end-1) from `expected`, over its layers."""
    worst = 0.0
    for layer, (keys, values) in expected.items():
        for mine, theirs in ((stack.slots.keys[layer], keys), (stack.slots.values[layer], values)):
            gap = (mine[0, :, start + 1 : end + 1] - theirs[:, start:end]).abs()
            worst = max(worst, gap.max().item() if gap.numel() else 0.0)
    return worst


def check_rows(loop: Loop) -> None:
    """Rows of q, q' and the drafter, after a cycle of a float64 run.

    q: all layers from scratch. A slim verifier: rows of stronger tiers below their watermarks and its own
    above, or with its own cache a sub-model, or a model, by itself. A nested drafter stands on the rows of
    all of them; any other is a model by itself.
    """
    verifier, tokens = loop.run.verifier, loop.run.tokens
    model: Any = loop.parts.runner.model  # type: ignore[attr-defined]
    n_q, last = verifier.n_q, len(tokens) - 1
    _, rows = recompute(model, tokens)
    assert 0 <= n_q <= last
    assert difference(verifier.stack, rows, 0, n_q) < tolerance(model)
    below, settled = first(rows, n_q), n_q
    for slim in reversed(verifier.slims):
        stack, count = slim.stack, slim.rows
        assert count <= last
        if stack is not verifier.stack:
            own: Any = stack.runner.model  # type: ignore[attr-defined]
            _, expected = recompute(own, tokens[:count], slim.layers)
            assert difference(stack, expected, 0, count) < tolerance(own)
            continue
        assert settled <= count
        below = of_layers(below, slim.layers)
        if count > settled:
            _, below = recompute(model, tokens[:count], slim.layers, below)
        assert difference(stack, below, settled, count) < tolerance(model)
        settled = count
    if isinstance(loop.run.drafter, AutoregressiveDrafter):
        check_draft_rows(loop, loop.run.drafter, below, settled)


def check_draft_rows(loop: Loop, drafter: AutoregressiveDrafter, below: Rows, settled: int) -> None:
    stack, n_p, tokens = drafter._stack, drafter.n_p, loop.run.tokens
    layers = stack.layers[drafter._tier]
    model: Any = stack.runner.model  # type: ignore[attr-defined]
    assert n_p <= len(tokens) - 1
    if stack is loop.run.verifier.stack:
        assert settled <= n_p
        _, rows = recompute(model, tokens[:n_p], layers, of_layers(below, layers))
        assert difference(stack, rows, settled, n_p) < tolerance(model)
    else:
        _, rows = recompute(model, tokens[:n_p], layers)
        assert difference(stack, rows, 0, n_p) < tolerance(model)
