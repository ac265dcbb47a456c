"""Markdown from result files. Every figure is read or computed from the file; nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DataError
from ..method_options import METHODS
from ..settings import Settings
from ..terminal import printable
from ..trace import PHASES, ratio
from . import payoff
from .layers_report import layers_text
from .repairs_report import repairs_text
from .table import number, share, table, total, with_interval


def markdown(result: dict[str, Any], name: str) -> str:
    """The report of one result file: provenance, speeds, quality, where the time goes, whether the tier pays.

    `name` stands in the heading and in errors. Raises DataError when the file lacks what its schema promises.
    """
    try:
        text = sections(result, name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{name} is not a whole result file ({type(error).__name__}: {error}); "
            "give a file as bench --out wrote it"
        ) from error
    return "\n".join(printable(line) for line in text.split("\n"))


def sections(result: dict[str, Any], name: str) -> str:
    parts = [f"## Benchmark {name}", provenance_lines(result)]
    if not result["methods"]:
        return "\n\n".join([*parts, "No prompt was finished, so there are no figures."]) + "\n"
    methods = result["methods"]
    parts += ["### Speed", speed_table(methods), SPEED_NOTE, *options_text(methods)]
    parts += ["### Tiers and quality", quality_table(methods)]
    traced = [entry for entry in methods if entry["phases_ms"]]
    if traced:
        parts += ["### Milliseconds a token, by phase", phase_table(traced)]
    compared = (layers_text(result), skips_text(result), repairs_text(result), payoff_text(result))
    more = (*compared, gamma_text(result), tracing_text(result))
    parts += [text for text in more if text]
    return "\n\n".join(parts) + "\n"


SPEED_NOTE = (
    "Ratio: sum of tokens over sum of median times, over the same of `ar`; in brackets the 95 % bootstrap "
    "interval over prompts. Tokens/s includes prefill; the next column starts after the first tokens arrived."
)


def provenance_lines(result: dict[str, Any]) -> str:
    facts = result["provenance"]
    git = facts.get("git") or {}
    revision = git.get("sha", "unknown revision")[:12] + (
        " with local changes" if git.get("modified") else ""
    )
    packages = ", ".join(f"{name} {value}" for name, value in facts.get("packages", {}).items() if value)
    lines = [
        f"- {len(result['prompts'])} prompts of {facts.get('planned_prompts', '?')} from "
        f"`{facts.get('data', {}).get('name', '?')}`, {facts.get('repeats', '?')} repeats, at most "
        f"{facts.get('max_new_tokens', '?')} new tokens, temperature {facts.get('temperature', '?')}",
        f"- preset `{facts.get('preset', '?')}`: verifier {model_name(facts.get('verifier'))}, "
        f"drafter {model_name(facts.get('drafter'))}, {facts.get('dtype', '?')}, "
        f"attention {facts.get('attention', '?')}",
        f"- {facts.get('gpu') or facts.get('cpu', '?')}, {facts.get('threads', '?')} threads, {packages}",
        f"- viasd_core {facts.get('viasd_core', '?')} at {revision}, {facts.get('started', '?')}",
    ]
    if facts.get("skipped"):
        lines.append(f"- left out: {len(facts['skipped'])} prompts too long for the context")
    if not result["complete"]:
        lines.append(
            "- **incomplete**: the run was interrupted; the figures cover the prompts that were finished"
        )
    return "\n".join(lines)


def options_text(methods: Sequence[dict[str, Any]]) -> list[str]:
    """What the methods were told beyond the defaults, and the tables do not show; nothing told: no line."""
    told: dict[str, list[str]] = {}
    for entry in methods:
        told.setdefault(", ".join(options_of(entry)), []).append(f"`{entry['label']}`")
    lines = [f"{'; '.join(labels)}: {options}" for options, labels in told.items() if options]
    return ["Beyond the defaults:\n\n" + "\n".join(f"- {line}" for line in lines)] if lines else []


def options_of(entry: dict[str, Any]) -> list[str]:
    if entry["method"] not in METHODS:
        return []
    usual = Settings(method=entry["method"]).as_dict()
    shown = SHOWN_ELSEWHERE | ({"tiers"} if ", tiers " in entry["label"] else set())
    return [
        f"{name} {SWITCH[value] if isinstance(value, bool) else value}"
        for name, value in entry["settings"].items()
        if name not in shown and name in usual and value != usual[name]
    ]


SWITCH = {True: "on", False: "off"}
# In the provenance, in the table's columns, or following from one of them.
SHOWN_ELSEWHERE = {"max_new_tokens", "temperature", "stop", "seed", "gamma", "skip_ratio", "debt_cap"}


def model_name(identity: Any) -> str:
    """The id of a model's identity; a drafter without a model of its own is named by its kind."""
    return str(identity.get("id", "?")) if isinstance(identity, dict) else str(identity or "?")


def speed_table(methods: Sequence[dict[str, Any]]) -> str:
    head = (
        "method",
        "tokens/s",
        "ratio to ar",
        "after first, tokens/s",
        "TTFT ms",
        "tokens",
        "gamma",
        "skip ratio",
    )
    rows = [
        (
            entry["label"],
            number(entry["tokens_per_s"], 2),
            with_interval(entry["ratio_to_ar"], entry["ratio_ci"]),
            number(entry["tokens_per_s_after_first"], 2),
            number(entry["ttft_s"] * 1000, 0),
            str(entry["new_tokens"]),
            number(entry["settings"].get("gamma"), 0),
            number(entry["settings"].get("skip_ratio"), 2),
        )
        for entry in methods
    ]
    return table(head, rows)


def quality_table(methods: Sequence[dict[str, Any]]) -> str:
    head = (
        "method", "tokens a cycle", "rejection", "escalation rho", "q forwards a token", "q' agrees with q",
        "identical to ar", "first divergence", "final number right",
    )  # fmt: skip
    rows = []
    for entry in methods:
        judged = entry["quality"]
        rows.append(
            (
                entry["label"],
                number(entry["mean_committed"], 2),
                number(entry["rejection_rate"], 3),
                number(entry["escalation_rate"], 3),
                number(total(entry["full_forwards_per_token"], entry["settle_forwards_per_token"]), 3),
                number(entry["audit_agree"], 3),
                share(judged["identical_to_ar"], judged["compared_to_ar"]),
                number(judged["median_first_divergence"], 0),
                share(judged["final_number_correct"], judged["final_numbers_judged"]),
            )
        )
    return table(head, rows)


def phase_table(methods: Sequence[dict[str, Any]]) -> str:
    used = [phase for phase in PHASES if any(entry["phases_ms"][phase] for entry in methods)]
    rows = [
        (
            entry["label"],
            *(number(ratio(entry["phases_ms"][phase], entry["new_tokens"]), 3) for phase in used),
        )
        for entry in methods
    ]
    return table(("method", *used), rows)


SKIPS_HEADING = "### VIA-SD by share of skipped layers (as in the paper's Figure 4)"


def skips_text(result: dict[str, Any]) -> str:
    """VIA-SD over the share of skipped layers, as the paper's Figure 4; nothing unless several shares and
    lossless speculative decoding were measured.
    """
    skipping = [
        entry
        for entry in result["methods"]
        if entry["method"] == "via-sd" and entry.get("mask") and not entry["settings"].get("tiers")
    ]
    skipping.sort(key=lambda entry: float(entry["settings"]["skip_ratio"]))
    if len(skipping) < 2 or not any(entry["label"] == "sd" for entry in result["methods"]):
        return ""
    head = (
        "method", "skipped", "r_eff", "escalation rho", "tokens a cycle", "q' agrees with q", "speed over sd",
        "", "mask",
    )  # fmt: skip
    rows = []
    for entry in skipping:
        measured = payoff.compare(result, entry["label"], payoff.rival(result, entry["label"]))
        rows.append(
            (
                entry["label"],
                number(entry["settings"]["skip_ratio"], 2),
                number(entry.get("r_eff"), 2),
                number(entry["escalation_rate"], 3),
                number(entry["mean_committed"], 2),
                number(entry["audit_agree"], 3),
                with_interval(measured["ratio"], measured["ci"]),
                measured["verdict"],
                str(entry.get("mask") or "-"),
            )
        )
    return "\n\n".join([SKIPS_HEADING, table(head, rows)])


def payoff_text(result: dict[str, Any]) -> str:
    """VIA-SD against plain speculative decoding, where both were measured."""
    by_label = {entry["label"]: entry for entry in result["methods"] if entry["phases_ms"]}
    if "via-sd" not in by_label or "sd" not in by_label:
        return ""
    head = ("method", "draft ms", "slim x ms", "full x ms", "other ms", "tokens a cycle", "= ms a token")
    rows = []
    for label in ("via-sd", "sd"):
        cost = payoff.cycle_cost(by_label[label])
        rows.append(
            (
                label,
                number(cost.draft_ms, 2),
                f"{cost.slim_per_cycle:.2f} x {cost.slim_ms:.2f}",
                f"{cost.full_per_cycle:.2f} x {cost.full_ms:.2f}",
                number(cost.other_ms, 2),
                number(cost.committed, 2),
                number(cost.ms_per_token, 2),
            )
        )
    sentences = ["At the preset's gamma: " + third_tier(result, "via-sd", "sd")]
    if "gamma_search" in result:
        best = [payoff.fastest(result["methods"], method) for method in ("via-sd", "sd")]
        sentences.append("Each at its fastest gamma: " + third_tier(result, *best))
    return "\n\n".join(["### Does the third tier pay? (an average cycle)", table(head, rows), *sentences])


def third_tier(result: dict[str, Any], via: str, sd: str) -> str:
    """One sentence on the measured speed of two labels."""
    measured = payoff.compare(result, via, sd)
    ratio_text = with_interval(measured["ratio"], measured["ci"])
    return (
        f"third tier **{measured['verdict']}** here; {via} runs at {ratio_text} times the speed of {sd}, "
        "prefill included."
    )


def gamma_text(result: dict[str, Any]) -> str:
    searches = result.get("gamma_search")
    if not searches:
        return ""
    lines = [
        f"- {method}: best {found['best']} of "
        + ", ".join(f"{one['gamma']} ({number(one['tokens_per_s'], 1)})" for one in found["tried"])
        for method, found in searches.items()
    ]
    count = len(next(iter(searches.values()))["prompts"])
    return "\n".join(
        [f"### Draft length (tokens/s in brackets, chosen on {count} of the prompts)", "", *lines]
    )


def tracing_text(result: dict[str, Any]) -> str:
    cost = result.get("tracing_cost")
    if not cost:
        return ""
    return (
        "### Cost of tracing\n\n"
        "Time with a trace over time without: "
        f"{with_interval(cost['time_ratio'], cost['time_ratio_ci'], 3)}. "
        f"Host work {number(cost['host_us_per_cycle'], 0)} us of {number(cost['cycle_us'], 0)} us a cycle "
        f"({number(100 * cost['host_share'], 1)} %)."
    )
