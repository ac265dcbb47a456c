"""Calibration: the verifier's own continuations of prompts, run through it once with everything kept that
scoring a mask needs again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..decode import generate
from ..errors import DataError, PairError
from ..layers import BlockRunner
from ..masks import chain_pass
from ..pair import ModelPair
from ..recording import encode_prompt
from ..settings import Settings
from ..trace import Trace, ratio
from ..transfer import to_device
from .cost import floored_log_probs
from .steps import drained

LONGEST_PROMPT = 1024  # tokens; longer prompts would cost every mask more than the text they calibrate
KEEP_BYTES = 2**30  # of q's rows; beyond it they are made anew from its last hidden states, the same


@dataclass(frozen=True)
class Text:
    """A prompt and q's continuation."""

    ids: tuple[int, ...]
    prompt_tokens: int

    @property
    def new_tokens(self) -> int:
        """Scored positions: one for each of the rows prompt_tokens - 1 .. len(ids) - 2."""
        return len(self.ids) - self.prompt_tokens


@dataclass
class Drafting:
    """What the pair's drafter did while q continued the prompts by speculative decoding."""

    gamma: int
    cycles: int = 0
    empty: int = 0  # cycles in which nothing was drafted
    drafted: int = 0
    examined: int = 0
    accepted: int = 0
    committed: int = 0
    draft_us: int = 0

    def add(self, trace: Trace) -> None:
        for row in trace.cycles:
            self.cycles += 1
            self.empty += row.drafted == 0
            self.drafted += row.drafted
            self.examined += row.examined
            self.accepted += row.region_a + row.region_c_accepted
            self.committed += row.committed
            self.draft_us += row.phase_us.get("draft", 0)

    @property
    def acceptance(self) -> float:
        """Share of examined drafts that are q's own token."""
        return ratio(self.accepted, self.examined)


@dataclass(frozen=True)
class Continued:
    """Texts for the search and texts it never sees."""

    search: list[Text]
    held_out: list[Text]
    drafting: Drafting | None  # None: the pair has no drafter
    tokens: int  # longest continuation

    def digest(self) -> str:
        """Names the search's texts, so that a log is never continued on others."""
        content = [[text.prompt_tokens, *text.ids] for text in self.search]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def split(prompts: Sequence[str], held_out: Sequence[str] | None = None) -> tuple[list[str], list[str]]:
    """(prompts to search on, prompts to hold out): every third is held out unless others are given.

    Raises DataError when one of the two would be empty.
    """
    own = list(prompts)
    if held_out is None:
        own, held_out = [text for place, text in enumerate(prompts) if place % 3 != 1], prompts[1::3]
    if not own or not held_out:
        raise DataError(
            f"a search needs prompts to search on (there are {len(own)}) and to hold out ({len(held_out)}); "
            "give at least one of each, or two, of which the second is held out"
        )
    return own, list(held_out)


def continue_prompts(
    pair: ModelPair, search: Sequence[str], held_out: Sequence[str], *, tokens: int, gamma: int
) -> Continued:
    """q's greedy continuations of up to `tokens` tokens, by speculative decoding where the pair drafts.

    Raises DataError when no prompt of a list fits; PromptError, PairError.
    """
    return drained(continuing(pair, search, held_out, tokens=tokens, gamma=gamma))


def continuing(
    pair: ModelPair, search: Sequence[str], held_out: Sequence[str], *, tokens: int, gamma: int
) -> Generator[str, None, Continued]:
    """`continue_prompts`, prompt by prompt."""
    method = "ar" if pair.drafter.kind == "none" else "sd"
    settings = Settings(method=method, max_new_tokens=tokens, gamma=gamma)
    drafting = Drafting(gamma)

    def continued(prompts: Sequence[str], what: str) -> Generator[str, None, list[Text]]:
        texts = []
        for number, prompt in enumerate(prompts, 1):
            yield f"continuing {what} prompt {number} of {len(prompts)}"
            ids = encode_prompt(pair, prompt)
            if not 0 < len(ids) <= min(LONGEST_PROMPT, pair.verifier.n_ctx - tokens):
                continue
            trace = Trace()
            for event in generate(pair, ids, settings):
                trace.add(event)
            drafting.add(trace)
            texts.append(Text((*ids, *trace.token_ids), len(ids)))
        if not texts:
            raise DataError(
                f"none of the {len(prompts)} {what} prompts has between 1 and {LONGEST_PROMPT} tokens and "
                f"room for {tokens} more; give shorter ones"
            )
        return texts

    return Continued(
        (yield from continued(search, "calibration")),
        (yield from continued(held_out, "held-out")),
        drafting if method == "sd" else None,
        tokens,
    )


@dataclass
class TeacherForced:
    """One text, run through q once.

    `entering[l]` [1, rows, H] are the hidden states that enter layer l (the last: that leave the last layer)
    of the rows that judge new tokens, of all rows when `whole`. A mask's forward starts with them at its
    first skipped layer: before it q' is q. `slots` hold q's KV rows, and free rows behind them for q'.
    """

    runner: BlockRunner
    text: Text
    whole: bool
    keep_rows: bool
    entering: list[Tensor] = field(init=False)
    _log_q: Tensor | None = field(init=False, default=None)

    @torch.inference_mode()
    def __post_init__(self) -> None:
        runner, rows = self.runner, len(self.text.ids) - 1
        self.rows, self.fresh = rows, self.text.new_tokens
        layers = range(runner.n_layers)
        self.slots = runner.new_slots(rows if self.whole else rows + self.fresh, layers)
        plan = chain_pass(0, rows, runner.device)
        hidden = runner.body.embed_tokens(to_device(self.text.ids[:-1], runner.device)[None])
        kept = 0 if self.whole else rows - self.fresh
        self.entering = [hidden[:, kept:]]
        for layer in layers:
            hidden = runner.through(hidden, plan, self.slots, [layer])
            self.entering.append(hidden[:, kept:].clone())
        log_q = self.log_q
        if not log_q.isfinite().all():
            raise PairError(
                "the verifier's numbers are not finite: its weights are damaged or the dtype is too narrow; "
                "check the file or choose --dtype float32"
            )
        self._log_q = log_q if self.keep_rows else None

    @property
    def log_q(self) -> Tensor:
        """q's floored log-probabilities [new tokens, V]."""
        if self._log_q is not None:
            return self._log_q
        return floored_log_probs(self.runner.logits(self.entering[-1][:, -self.fresh :]))

    @property
    def targets(self) -> Tensor:
        """The new tokens [n] that the rows judge."""
        return to_device(self.text.ids[self.text.prompt_tokens :], self.runner.device)


def teacher_force(runner: BlockRunner, texts: Sequence[Text], *, whole: bool = False) -> list[TeacherForced]:
    """Run texts through q. `whole` for a q' that shares no cache with q and must run every row itself.

    Raises PairError when q's numbers are not finite.
    """
    width = 8 if runner.dtype == torch.float64 else 4
    needed = sum(text.new_tokens for text in texts) * runner.vocab_size * width
    return [TeacherForced(runner, text, whole, needed <= KEEP_BYTES) for text in texts]
