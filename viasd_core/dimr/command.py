"""`dimr` from prompts to a stored mask: continue, search, judge on held-out prompts, keep."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..layers import BlockRunner
from ..pair import ModelPair
from ..parts import Parts, parts_of
from ..recording import hardware
from ..settings import Settings
from ..sources import public_identity
from .calibration import Continued, continuing, teacher_force
from .log import SearchLog, log_path
from .masks import MaskStore
from .predict import Draftsman, measure_times
from .report import Bench, compare, curve, layer_costs, nested_masks, tier_gain
from .request import Request
from .score import Scorer, ScoreSettings
from .search import Observation, Search
from .space import Space
from .steps import drained, one_step
from .store import check_target, default_path, mask_content, precedence, save_mask, set_aside


@dataclass
class Workplace:
    """A search ready to run: models, texts q has run over, and where the result goes."""

    pair: ModelPair
    runner: BlockRunner
    parts: Parts
    request: Request
    settings: Settings
    scoring: ScoreSettings
    texts: Continued
    space: Space
    scorer: Scorer
    out: Path
    asked: bool  # `out` was asked for: what lies there is replaced whatever it is worth

    @classmethod
    def prepare(
        cls, pair: ModelPair, request: Request, texts: tuple[Sequence[str], Sequence[str]], out: Path | None
    ) -> Workplace:
        """Raises SettingsError, MaskError, DataError, PromptError, PairError."""
        return drained(cls.preparing(pair, request, texts, out))

    @classmethod
    def preparing(
        cls, pair: ModelPair, request: Request, texts: tuple[Sequence[str], Sequence[str]], out: Path | None
    ) -> Generator[str, None, Workplace]:
        """`prepare` in steps."""
        settings = request.settings(pair.preset)
        scoring = request.scoring(settings)
        parts = parts_of(pair)
        runner = BlockRunner(pair.verifier.model, vocab_size=pair.n_vocab)
        inside = None
        if request.inside is not None:
            inside = MaskStore((), pair.verifier.identity).explicit(request.inside)
        units = request.granularity
        space = Space.of(settings.skip_ratio, runner.n_layers, request.ends, units, inside)
        target = out or default_path(pair.verifier.identity, space.skipped / space.units, units)
        check_target(target)
        continued = yield from continuing(pair, *texts, tokens=request.tokens, gamma=settings.gamma)
        yield "running the verifier over the continuations"
        scorer = Scorer(teacher_force(runner, continued.search, whole=not scoring.shared), scoring)
        asked = out is not None
        return cls(pair, runner, parts, request, settings, scoring, continued, space, scorer, target, asked)

    @property
    def log(self) -> SearchLog:
        """Beside the mask file; see `log_path`."""
        search, verifier = asdict(self.request.search), self.pair.verifier
        return SearchLog(
            log_path(self.out),
            {
                "model": public_identity(verifier.identity),
                # Costs differ between them by more than masks that are nearly as good do.
                "dtype": str(verifier.dtype).removeprefix("torch."),
                "device": verifier.device.type,
                "texts": self.texts.digest(),
                "score": self.scoring.as_dict(),
                "space": asdict(self.space),
                # How long it may go on does not change which way it goes.
                "search": {key: search[key] for key in ("kind", "theta", "seed")},
            },
        )

    def make_search(
        self, past: Sequence[Observation] = (), heard: Callable[[Observation], None] = lambda new: None
    ) -> Search:
        return Search(self.space, self.scorer.cost, self.request.search, past=past, heard=heard)

    def judge(self, best: Observation, history: Sequence[Observation]) -> dict[str, Any]:
        """The found mask on texts the search never saw, what it should give, and what others give."""
        return drained(self.judging(best, history))

    def judging(
        self, best: Observation, history: Sequence[Observation]
    ) -> Generator[str, None, dict[str, Any]]:
        """`judge` in steps."""
        yield "running the verifier over the held-out texts"
        runner, gamma = self.runner, self.settings.gamma
        drafting = self.texts.drafting
        draft_ms = drafting.draft_us / 1000 / drafting.cycles if drafting else 0.0
        context = max(len(text.ids) for text in self.texts.held_out)
        unseen = Scorer(
            teacher_force(runner, self.texts.held_out, whole=not self.scoring.shared), self.scoring
        )
        yield "scoring the mask and others of its size on the held-out texts"
        bench = Bench(
            self.parts,
            unseen,
            measure_times(runner, gamma + 1, context, draft_ms),
            Draftsman.of(drafting, gamma),
            self.settings.debt_limit(gamma),
        )
        found = compare(bench, best.mask)
        found["tier_gain"] = tier_gain(self.pair, self.parts, unseen, best.mask, self.scoring.cost)
        found["drafter"] = asdict(bench.draftsman)
        found["times_ms"] = asdict(bench.times)
        found["hardware"] = hardware(runner.device)
        if self.request.curve:
            masks = nested_masks(bench, best.mask, layer_costs(history, self.space, self.scorer))
            points = []
            for number, mask in enumerate(masks, 1):
                yield f"judging skip ratio {number} of {len(masks)}"
                points.append(bench.judge(mask))
            found["curve"] = curve(points)
        return found

    def keep(
        self,
        best: Observation,
        history: Sequence[Observation],
        complete: bool,
        held_out: dict[str, Any] | None,
    ) -> Kept:
        """Write the mask file: to `out`, or aside when `out` was not asked for and the mask there is better.

        Raises MaskError.
        """
        content = mask_content(
            self.pair.verifier.identity,
            best,
            self.space.n_layers,
            self.space.granularity,
            settings={
                "search": asdict(self.request.search),
                "score": self.scoring.as_dict(),
                "ends": self.request.ends,
                "inside": list(self.space.gone),
                "texts": len(self.texts.search),
                "tokens": sum(text.new_tokens for text in self.texts.search),
            },
            history=history,
            complete=complete,
            held_out=held_out,
        )
        aside = "" if self.asked else self._preferred(content)
        out = set_aside(self.out) if aside else self.out
        save_mask(out, content)
        return Kept(content, out, aside)

    def _preferred(self, content: dict[str, Any]) -> str:
        """Which mask runs had better go on finding, the user's or one that came with the preset, and why."""
        for path in (self.out, *self.pair.preset.masks):
            if better := precedence(path, content, self.pair.verifier.identity):
                return f"{path} stays the mask that runs find: {better}"
        return ""


@dataclass(frozen=True)
class Kept:
    """A mask file: its content and place. `aside`: the sentence why it is not where runs look, or ""."""

    content: dict[str, Any]
    out: Path
    aside: str


@dataclass(frozen=True)
class Found(Kept):
    """A finished or cancelled search and the file it left."""

    evaluations: int
    seconds: float  # of searching, interruptions not counted
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        """The command's JSON object: the mask file without its history, and what the search took."""
        facts = {key: value for key, value in self.content.items() if key not in ("schema", "history")}
        return facts | {
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "evaluations_per_s": self.evaluations / self.seconds if self.seconds else 0.0,
            "out": str(self.out),
            "aside": self.aside,
        }


def run_search(
    place: Workplace, *, resume: bool = False, watch: Callable[[Observation], None] = lambda seen: None
) -> Found | None:
    """Search, judge, keep. Ctrl-C ends the search and keeps the best mask so far, not judged, and its log to
    resume from; None when there is no mask yet. Raises DataError, MaskError, PairError.
    """
    return drained(searching(place, resume=resume, watch=watch))


def searching(
    place: Workplace,
    *,
    resume: bool = False,
    watch: Callable[[Observation], None] = lambda seen: None,
    going: Callable[[], bool] = lambda: True,
) -> Generator[Observation | str, None, Found | None]:
    """`run_search` in steps: observations, then sentences while the mask is judged. It also ends, as after a
    Ctrl-C, when `going` says no before the next step.
    """
    log = place.log
    past = log.resume() if resume else log.begin()
    search = place.make_search(past, log.add)
    history: list[Observation] = []
    complete = False
    try:
        for seen in search:
            history.append(seen)
            watch(seen)
            yield seen
            if not going():
                break
        else:
            complete = True
            log.finish()
    except KeyboardInterrupt:
        complete = False
    best = search.best
    if best is None:
        return None
    kept = place.keep(best, history, complete, None)
    if complete:  # the mask is kept already; when judging is cut short, resuming judges it
        judged = None
        try:
            judging = place.judging(best, history)
            while going() and judged is None:
                judged = yield from one_step(judging)
        except KeyboardInterrupt:
            judged = None
        complete = judged is not None
        if complete:
            unjudged, kept = kept.out, place.keep(best, history, True, judged)
            if unjudged != kept.out:
                unjudged.unlink()
    return Found(kept.content, kept.out, kept.aside, search.evaluations, history[-1].t_us / 1e6, complete)
