"""Does a drafter know its verifier? A short greedy run on a built-in prompt tells before a long one."""

from __future__ import annotations

from typing import Any

from .decode import generate
from .pair import ModelPair
from .recording import encode_prompt
from .settings import Settings

PROMPT = "Explain in three sentences why the sky is blue, then write a Python function that adds two numbers."
TOKENS = 32
NEAR_CHANCE = 0.2  # trained drafters agree on well over half of such text, unrelated ones on next to nothing


def self_check(pair: ModelPair) -> dict[str, Any] | None:
    """Agreement of first drafts with the verifier: {agreement 0..1, positions, warning or None}.

    None for drafters that predict nothing (none, lookup). Costs about `TOKENS` forwards of the verifier.
    """
    if pair.drafter.kind in ("none", "lookup"):
        return None
    ids = encode_prompt(pair, PROMPT)
    tokens = min(TOKENS, pair.verifier.n_ctx - len(ids))
    if tokens < 2:
        return None
    accepted = examined = 0
    for event in generate(pair, ids, Settings(method="sd", gamma=1, max_new_tokens=tokens, trace=False)):
        accepted += event.cycle.region_c_accepted
        examined += event.cycle.region_c_accepted + event.cycle.region_c_rejected
    agreement = accepted / examined if examined else 0.0
    return {
        "agreement": agreement,
        "positions": examined,
        "warning": warning(pair, accepted, examined) if agreement < NEAR_CHANCE else None,
    }


def warning(pair: ModelPair, accepted: int, examined: int) -> str:
    """What a near-chance drafter means and where to look."""
    name = pair.trained or pair.draft_model
    called = str(name.identity["id"]).rstrip("/").rsplit("/", 1)[-1] if name else pair.drafter.kind
    return (
        f"drafter {called} agrees with the verifier on {accepted} of {examined} tokens of a test prompt, "
        "near chance: likely it was made for another model, revision or chat template, or its files are "
        "damaged; the output stays right, but comes slower than by plain decoding"
    )
