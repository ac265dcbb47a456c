"""The loop: prefill once, then cycles of draft, verify, commit, each emitted as one `CycleEvent`.

A run owns its KV slots, its random streams and its text; models are shared and never written to. Closing the
generator, or dropping it, frees all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .commit import Commit, Committer
from .dimr.masks import LayerMask, follows_ratio
from .emit import Emitter
from .errors import MaskError, PromptError
from .live import KNOB_NAMES, Knobs, LiveSettings
from .methods import make_method
from .methods.base import Run
from .methods.outcome import Outcome
from .pair import ModelPair
from .parts import Parts, parts_of
from .probs import Noise
from .settings import Settings
from .stop import StopRules
from .text import OutputText
from .timing import PhaseClock
from .trace import CycleEvent, CycleRow, EventRow, ShownEdit, TokenRow
from .verifier import Verifier


def generate(
    pair: ModelPair, prompt_ids: Sequence[int], settings: Settings, live: LiveSettings | None = None
) -> Iterator[CycleEvent]:
    """Decode with a loaded pair. Raises PromptError, MaskError and PairError before the first event."""
    return decode(parts_of(pair), prompt_ids, settings, live)


def decode(
    parts: Parts, prompt_ids: Sequence[int], settings: Settings, live: LiveSettings | None = None
) -> Iterator[CycleEvent]:
    """One event a cycle until the run ends; the last one carries `finish`."""
    return _events(Loop(parts, prompt_ids, settings, live or LiveSettings(settings)))


def _events(loop: Loop) -> Iterator[CycleEvent]:
    finish = None
    while finish is None:
        event = loop.step()
        finish = event.finish
        yield event


class Loop:
    """One run. `step` does one cycle; the public entry points are `decode` and `generate`."""

    def __init__(
        self, parts: Parts, prompt_ids: Sequence[int], settings: Settings, live: LiveSettings
    ) -> None:
        tokens = checked_prompt(parts, prompt_ids)
        runner = parts.runner
        wanted = len(tokens) + settings.max_new_tokens
        limit = min(wanted, runner.n_ctx)
        self.parts, self.settings, self.live = parts, settings, live
        self.mask = choose_mask(parts, settings)
        self.clock = PhaseClock(runner.device)
        verifier = Verifier(
            runner,
            limit,
            slim=self.mask.layers if self.mask else None,
            slim_kv=settings.slim_kv,
            nested=parts.nested,
            taps=parts.taps,
        )
        drafter = None
        if parts.drafter is not None and settings.method != "ar":
            drafter = parts.drafter(verifier, limit)
        self.run = Run(
            settings=settings,
            tokens=tokens,
            limit=limit,
            verifier=verifier,
            drafter=drafter,
            eos_ids=parts.eos_ids,
            noise=Noise(settings.seed, runner.device, runner.dtype),
            clock=self.clock,
            knobs=live.snapshot(),
        )
        self.method = make_method(settings)
        reason = "length" if limit == wanted else "context"
        spell = parts.spell
        stop = StopRules(parts.eos_ids, settings.stop, limit - len(tokens), reason, spell)
        self.committer = Committer(self.run, stop)
        text = OutputText(tuple(stop.encode() for stop in settings.stop))
        self.emitter = Emitter(len(tokens), spell, text)
        self.cycle = 0
        self._noted_context = False

    @torch.inference_mode()
    def step(self) -> CycleEvent:
        """One cycle: knobs, the method, commit, event."""
        run = self.run
        started = self.clock.start_cycle()
        if self.cycle == 0:
            with self.clock.phase("prefill"):
                run.verifier.prefill(run.tokens[:-1])
                if run.drafter is not None:
                    run.drafter.begin(run.tokens)
        events = self._turn_knobs(started)
        before = len(run.tokens)
        outcome = self.method.cycle(run)
        with self.clock.phase("commit"):
            done = self.committer.commit(outcome)
        self.committer.settle_at_end(done, outcome)
        for region in outcome.regions:
            run.region_totals[region] += 1
        events += self._notes(started)
        event = self._event(outcome, done, before, started, events)
        self.cycle += 1
        return event

    def _turn_knobs(self, now_us: int) -> list[EventRow]:
        """Take this cycle's snapshot; log what changed and switch the mask when the skip ratio did."""
        run, new = self.run, self.live.snapshot()
        old, run.knobs = run.knobs, new
        changed = [name for name in KNOB_NAMES if getattr(old, name) != getattr(new, name)]
        events = [
            EventRow(
                now_us, self.cycle, "param_change", name, str(getattr(old, name)), str(getattr(new, name))
            )
            for name in changed
        ]
        if self.mask is not None and not {"skip_ratio", "mask"}.isdisjoint(changed):
            before = self.mask.name
            said = self._switch_mask(new, another="mask" in changed)
            events.append(EventRow(now_us, self.cycle, "note", "mask", before, said))
        return events

    def _switch_mask(self, knobs: Knobs, *, another: bool) -> str:
        """Take the mask that the knobs choose, `another` choice than before or the same; gives its name. One
        that cannot be had leaves the old one in force, and a sentence says why.
        """
        assert self.mask is not None and self.parts.masks is not None
        if not another and not follows_ratio(knobs.mask):
            return "an explicit mask ignores the skip ratio"
        try:
            chosen = self.parts.masks.choose(knobs.mask, knobs.skip_ratio)
        except MaskError as error:
            return str(error)
        if chosen.bits != self.mask.bits:
            self.run.verifier.set_slim(chosen.layers)
        self.mask = chosen
        return chosen.name

    def _notes(self, now_us: int) -> list[EventRow]:
        if not self.run.drafter_out_of_context or self._noted_context:
            return []
        self._noted_context = True
        why = "the text outgrew the drafter's context; the full verifier decodes alone"
        return [EventRow(now_us, self.cycle, "note", "drafter", "", why)]

    def _event(
        self, outcome: Outcome, done: Commit, before: int, started: int, events: list[EventRow]
    ) -> CycleEvent:
        run, tokens = self.run, self.run.tokens
        rows: list[TokenRow] = []
        retracted: list[int] = []
        edits: list[ShownEdit] = []
        if self.settings.trace:
            rows, retracted, edits = self.emitter.rows(
                self.cycle, outcome, done, tokens, greedy=run.sampling.greedy, t_us=self.clock.now_us()
            )
        else:
            self.emitter.text_only(done, tokens)
        text, text_retract = self.emitter.text.stream(final=done.cut.finish is not None)
        return CycleEvent(
            cycle=self._cycle_row(outcome, len(tokens) - before, done, started),
            rows=tuple(rows),
            audits=tuple(done.audits) if self.settings.trace else (),
            retracted=tuple(retracted),
            edits=tuple(edits),
            events=tuple(events),
            text=text,
            text_retract=text_retract,
            finish=done.cut.finish,
        )

    def _cycle_row(self, outcome: Outcome, committed: int, done: Commit, started: int) -> CycleRow:
        run, knobs, verifier = self.run, self.run.knobs, self.run.verifier
        via = self.settings.method == "via-sd"
        kept_in_c = sum(region == "C" for region in outcome.regions[: outcome.kept])
        return CycleRow(
            cycle=self.cycle,
            t_start_us=started,
            gamma=knobs.gamma,
            alpha1=knobs.alpha1 if via else None,
            alpha2=knobs.alpha2 if via else None,
            skip_ratio=knobs.skip_ratio if via else None,
            temperature=knobs.temperature,
            param_version=knobs.version,
            drafted=len(outcome.drafted),
            region_a=outcome.regions.count("A"),
            region_b=outcome.regions.count("B"),
            region_c_accepted=kept_in_c,
            region_c_rejected=outcome.regions.count("C") - kept_in_c,
            committed=committed,
            retracted=done.retracted,
            draft_forwards=outcome.draft_forwards,
            slim_forwards=outcome.slim_forwards,
            full_forwards=outcome.full_forwards,
            settle_forwards=outcome.settle_forwards,
            kv_len=len(run.tokens),
            n_q=verifier.n_q,
            n_s=verifier.n_s if via else 0,
            debt=len(run.tokens) - 1 - verifier.n_q,
            mask_id=self.mask.name if self.mask else "",
            reason=outcome.reason,
            phase_us=self.clock.close_cycle(),
        )


def choose_mask(parts: Parts, settings: Settings) -> LayerMask | None:
    """The slim verifier's mask; None for methods without one. Raises MaskError."""
    if settings.method != "via-sd":
        return None
    if parts.masks is None:
        raise MaskError("this verifier has no layer masks; give one as a string of 0 and 1")
    return parts.masks.choose(settings.mask, settings.skip_ratio)


def checked_prompt(parts: Parts, prompt_ids: Sequence[int]) -> list[int]:
    """The ids a run really starts from: a start token stands in for an empty prompt. Raises PromptError."""
    tokens = [int(token) for token in prompt_ids]
    if not tokens and parts.bos_id is not None:
        tokens = [parts.bos_id]
    if not tokens:
        raise PromptError("the prompt is empty and the model has no start token; give at least one character")
    vocab_size, n_ctx = parts.runner.vocab_size, parts.runner.n_ctx
    outside = next((token for token in tokens if not 0 <= token < vocab_size), None)
    if outside is not None:
        raise PromptError(
            f"the prompt holds token id {outside}, outside the pair's vocabulary of {vocab_size} ids"
        )
    if len(tokens) >= n_ctx:
        raise PromptError(
            f"the prompt is {len(tokens)} tokens long and the model's context holds {n_ctx}; "
            f"shorten it to {n_ctx - 1} or fewer"
        )
    return tokens
