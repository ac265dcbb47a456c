"""What stands behind a repair when nobody says (CURE's `suffix: auto`): told by the drafter, or measured.

A block drafter that was trained with known tokens behind the anchor can draw a suffix anew behind a
substituted token (S2). One that only ever saw masks there may do that worse than the tokens it drafted in the
first place (S1), so the two are compared on a built-in prompt (arXiv 2608.00531 leaves this open).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from .decode import Loop
from .drafters.base import BlockParallel
from .live import LiveSettings
from .pair import ModelPair, takes_drafter
from .parts import Parts, parts_of
from .probs import Noise, Sampling
from .recording import encode_prompt
from .settings import Settings

PROMPT = "Explain in three sentences why the sky is blue, then write a Python function that adds two numbers."
TOKENS = 32
GREEDY = Sampling()
_found: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()  # by a loaded drafter's weights


def with_suffix(pair: ModelPair, settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """`settings` with `suffix: auto` settled for the pair, and what run.json says of it: {suffix_choice:
    ...}, or nothing where there was nothing to settle. Measures at most once a loaded pair.
    """
    if not _is_open(pair, settings):
        return settings, {}
    found = suffix_choice(pair)
    return settings.with_(suffix=found["choice"]), {"suffix_choice": found}


def will_measure(pair: ModelPair, settings: Settings) -> bool:
    """Whether `with_suffix` would decode a short text first."""
    trained = pair.trained
    return (
        _is_open(pair, settings)
        and trained is not None
        and not (trained.drafter.known_prefix or trained.drafter.module in _found)
    )


def suffix_choice(pair: ModelPair) -> dict[str, Any]:
    """{choice, known_prefix} of a pair with a block drafter; where it was measured `compare_suffixes`' scores
    as well.
    """
    assert pair.trained is not None
    drafter = pair.trained.drafter
    if drafter.known_prefix:
        return {"choice": "S2", "known_prefix": True}
    if drafter.module not in _found:
        ids = encode_prompt(pair, PROMPT)
        scores = compare_suffixes(parts_of(pair), ids)
        _found[drafter.module] = {"choice": better(scores), "known_prefix": False, **scores}
    return _found[drafter.module]


def remember(pair: ModelPair, found: dict[str, Any]) -> None:
    """Take over what another process measured for this pair."""
    if pair.trained is not None and not pair.trained.drafter.known_prefix:
        _found.setdefault(pair.trained.drafter.module, found)


def better(scores: dict[str, Any]) -> str:
    """S2 where it agrees more; on a tie S1, which costs no pass."""
    agreement = scores["agreement"]
    return "S2" if agreement["S2"] > agreement["S1"] else "S1"


def note(found: dict[str, Any]) -> str | None:
    """A measured choice in a sentence; None where the drafter's training decided."""
    if found["known_prefix"]:
        return None
    agreement = found["agreement"]
    return (
        f"suffix {found['choice']} was chosen by measurement: of {found['positions']} tokens behind "
        f"{found['repairs']} repairs on a test prompt, the verifier keeps {agreement['S1']:.1%} with S1 (the "
        f"draft reused) and {agreement['S2']:.1%} with S2 (drawn anew)"
    )


def compare_suffixes(parts: Parts, prompt_ids: Sequence[int], tokens: int = TOKENS) -> dict[str, Any]:
    """How much of a suffix the verifier keeps, of S1 and of S2: {agreement: {S1, S2}, repairs, positions}.

    Behind every token of the verifier's own greedy text of `tokens` tokens a block is drafted, and where it
    first errs the verifier's token is put in. `agreement` is the share of the block's tokens behind it, as
    far as the text reaches, that are kept up to the first wrong one; `positions` counts those tokens,
    `repairs` the blocks. At most two passes of the drafter a token.
    """
    runner = parts.runner
    tokens = min(tokens, runner.n_ctx - len(prompt_ids))
    kept = {"S1": 0, "S2": 0}
    repairs = positions = 0
    text, drafter = _greedy_text(parts, prompt_ids, tokens) if tokens > 0 else (list(prompt_ids), None)
    noise = Noise(0, runner.device, runner.dtype)
    for anchor in range(len(prompt_ids) - 1, len(text) - 2):
        assert drafter is not None
        ahead = text[anchor + 1 :]
        count = min(drafter.longest, len(ahead))
        with torch.inference_mode():
            drafter.begin(text[: anchor + 1])
            draft = drafter.draft(count, GREEDY, noise).tokens.tolist()
            place = _agreeing(draft, ahead)
            behind = ahead[place + 1 : count]
            if not behind:
                continue
            redrawn = drafter.redraw([ahead[: place + 1]], count, GREEDY, noise).tokens[0].tolist()
        kept["S1"] += _agreeing(draft[place + 1 :], behind)
        kept["S2"] += _agreeing(redrawn[place + 1 :], behind)
        positions += len(behind)
        repairs += 1
    agreement = {name: count / positions if positions else 0.0 for name, count in kept.items()}
    return {"agreement": agreement, "repairs": repairs, "positions": positions}


def _greedy_text(parts: Parts, prompt_ids: Sequence[int], tokens: int) -> tuple[list[int], BlockParallel]:
    """Prompt and greedy text, and the drafter of that run: its verifier holds the features of every row."""
    settings = Settings(method="block", max_new_tokens=tokens, trace=False)
    loop = Loop(parts, prompt_ids, settings, LiveSettings(settings))
    while loop.step().finish is None:
        continue
    drafter = loop.run.drafter
    assert isinstance(drafter, BlockParallel)
    return loop.run.tokens, drafter


def _agreeing(proposed: Sequence[int], wanted: Sequence[int]) -> int:
    """How many first tokens are the wanted ones."""
    for count, (ours, theirs) in enumerate(zip(proposed, wanted, strict=False)):
        if ours != theirs:
            return count
    return min(len(proposed), len(wanted))


def _is_open(pair: ModelPair, settings: Settings) -> bool:
    return settings.method == "cure" and settings.suffix == "auto" and takes_drafter("cure", pair)
