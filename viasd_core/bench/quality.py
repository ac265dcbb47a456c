"""What a method's output is worth: agreement with greedy decoding by the verifier, and final numbers.

A lossy method that is fast and wrong is not worth its speed, so these stand beside every speed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

_NUMBER = re.compile(r"(?:(?<!\d)[-+])?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_GSM8K_MARK = "####"


def first_divergence(tokens: Sequence[int], base: Sequence[int]) -> int | None:
    """Index of the first token that differs from `base` (a missing token differs); None if equal."""
    for index, (one, other) in enumerate(zip(tokens, base, strict=False)):
        if one != other:
            return index
    return None if len(tokens) == len(base) else min(len(tokens), len(base))


def final_number(text: str) -> float | None:
    """The number behind the last `####`, else the last number of the text; None without a number."""
    _, mark, tail = text.rpartition(_GSM8K_MARK)
    found = _NUMBER.findall(tail) if mark else []
    if found:
        return _number(found[0])
    found = _NUMBER.findall(text)
    return _number(found[-1]) if found else None


def reference_number(reference: str | list[str] | None) -> float | None:
    """The answer of a GSM8K reference (`#### 18`); None for every other kind of reference."""
    if not isinstance(reference, str) or _GSM8K_MARK not in reference:
        return None
    return final_number(reference)


def judge(tokens: Sequence[int], base: Sequence[int] | None, text: str, reference: Any) -> dict[str, Any]:
    """Quality of one output.

    `base` is greedy AR's output, None where there is none to compare with (sampling). Keys: identical_to_ar
    (bool or None), first_divergence (index or None), final_number_correct (bool or None where there is no
    GSM8K reference).
    """
    expected = reference_number(reference)
    divergence = None if base is None else first_divergence(tokens, base)
    return {
        "identical_to_ar": None if base is None else divergence is None,
        "first_divergence": divergence,
        "final_number_correct": None if expected is None else final_number(text) == expected,
    }


def pool(judged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Quality over prompts: shares, with the number of prompts each share is over."""
    compared = [entry["identical_to_ar"] for entry in judged if entry["identical_to_ar"] is not None]
    numbers = [entry["final_number_correct"] for entry in judged if entry["final_number_correct"] is not None]
    divergences = [entry["first_divergence"] for entry in judged if entry["first_divergence"] is not None]
    return {
        "compared_to_ar": len(compared),
        "identical_to_ar": _share(compared),
        "median_first_divergence": median(divergences) if divergences else None,
        "final_numbers_judged": len(numbers),
        "final_number_correct": _share(numbers),
    }


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
