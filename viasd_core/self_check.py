"""Does a drafter know its verifier? Short greedy runs on built-in prompts tell before a long one."""

from __future__ import annotations

from typing import Any

from .decode import generate
from .pair import ModelPair
from .recording import encode_prompt
from .settings import Settings

# Of several kinds: a small drafter may know one of them well and be lost in another.
PROMPTS = (
    "Explain in three sentences why the sky is blue.",
    "Write a Python function that adds two numbers.",
    "Tom has 3 apples and buys 4 more. How many apples does he have?",
)
TOKENS = 20  # of each answer
NEAR_CHANCE = (
    0.2  # trained drafters agree on a third of such text and more, unrelated ones on next to nothing
)


def self_check(pair: ModelPair) -> dict[str, Any] | None:
    """Agreement of first drafts with the verifier: {agreement 0..1, positions, warning or None}.

    None for drafters that predict nothing (none, lookup). Costs at most `TOKENS` forwards of the verifier a
    prompt.
    """
    if pair.drafter.kind in ("none", "lookup"):
        return None
    accepted = examined = 0
    for prompt in PROMPTS:
        ids = encode_prompt(pair, prompt)
        tokens = min(TOKENS, pair.verifier.n_ctx - len(ids))
        if tokens < 2:
            return None
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
        f"drafter {called} agrees with the verifier on {accepted} of {examined} tokens of three short tests, "
        "near chance: likely it was made for another model, revision or chat template, or its files are "
        "damaged; the output stays right, but comes slower than by plain decoding"
    )
