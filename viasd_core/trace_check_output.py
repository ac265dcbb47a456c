"""Checks of run.json's description, of single token rows, and of the output they make up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any

from .settings import Settings
from .trace import EMITTED_VERDICTS, FINISHES, SOURCES, VERDICTS, TokenRow, Trace, is_slim_decided

ROUNDING = 1e-6  # a probability or log-probability may pass its bound by this much

WORD_SETTINGS = tuple(option.name for option in fields(Settings) if isinstance(option.default, str))
RUN_KEYS: dict[str, type | tuple[type, ...]] = {
    "schema": str,
    "run_id": str,
    "method": str,
    "settings": dict,
    "prompt_tokens": int,
    "token_ids": list,
    "text": str,
    "complete": bool,
    "definitions": dict,
    "totals": dict,
}
OPTIONAL_KEYS: dict[str, type | tuple[type, ...]] = {
    "prompt_token_ids": list,
    "finish_reason": str,
    "n_layers": int,
    "mask": str,
    "r_eff": (int, float),
    "wall_s": (int, float),
    "ttft_s": (int, float),
    "tokens_per_s": (int, float),
}
_NOT_POSITIVE = ("logp_draft", "logp_slim", "logp_full", "audit_logp")
_SHARES = ("p_used", "slim_ratio", "rand_u", "audit_accept")
_NOT_NEGATIVE = ("thr1", "thr2", "top2_margin", "entropy_draft", "audit_kl")


def run_is_typed(trace: Trace) -> Iterator[str]:
    """Values of run.json are of the kind every other rule expects; when not, no other rule can run."""
    for key, kind in (RUN_KEYS | OPTIONAL_KEYS).items():
        value = trace.run.get(key)
        if (value is not None or (key in RUN_KEYS and key in trace.run)) and not isinstance(value, kind):
            yield f"run.json: {key!r} holds {value!r:.60}, which is of the wrong type"
    settings = trace.run.get("settings")
    limit = settings.get("max_new_tokens") if isinstance(settings, dict) else None
    if limit is not None and not isinstance(limit, int):
        yield f"run.json: the setting max_new_tokens holds {limit!r:.60}, expected a whole number"
    for name in WORD_SETTINGS:
        word = settings.get(name, "") if isinstance(settings, dict) else ""
        if not isinstance(word, str):
            yield f"run.json: the setting {name} holds {word!r:.60}, expected a word"


def run_is_described(trace: Trace) -> Iterator[str]:
    """run.json holds what a reader needs, and its ending agrees with itself."""
    yield from (f"run.json lacks {key!r}" for key in RUN_KEYS if key not in trace.run)
    finish = trace.run.get("finish_reason")
    if finish is not None and finish not in FINISHES:
        yield f"run.json: finish_reason is {finish!r}, expected one of {', '.join(FINISHES)}"
    if trace.run.get("complete") and finish is None:
        yield "run.json: the run is marked complete but has no finish_reason"
    if trace.finish is not None and finish != trace.finish:
        yield f"run.json: finish_reason is {finish!r}, the cycles ended with {trace.finish!r}"
    prompt = trace.run.get("prompt_token_ids")
    if isinstance(prompt, list) and len(prompt) != trace.run.get("prompt_tokens"):
        yield f"run.json: prompt_tokens is {trace.run.get('prompt_tokens')}, the prompt has {len(prompt)} ids"


def rows_are_possible(trace: Trace) -> Iterator[str]:
    """Words come from the schema's lists, numbers lie in their domain, and a row's columns agree."""
    for index, row in enumerate(trace.tokens):
        for problem in (*_contradictions(row), *_out_of_domain(row), *_misspelt(row)):
            yield f"tokens.csv row {index + 2} (cycle {row.cycle}, slot {row.slot}): {problem}"


def _contradictions(row: TokenRow) -> Iterator[str]:
    if row.verdict not in VERDICTS or row.source not in SOURCES:
        yield f"unknown verdict {row.verdict!r} or source {row.source!r}"
    if row.emitted != (row.out_pos is not None):
        yield f"emitted is {int(row.emitted)} but out_pos is {row.out_pos}"
    if row.emitted != (row.verdict in EMITTED_VERDICTS):
        yield f"emitted is {int(row.emitted)} but the verdict is {row.verdict}"
    drafted = row.source in ("draft", "repair")
    if row.region and not drafted:
        yield f"region {row.region} on a token whose source is {row.source}; only examined drafts have one"
    needed = {"accepted_slim": "A", "accepted_full": "C"}.get(row.verdict)
    if needed and row.region != needed:
        yield f"{row.verdict} needs region {needed}, found {row.region or 'none'}"
    if row.verdict == "rejected" and row.region not in ("B", "C"):
        yield f"a rejected draft has region B or C, found {row.region or 'none'}"
    if row.verdict in ("regenerated_slim", "rewritten_full", "target", "bonus") and drafted:
        yield f"{row.verdict} cannot come from source {row.source}"
    if row.verdict == "regenerated_slim" and row.source != "slim_sample":
        yield f"regenerated_slim comes from slim_sample, found {row.source}"
    if row.audit_kl is not None and row.emitted and not is_slim_decided(row):
        yield f"audit_kl on a token the slim verifier did not settle ({row.verdict})"
    if (row.audit_rank is None) != (row.audit_cycle is None):
        yield "audit_rank and audit_cycle must stand together"
    if row.audit_cycle is not None and row.audit_cycle < row.cycle:
        yield f"audited in cycle {row.audit_cycle}, before it was drafted"


def _out_of_domain(row: TokenRow) -> Iterator[str]:
    for names, low, high in (
        (_NOT_POSITIVE, -math.inf, 0.0),
        (_SHARES, 0.0, 1.0),
        (_NOT_NEGATIVE, 0.0, math.inf),
    ):
        for name in names:
            value = getattr(row, name)
            if value is not None and not low - ROUNDING <= value <= high + ROUNDING:
                yield f"{name} is {value!r}, outside {low:g} to {high:g}"
    for name in ("slot", "token_id", "branch", "t_us", "out_pos", "audit_rank"):
        value = getattr(row, name)
        if value is not None and value < 0:
            yield f"{name} is {value}, below 0"


def _misspelt(row: TokenRow) -> Iterator[str]:
    """The shown text is the bytes'; only what a character cut in two leaves behind may stand before it."""
    try:
        spelled = row.data.decode("utf-8")
    except UnicodeDecodeError:
        return
    before = row.text.removesuffix(spelled)
    if not row.text.endswith(spelled) or before.strip("\ufffd"):
        yield f"token_json is {row.text!r:.60}, but its bytes spell {spelled!r:.60}"


def output_is_whole(trace: Trace) -> Iterator[str]:
    """Emitted rows in out_pos order are 0, 1, 2, ... and give run.json's token ids, text and count."""
    emitted = trace.emitted
    for expected, row in enumerate(emitted):
        if row.out_pos != expected:
            yield f"output position {expected} is missing or given twice (next emitted row is {row.out_pos})"
            return
    ids = trace.run.get("token_ids")
    if isinstance(ids, list) and ids != trace.token_ids:
        yield f"run.json: token_ids differs from the emitted rows {_first_difference(ids, trace.token_ids)}"
    text = trace.run.get("text")
    if isinstance(text, str) and text != trace.text:
        yield f"run.json: text differs from the emitted bytes {_first_difference(text, trace.text)}"
    for before, after in pairwise(emitted):
        if after.cycle < before.cycle:
            yield f"output token {after.out_pos} comes from cycle {after.cycle}, an earlier one than the last"
    limit = trace.run.get("settings", {}).get("max_new_tokens")
    if limit is not None and len(emitted) > limit:
        yield f"{len(emitted)} tokens were emitted, more than max_new_tokens {limit}"
    if trace.finish == "length" and limit is not None and len(emitted) != limit:
        yield f"finish_reason is length after {len(emitted)} of {limit} tokens"


def _first_difference(given: Any, found: Any) -> str:
    if len(given) != len(found) and given[: len(found)] == found[: len(given)]:
        return f"in length: {len(given)}, expected {len(found)}"
    index = next(index for index, (one, two) in enumerate(zip(given, found, strict=False)) if one != two)
    return f"at {index}: {given[index]!r}, expected {found[index]!r}"
