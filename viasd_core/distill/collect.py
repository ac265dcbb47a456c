"""First half of `distill`: have the verifier answer prompts until there are enough tokens, in resumable
shards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from ..layers import BlockRunner
from .answers import Answering
from .lanes import LaneRunner
from .prompts import Prompt
from .shards import ShardFolder, batches
from .texts import Texts, recompute

SHARD_TOKENS = 16384


@dataclass(frozen=True)
class Plan:
    """How answers are made. `taps` are the verifier layers whose outputs are kept as features."""

    tokens: int = 1_000_000
    lanes: int = 64
    longest_prompt: int = 160
    max_new_tokens: int = 256
    temperatures: tuple[float, ...] = (0.2, 0.7)
    taps: tuple[int, ...] = ()
    seed: int = 0

    def identity(self, verifier: dict[str, object], prompts: str) -> dict[str, object]:
        """What shards must share to be used together; how many tokens and lanes is nobody's business."""
        kept = asdict(self) | {"temperatures": list(self.temperatures), "taps": list(self.taps)}
        for free in ("tokens", "lanes"):
            del kept[free]
        return {"verifier": verifier, "prompts": prompts, **kept}


def collect(
    runner: BlockRunner,
    eos_ids: frozenset[int],
    prompts: Sequence[Prompt],
    folder: ShardFolder,
    plan: Plan,
    *,
    worker: int = 0,
    workers: int = 1,
    texts: Texts | None = None,
    progress: Callable[[int], None] = lambda new: None,
) -> int:
    """Answer prompts that no shard holds yet until `plan.tokens` new tokens are there; new tokens in all.

    Worker w of n takes every n-th prompt and its share of the tokens, and stops early when prompts run out.
    What a shard or `texts` holds is never made twice; texts in the making when the process is killed are made
    again, the same. `progress` hears of new tokens as shards are written.
    """
    mine = prompts[worker::workers]
    done = folder.summary()
    have = sum(done.get(prompt.index, 0) for prompt in mine)
    share = plan.tokens // workers + (worker < plan.tokens % workers)
    progress(have)
    if have >= share:
        return have
    prefix = common_opening([prompt.ids[:-1] for prompt in prompts])
    lanes = LaneRunner(runner, plan.taps, plan.lanes, plan.longest_prompt + plan.max_new_tokens, prefix)
    answering = Answering(
        lanes,
        lanes=plan.lanes,
        max_new_tokens=plan.max_new_tokens,
        temperatures=plan.temperatures,
        eos_ids=eos_ids,
        seed=plan.seed,
    )
    left = [prompt for prompt in mine if prompt.index not in done]
    known = texts or {}
    again = recompute(lanes, left, known)
    new_ones = answering.answers(prompt for prompt in left if prompt.index not in known)
    for answers in batches(chain(again, new_ones), min(SHARD_TOKENS, share - have)):
        folder.write(f"{worker}-{time.time_ns()}", answers)
        new = sum(answer.new_tokens for answer in answers)
        have += new
        progress(new)
        if have >= share:
            break
    return have


def common_opening(texts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The ids that all texts start with."""
    first, last = min(texts), max(texts)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]
