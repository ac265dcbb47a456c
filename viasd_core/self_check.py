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
NEAR_CHANCE = 0.2  # trained drafters agree on a third of such text or more, strangers on next to nothing


def self_check(pair: ModelPair) -> dict[str, Any] | None:
    """Agreement of first drafts with the verifier: {agreement 0..1, positions, warning or None}.

    None for drafters that predict nothing (none, lookup), and where no prompt fits the context. Costs at most
    `TOKENS` forwards of the verifier a prompt.
    """
    if pair.drafter.kind in ("none", "lookup"):
        return None
    context = pair.verifier.n_ctx
    fitting = [ids for ids in (encode_prompt(pair, prompt) for prompt in PROMPTS) if len(ids) + 2 <= context]
    if not fitting:
        return None
    accepted = examined = 0
    for ids in fitting:
        short = Settings(method="sd", gamma=1, max_new_tokens=min(TOKENS, context - len(ids)), trace=False)
        for event in generate(pair, ids, short):
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
