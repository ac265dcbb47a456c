"""The loop: prefill once, then cycles of draft, verify, commit, each emitted as one `CycleEvent`.

A run owns its KV slots, its random streams and its text; models are shared and never written to. Closing the
generator, or dropping it, frees all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .commit import Commit, Committer
from .dimr.masks import LayerMask, follows_ratio
from .drafters.base import BlockParallel, Drafter, TreeDrafter
from .emit import Emitter
from .errors import MaskError, PairError, PromptError
from .live import KNOB_NAMES, Knobs, LiveSettings
from .method_options import BLOCK_METHODS, TREE_METHODS
from .methods import make_method
from .methods.base import Run
from .methods.outcome import Outcome
from .pair import ModelPair
from .parts import Parts, SlimPart, choose_first, parts_of, slim_parts
from .probs import Noise
from .settings import Settings
from .stop import StopRules
from .text import OutputText
from .timing import PhaseClock
from .trace import CycleEvent, CycleRow, EventRow, ShownEdit, TokenRow, TreeRow
from .verifier import Verifier


def generate(
    pair: ModelPair, prompt_ids: Sequence[int], settings: Settings, live: LiveSettings | None = None
) -> Iterator[CycleEvent]:
    """Decode with a loaded pair. Raises PromptError, MaskError and PairError before the first event."""
    from .suffix_choice import with_suffix  # which decodes itself

    settings, _ = with_suffix(pair, settings)
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
        self.parts, self.settings, self.live = parts, settings, live
        self.slims = slim_parts(parts, settings)
        models = [slim.model for slim in self.slims if slim.model is not None]
        limit = min([wanted, runner.n_ctx, *(model.n_ctx for model in models)])
        if len(tokens) >= limit:
            raise PromptError(
                f"the prompt is {len(tokens)} tokens long and a tier's context holds {limit}; shorten it to "
                f"{limit - 1} or fewer"
            )
        self.clock = PhaseClock(runner.device)
        verifier = Verifier(
            runner,
            limit + settings.tree_room,
            slim=self.slims[0].slim if self.slims else None,
            stronger=[slim.slim for slim in self.slims[1:]],
            slim_kv=settings.slim_kv,
            nested=parts.nested,
            taps=parts.taps,
        )
        drafter = None
        if parts.drafter is not None and settings.method != "ar":
            drafter = parts.drafter(verifier, limit + settings.tree_room)
        check_drafts(settings, drafter)
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
        if self.slims and not {"skip_ratio", "mask"}.isdisjoint(changed):
            before = self.slims[0].name
            said = self._switch_mask(new, another="mask" in changed)
            events.append(EventRow(now_us, self.cycle, "note", "mask", before, said))
        return events

    @property
    def mask(self) -> LayerMask | None:
        """The first slim verifier's mask."""
        return self.slims[0].mask if self.slims else None

    def _switch_mask(self, knobs: Knobs, *, another: bool) -> str:
        """Give the first slim verifier the mask that the knobs choose, `another` choice than before or the
        same, inside those of the stronger ones; its name. One that cannot be had leaves the old one in force,
        and a sentence says why.
        """
        if self.mask is None:
            return "a model as the first tier has no layer mask"
        if not another and (self.settings.slim_ratio is None or not follows_ratio(knobs.mask)):
            return "an explicit mask ignores the skip ratio"
        stronger = [slim.mask for slim in self.slims[1:] if slim.mask is not None]
        try:
            new = choose_first(self.parts, knobs.mask, knobs.skip_ratio, stronger)
        except MaskError as error:
            return str(error)
        changes = new.bits != self.mask.bits
        self.slims[0] = SlimPart(new.layers, new.name, new)
        if changes:
            self.run.verifier.set_slim(new.layers)
        return new.name

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
        tree: list[TreeRow] = []
        if self.settings.trace and outcome.tree is not None:
            tree = self.emitter.tree_rows(self.cycle, outcome.tree)
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
            tree=tuple(tree),
            events=tuple(events),
            text=text,
            text_retract=text_retract,
            finish=done.cut.finish,
        )

    def _cycle_row(self, outcome: Outcome, committed: int, done: Commit, started: int) -> CycleRow:
        run, knobs, verifier = self.run, self.run.knobs, self.run.verifier
        via, repairs = self.settings.uses_slim, self.settings.method == "cure"
        kept_in_c = sum(region == "C" for region in outcome.regions[: outcome.kept])
        return CycleRow(
            cycle=self.cycle,
            t_start_us=started,
            gamma=run.longest_draft,
            alpha1=knobs.alpha1 if via else None,
            alpha2=knobs.alpha2 if via else None,
            skip_ratio=knobs.skip_ratio if via and self.settings.slim_ratio is not None else None,
            temperature=knobs.temperature,
            param_version=knobs.version,
            drafted=outcome.offered,
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
            tau_margin=knobs.tau_margin if repairs else None,
            v_max=knobs.v_max if self.settings.method in TREE_METHODS else None,
            tree_nodes=len(outcome.tree.tree.nodes) if outcome.tree else 0,
            kv_len=len(run.tokens),
            n_q=verifier.n_q,
            n_s=verifier.n_s if via else 0,
            debt=len(run.tokens) - 1 - verifier.n_q,
            mask_id=",".join(slim.name for slim in self.slims),
            reason=outcome.reason,
            phase_us=self.clock.close_cycle(),
            tier_forwards=tuple(int(tier < outcome.slim_forwards) for tier in range(len(self.slims))),
            tier_us=self.clock.parts(len(self.slims)),
            branch0_kept=outcome.tree.branch0_kept if outcome.tree else None,
            ufps=outcome.tree.ufps if outcome.tree else None,
        )


def check_drafts(settings: Settings, drafter: Drafter | None) -> None:
    """Refuse a drafter that the method cannot use. Raises PairError."""
    if settings.method == "eagle2" and not isinstance(drafter, TreeDrafter):
        raise PairError(
            f"method 'eagle2' needs a drafter that grows trees (EAGLE-3 format); "
            f"{drafter.name if drafter else 'none'} does not: choose one with --drafter"
        )
    if settings.method not in BLOCK_METHODS:
        return
    if not isinstance(drafter, BlockParallel):
        raise PairError(
            f"method {settings.method!r} needs a drafter that proposes whole blocks (DFlash format); "
            f"{drafter.name if drafter else 'none'} does not: choose one with --drafter, or train one with "
            "distill --kind block"
        )
    if settings.method == "cure" and settings.suffix == "S4" and not drafter.rerolls:
        raise PairError(
            f"--suffix S4 redoes Domino's correction or DFlash2's choice, and {drafter.name} has none; "
            "use S1 or S2"
        )


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
