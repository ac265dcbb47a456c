"""`generate`: decode one prompt, stream its text, and keep the trace if asked to."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PromptError, SettingsError, TraceError
from ..method_options import COMMON_OPTIONS, METHOD_OPTIONS, METHODS, check_drafter, flag_of, refuse_unused
from ..settings import BONUSES, GATES, RULES, SUFFIXES, Settings, refuse_idle
from ..terminal import printable
from ..tier_names import parse_tiers
from ..trace import CycleEvent, Trace
from .main import BAD_INPUT, INTERRUPTED, report

if TYPE_CHECKING:
    from ..presets import Preset

ON_SWITCHES = {
    "lookup_first": "copy what followed the same words earlier in the text before the drafter is asked",
    "strict": "lossless by retro-audit: roll back to the first token q disagrees with (temperature 0)",
}
OFF_SWITCHES = {
    "regenerate": "send region B to q as well (binary hierarchical SD)",
    "final_audit": "do not settle the debt that is left at the end",
}
CURE_OFF_SWITCHES = {
    "branch0": "verify the repaired paths without the block as it was drafted (ablation)",
    "resync": "leave the drafter the features of the first rows instead of the winning path's (ablation)",
}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("generate", help="decode one prompt and stream its text")
    parser.set_defaults(run=run)
    parser.add_argument(
        "--preset", default="tiny", metavar="NAME|FILE.yaml", help="model pair (default tiny)"
    )
    parser.add_argument("--method", help=f"one of {', '.join(METHODS)} (default: the preset's)")
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT")
    prompt.add_argument("--prompt-file", metavar="FILE", help="UTF-8 text")
    parser.add_argument("--raw", action="store_true", help="the prompt as it is, without the chat template")
    _add_sampling(parser.add_argument_group("stopping and sampling"))
    _add_via_sd(parser.add_argument_group("drafting and VIA-SD"))
    _add_cure(parser.add_argument_group("CURE"))
    models = parser.add_argument_group("models")
    models.add_argument("--verifier", metavar="SOURCE", help="hub id, folder or GGUF file")
    models.add_argument(
        "--drafter",
        metavar="D",
        help="none, layer-skip, lookup, a shipped drafter (the names in presets/drafters) or a source",
    )
    models.add_argument("--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64")
    models.add_argument("--device", default="auto", help="auto, cpu or cuda")
    output = parser.add_argument_group("output")
    output.add_argument("--trace", metavar="OUT.zip|DIR", help="write the trace bundle here")
    output.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    output.add_argument("--quiet", action="store_true", help="no streamed text, no summary")


def _add_sampling(group: Any) -> None:
    group.add_argument("--max-new-tokens", type=int, metavar="N")
    group.add_argument(
        "--stop", action="append", metavar="STR", help="stop string; may be given several times"
    )
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    group.add_argument("--top-p", type=float, metavar="P")
    group.add_argument("--top-k", type=int, metavar="K")
    group.add_argument("--min-p", type=float, metavar="M")
    group.add_argument("--seed", type=int, metavar="S")


def _add_via_sd(group: Any) -> None:
    group.add_argument("--gamma", type=int, metavar="G", help="drafted tokens a cycle, at most")
    group.add_argument(
        "--draft-p-min",
        type=float,
        metavar="P",
        help="end a draft where the drafter's likeliest token is below this",
    )
    group.add_argument("--alpha1", type=float, metavar="A")
    group.add_argument("--alpha2", type=float, metavar="A")
    group.add_argument(
        "--skip-ratio", type=float, metavar="R", help="share of layers the slim verifier skips"
    )
    group.add_argument(
        "--mask", metavar="M", help="auto, even, random:SEED, a mask file, or a string of 0 and 1"
    )
    group.add_argument(
        "--tiers",
        metavar="T,T",
        help="several slim verifiers, weakest first: skip ratios (0.6,0.45), model:SOURCE, masks; with cure "
        "only via-sd: trees go through q' and its gates before q",
    )
    group.add_argument("--gate", metavar="G", help=", ".join(GATES))
    group.add_argument("--rule-c", metavar="RULE", help=", ".join(RULES))
    group.add_argument("--alpha", type=float, metavar="A", help="lossy rule")
    group.add_argument("--beta", type=float, metavar="B", help="lossy rule")
    group.add_argument("--slim-kv", metavar="KV", help="shared or own")
    group.add_argument("--debt-cap", type=int, metavar="N", help="rows q may be behind; 0 for no cap")
    group.add_argument("--bonus", metavar="B", help=", ".join(BONUSES))
    group.add_argument("--bonus-threshold", type=float, metavar="P", help="confidence a slim bonus needs")
    group.add_argument("--after-escalation", metavar="WHO", help="gate or q")
    for name, text in ON_SWITCHES.items():
        group.add_argument(flag_of(name), action="store_true", default=None, help=text)
    _add_off_switches(group, OFF_SWITCHES)


def _add_cure(group: Any) -> None:
    group.add_argument(
        "--tau-margin", type=float, metavar="T", help="nats; below it a drafted position is uncertain"
    )
    group.add_argument(
        "--margin-scale", type=float, metavar="S", help="nats over which repairs get fewer (default tau)"
    )
    group.add_argument("--v-max", type=int, metavar="N", help="nodes of a tree")
    group.add_argument("--b-max", type=int, metavar="N", help="repairs tried at one position")
    group.add_argument("--beam", type=int, metavar="N", help="repair nodes at one depth")
    group.add_argument("--max-positions", type=int, metavar="N", help="repaired positions of a block")
    group.add_argument(
        "--suffix",
        metavar="S",
        help=f"{', '.join(SUFFIXES)}: by the drafter's training or a short test (default), reuse, "
        "draft anew, redo the correction",
    )
    _add_off_switches(group, CURE_OFF_SWITCHES)


def _add_off_switches(group: Any, switches: Mapping[str, str]) -> None:
    for name, text in switches.items():
        group.add_argument(flag_of(name), dest=name, action="store_false", default=None, help=text)


def run(args: argparse.Namespace) -> int:
    """Everything that can be refused is refused before a model is loaded."""
    from ..presets import load_preset, parse_drafter

    preset = load_preset(args.preset)
    settings = read_settings(args, preset)
    prompt = read_prompt(args)
    if args.trace is not None:
        _check_target(args.trace)

    from ..pair import load_pair, refuse_drafter, tier_weights, with_tiers
    from ..recording import encode_prompt, record
    from ..self_check import self_check
    from ..suffix_choice import note, with_suffix

    if args.drafter is not None and settings.method == "ar":
        raise SettingsError("--drafter is not used by method 'ar'; remove it or choose another method")
    drafter = preset.drafter if args.drafter is None else parse_drafter(args.drafter)
    check_drafter(settings.method, drafter.kind, named(args))
    tier_weights(settings)  # the verifier may take minutes to load
    pair = load_pair(
        preset, verifier=args.verifier, drafter=args.drafter, dtype=args.dtype, device=args.device
    )
    refuse_drafter(settings.method, pair)
    pair = with_tiers(pair, settings)
    prompt_ids = encode_prompt(pair, prompt, raw=args.raw)
    trace, status = Trace(), 0
    if settings.method != "ar" and (check := self_check(pair)) is not None:
        trace.run["drafter_check"] = check
        if check["warning"]:
            print(f"warning: {printable(check['warning'])}", file=sys.stderr)
    settings, found = with_suffix(pair, settings)
    trace.run |= found
    if found and (said := note(found["suffix_choice"])):
        print(f"note: {said}", file=sys.stderr)
    stream = None if args.json or args.quiet else _Printer(hold=settings.strict)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill keeps the trace as Ctrl-C does
    try:
        record(pair, prompt, settings, prompt_ids=prompt_ids, on_event=stream, trace=trace)
    except KeyboardInterrupt:
        status = INTERRUPTED
        report("interrupted; what was decoded so far is kept")
    finally:
        problem = _keep(trace, args.trace)
    if stream is not None:
        stream.close(trace)
    if args.json and trace.cycles:
        print(json.dumps(as_json(trace, None if problem else args.trace)))
    if problem:
        report(problem)
        return BAD_INPUT
    return status


def _keep(trace: Trace, path: str | None) -> str:
    """Write the trace; what went wrong, so that the text can still be printed."""
    try:
        if path is not None and trace.cycles:
            trace.save(path)
    except TraceError as error:
        return str(error)
    return ""


def read_settings(args: argparse.Namespace, preset: Preset) -> Settings:
    """The preset's values for the method (its own where none was given), overridden by what was given.
    Raises SettingsError.
    """
    method = preset.method if args.method is None else args.method
    if method not in METHODS:
        raise SettingsError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    given = named(args)
    if "stop" in given:
        given["stop"] = tuple(given["stop"])
    if "tiers" in given:
        given["tiers"] = parse_tiers(given["tiers"])
    refuse_unused(method, set(given))
    if "skip_ratio" in given and not _follows(given.get("mask", "auto")):
        raise SettingsError("--skip-ratio and an explicit --mask contradict each other; give one of them")
    used = COMMON_OPTIONS | METHOD_OPTIONS[method]
    defaults = {key: value for key, value in preset.settings.items() if key in used}
    settings = Settings(method=method, **{**defaults, **given})
    refuse_idle(settings, set(given))
    return settings


def named(args: argparse.Namespace) -> dict[str, Any]:
    """The settings among the arguments that were given."""
    names = COMMON_OPTIONS.union(*METHOD_OPTIONS.values()) - {"trace"}  # --trace is where to write it
    return {key: value for key, value in vars(args).items() if key in names and value is not None}


def _follows(choice: str) -> bool:
    from ..dimr.masks import follows_ratio

    return follows_ratio(choice)


def read_prompt(args: argparse.Namespace) -> str:
    """The prompt text. Raises PromptError."""
    if args.prompt is not None:
        return str(args.prompt)
    try:
        return Path(args.prompt_file).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise PromptError(f"prompt file {args.prompt_file} cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise PromptError(f"prompt file {args.prompt_file} is not UTF-8 text; convert it first") from None


def _check_target(path: str) -> None:
    from ..bundle import refuse_foreign

    if not path:
        raise TraceError("--trace is empty; give a folder or a name that ends in .zip")
    target = Path(path).absolute()
    refuse_foreign(target)
    existing = next(parent for parent in target.parents if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise TraceError(f"--trace {path} cannot be written; choose a place in a folder you can write to")


class _Printer:
    """Streams text as it becomes safe; under strict, text may be taken back, so it is printed at the end."""

    def __init__(self, *, hold: bool) -> None:
        self._hold = hold

    def __call__(self, event: CycleEvent) -> None:
        if not self._hold:
            self._write(event.text)

    def close(self, trace: Trace) -> None:
        if self._hold:
            self._write(trace.text)
        print(flush=True)
        if trace.cycles:
            print(one_line(trace), file=sys.stderr)

    def _write(self, text: str) -> None:
        print("\n".join(printable(line) for line in text.split("\n")), end="", flush=True)


def one_line(trace: Trace) -> str:
    """The run in one line: speed, and which tier decided how much."""
    run, totals = trace.run, trace.run["totals"]
    calls = totals["full_forwards"] + totals["settle_forwards"]
    counts = ", ".join(f"{name} {count}" for name, count in totals["counts"].items() if count)
    return (
        f"{totals['new_tokens']} tokens in {run['wall_s']:.1f} s ({run['tokens_per_s']:.1f} tokens/s), "
        f"{totals['cycles']} cycles, {calls} full forwards; {counts}; ended by {run['finish_reason']}"
    )


def as_json(trace: Trace, path: str | None) -> dict[str, Any]:
    """The command's JSON object: run.json's facts with the totals spread out."""
    run = trace.run
    facts = (
        "text",
        "token_ids",
        "prompt_tokens",
        "finish_reason",
        "method",
        "settings",
        "mask",
        "mask_id",
        "r_eff",
    )
    slims = {"slim_tiers": run["slim_tiers"]} if "slim_tiers" in run else {}
    speed = ("wall_s", "ttft_s", "tokens_per_s")
    return (
        {key: run.get(key) for key in facts}
        | slims
        | run["totals"]
        | {key: run.get(key) for key in speed}
        | {"trace": path}
    )
