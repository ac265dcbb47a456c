"""One benchmark from a request to a result file, safe against interruption after every prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import DataError, SettingsError
from ..method_options import IDLE_WITH_LOOKUP, METHOD_OPTIONS, check_drafter
from ..pair import ModelPair, load_pair, refuse_drafter, takes_drafter, tier_weights, with_drafter, with_tiers
from ..presets import Preset, load_preset, parse_drafter
from ..recording import describe, encode_prompt
from ..settings import Settings
from ..sources import public_identity
from ..suffix_choice import with_suffix
from ..tier_names import parse_tiers
from .baselines import baseline_settings, hf_runner
from .data import read_items
from .gamma import CANDIDATES, search_gamma
from .layouts import BenchItem
from .measure import BenchPrompt, PromptRuns, Runner, measure, warm_up
from .provenance import file_facts, provenance
from .repairs import ablations
from .request import Request, drafter_label, variant_label
from .results import BASE, UNTRACED, document, prompt_entry, write_result
from .runners import EngineRunner, method_settings

Say = Callable[[str], None]


@dataclass(frozen=True)
class Lane:
    """One column of the benchmark. `spec` is what the result file says about it; None: raw runs only, no
    method."""

    runner: Runner
    spec: dict[str, Any] | None


def run_benchmark(request: Request, say: Say) -> dict[str, Any]:
    """Measure and write `request.out`; returns the result, whose `complete` is False after Ctrl-C.

    Raises a ViasdError for bad input, before any measurement. Whatever ends the run, the file holds every
    prompt that was finished.
    """
    items = read_items(request.data, task=request.task, limit=request.limit)
    preset = load_preset(request.preset)
    # Stop strings would make the baselines decode something else, and figures come from traces.
    fixed = {"max_new_tokens": request.max_new_tokens, "stop": (), "trace": True}
    overrides = {**request.overrides, **fixed}
    settings = {method: method_settings(preset, method, overrides) for method in request.all_methods}
    variants = via_sd_variants(request, preset, overrides)
    for chosen in variants.values():
        tier_weights(chosen)  # before the verifier, which may take minutes to load
    drafter = preset.drafter if request.drafter is None else parse_drafter(request.drafter)
    more = [parse_drafter(word) for word in request.more_drafters]
    if any(spec.kind == "none" for spec in more):
        raise SettingsError("--more-drafters names none, which drafts nothing; leave it out")
    # What does nothing for the pair's own drafter may be meant for the others.
    asked = () if any(spec.kind != drafter.kind for spec in more) else request.overrides
    for method in request.methods:
        check_drafter(method, drafter.kind, asked)
    say(f"loading {preset.name}")
    pair = load_pair(
        preset, verifier=request.verifier, drafter=request.drafter, dtype=request.dtype, device=request.device
    )
    for method in request.methods:
        refuse_drafter(method, pair)
    if request.ablations:
        variants |= ablations(settings["cure"])
    lanes = engine_lanes(pair, settings | variants)
    for word in request.more_drafters:
        lanes += drafted_lanes(word, pair, settings)
    lanes += [*baseline_lanes(pair, settings[BASE], request.baselines)]
    if request.tracing_cost:
        lanes.append(Lane(EngineRunner(UNTRACED, pair, settings["via-sd"].with_(trace=False)), None))
    prompts, skipped = encode(pair, items, request.max_new_tokens, raw=request.raw)
    facts = {
        **provenance(str(pair.verifier.device)),
        **pair_facts(pair),
        "data": file_facts(request.data),
        "planned_prompts": len(prompts),
        "skipped": skipped,
        "repeats": request.repeats,
        "max_new_tokens": request.max_new_tokens,
        "temperature": settings[BASE].temperature,
        "seed": settings[BASE].seed,
        "chat_template": not request.raw and preset.chat,
    }
    bench = Benchmark(request, pair, settings, lanes, prompts, facts)
    bench.run(say)
    return bench.result()


class Benchmark:
    """A benchmark under way: the raw entries of the finished prompts and what else was found out."""

    def __init__(
        self,
        request: Request,
        pair: ModelPair,
        settings: dict[str, Settings],
        lanes: Sequence[Lane],
        prompts: Sequence[BenchPrompt],
        facts: dict[str, Any],
    ) -> None:
        self.request, self.pair, self.settings = request, pair, settings
        self.lanes, self.prompts, self.facts = list(lanes), prompts, facts
        self.entries: list[dict[str, Any]] = []
        self.searches: dict[str, Any] = {}
        self.complete = False

    def run(self, say: Say) -> None:
        """Tune, warm up, measure. Ctrl-C ends it early and keeps the finished prompts."""
        request = self.request
        try:
            if request.best_gamma:
                self._add_best_gammas(say)
            say("warming up")
            runners = [lane.runner for lane in self.lanes]
            warm_up(runners, self.prompts, request.max_new_tokens)
            for done in measure(
                runners,
                self.prompts,
                max_new_tokens=request.max_new_tokens,
                repeats=request.repeats,
                progress=say,
            ):
                self._keep_traces(done)
                self.entries.append(
                    prompt_entry(done, self._decode, greedy=self.settings[BASE].temperature == 0)
                )
                write_result(request.out, self.result())
            self.complete = True
        except KeyboardInterrupt:
            say(f"interrupted: {len(self.entries)} of {len(self.prompts)} prompts are in {request.out}")
        write_result(request.out, self.result())

    def _keep_traces(self, done: PromptRuns) -> None:
        if self.request.traces is None:
            return
        self.request.traces.mkdir(exist_ok=True)
        taken: set[str] = set()
        for lane in self.lanes:
            if isinstance(lane.runner, EngineRunner) and lane.runner.settings.trace:
                name = re.sub(r"[^a-z0-9.]+", "-", lane.runner.label.lower())
                while name in taken:  # labels may differ in what a file's name leaves out
                    name += "-"
                taken.add(name)
                path = self.request.traces / f"{len(self.entries) + 1:03d}-{name}.zip"
                lane.runner.save(done, path, self.request.max_new_tokens)

    def result(self) -> dict[str, Any]:
        specs = [lane.spec for lane in self.lanes if lane.spec is not None]
        searches = self.searches or None
        return document(self.facts, specs, self.entries, complete=self.complete, gamma_search=searches)

    def _add_best_gammas(self, say: Say) -> None:
        for lane in list(self.lanes):
            base = lane.runner
            if lane.spec is None or not isinstance(base, EngineRunner) or not drafts(base.settings.method):
                continue
            say(f"looking for the best gamma of {base.label}")

            def at(gamma: int, base: EngineRunner = base) -> EngineRunner:
                label = f"{base.label} (gamma {gamma})"
                return replace(base, label=label, settings=base.settings.with_(gamma=gamma))

            candidates = sorted({*CANDIDATES, base.settings.gamma})
            found = search_gamma(at, self.prompts, candidates, self.request.max_new_tokens)
            self.searches[base.label] = found
            if found["best"] != base.settings.gamma:
                self.lanes.append(engine_lane(at(found["best"]), best_gamma=True))

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self.pair.verifier.tokenizer.decode(list(token_ids), skip_special_tokens=True))


def engine_lane(runner: EngineRunner, **more: Any) -> Lane:
    """A method of the engine; with a slim verifier, also its layers and the weight bytes it saves."""
    settings = runner.settings
    known = describe(runner.pair, "", (), settings)
    facts = ("mask", "mask_id", "r_eff", "slim_tiers")
    mask = {key: known[key] for key in facts if known.get(key) is not None}
    spec = {"label": runner.label, "method": settings.method, "settings": settings.as_dict()}
    return Lane(runner, {**spec, **mask, **more})


def drafts(method: str) -> bool:
    """Whether the method's drafts have a length that can be chosen."""
    return "gamma" in METHOD_OPTIONS[method]


def drafted_lanes(drafter: str, pair: ModelPair, settings: dict[str, Settings]) -> list[Lane]:
    """The drafting methods once more, with another drafter. Raises SourceError, PairError."""
    other = with_drafter(pair, parse_drafter(drafter))
    name = drafter_label(drafter)
    return [
        settled_lane(f"{method}, {name}", other, chosen, drafter=name)
        for method, chosen in settings.items()
        if method != BASE and takes_drafter(method, other)
    ]


def engine_lanes(pair: ModelPair, settings: dict[str, Settings]) -> list[Lane]:
    """A lane for each of the `settings`, by their labels."""
    return [settled_lane(label, pair, chosen) for label, chosen in settings.items()]


def settled_lane(label: str, pair: ModelPair, settings: Settings, **more: Any) -> Lane:
    """A lane with the models its tiers name, and with what stands behind repairs decided."""
    idle = IDLE_WITH_LOOKUP if pair.drafter.kind == "lookup" else ()
    usual = {name: getattr(Settings(), name) for name in idle}  # or results would credit it with them
    settled, why = with_suffix(pair, settings.with_(**usual))
    return engine_lane(EngineRunner(label, with_tiers(pair, settled), settled), **why, **more)


def via_sd_variants(request: Request, preset: Preset, overrides: dict[str, Any]) -> dict[str, Settings]:
    """VIA-SD once more at each of the skip ratios and with each of the tiers, by label."""
    changes: list[dict[str, Any]] = [{"skip_ratio": ratio} for ratio in request.skip_ratios]
    changes += [{"tiers": parse_tiers(given)} for given in request.tiers]
    made = [method_settings(preset, "via-sd", {**overrides, **change}) for change in changes]
    return {variant_label(settings): settings for settings in made}


def baseline_lanes(pair: ModelPair, settings: Settings, names: Iterable[str]) -> list[Lane]:
    """Raises PairError for a baseline that this pair cannot serve."""
    runners = [hf_runner(name, pair, settings) for name in names]
    return [
        Lane(runner, {"label": runner.label, "method": runner.label, "settings": baseline_settings(runner)})
        for runner in runners
    ]


def encode(
    pair: ModelPair, items: Sequence[BenchItem], max_new_tokens: int, *, raw: bool
) -> tuple[list[BenchPrompt], list[str]]:
    """Prompts as token ids, and the ids of those left out because prompt and new tokens exceed the context.

    Raises DataError when none is left.
    """
    room = pair.verifier.n_ctx - max_new_tokens
    prompts = [BenchPrompt(item, tuple(encode_prompt(pair, item.prompt, raw=raw))) for item in items]
    fitting = [prompt for prompt in prompts if len(prompt.ids) <= room]
    if not fitting:
        raise DataError(
            f"no prompt fits: the shortest has {min(len(prompt.ids) for prompt in prompts)} tokens and the "
            f"context leaves {max(room, 0)} beside {max_new_tokens} new ones; lower --max-new-tokens or give "
            "shorter prompts"
        )
    return fitting, [prompt.item.id for prompt in prompts if len(prompt.ids) > room]


def pair_facts(pair: ModelPair) -> dict[str, Any]:
    """Models, dtype and attention backend, without the folders that weights were read from."""
    draft = pair.trained or pair.draft_model
    return {
        "preset": pair.preset.name,
        "pair": pair.name,
        "verifier": public_identity(pair.verifier.identity),
        "drafter": pair.drafter.kind if draft is None else public_identity(draft.identity),
        "dtype": str(pair.verifier.dtype).removeprefix("torch."),
        "attention": pair.verifier.model.config._attn_implementation,
    }
