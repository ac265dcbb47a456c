"""The result file: figures recomputed from raw runs, partial writes, and files that are not results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.scripted import prompt, result, summary
from viasd_core.bench import results
from viasd_core.bench.measure import PromptRuns, RunResult
from viasd_core.errors import DataError

SPECS: list[dict[str, Any]] = [{"label": name, "method": name, "settings": {}} for name in ("ar", "via-sd")]


def entry(name: str, runs: dict[str, list[RunResult]], greedy: bool = True, **item: Any) -> dict[str, Any]:
    done = PromptRuns(prompt(name, 3, **item), runs)
    return results.prompt_entry(done, lambda tokens: " ".join(map(str, tokens)), greedy)


def two_prompts() -> list[dict[str, Any]]:
    tens, twenties = list(range(10)), list(range(20))
    return [
        entry(
            "p",
            {
                "ar": [result(tens, t) for t in (2.0, 9.0, 2.0)],
                "via-sd": [result(tens, t) for t in (1.0, 1.0, 5.0)],
            },
        ),
        entry(
            "q",
            {
                "ar": [result(twenties, 4.0, 1.0)] * 3,
                "via-sd": [result([*twenties[:5], 99], 2.0, 0.5, 3)] * 3,
            },
        ),
    ]


def test_a_slow_outlier_among_the_repeats_does_not_count() -> None:
    base, via = (results.method_entry(spec, two_prompts()) for spec in SPECS)
    assert base["tokens_per_s"] == pytest.approx(30 / (2 + 4))
    assert via["tokens_per_s"] == pytest.approx(16 / (1 + 2))
    assert via["ratio_to_ar"] == pytest.approx((16 / 3) / 5)
    assert (base["ratio_to_ar"], base["ratio_ci"]) == (1.0, [1.0, 1.0])


def test_speed_after_the_first_tokens_leaves_out_all_that_came_with_them() -> None:
    via = results.method_entry(SPECS[1], two_prompts())
    assert via["tokens_per_s_after_first"] == pytest.approx((9 + 3) / (0.9 + 1.5))
    assert via["ttft_s"] == pytest.approx(0.3)


def test_agreement_with_ar_is_judged_when_greedy_only() -> None:
    quality = results.method_entry(SPECS[1], two_prompts())["quality"]
    assert quality["identical_to_ar"] == 0.5 and quality["median_first_divergence"] == 5
    sampled = entry("p", {"ar": [result([1], 1.0)], "via-sd": [result([2], 1.0)]}, greedy=False)
    assert sampled["runs"]["via-sd"]["quality"]["identical_to_ar"] is None


def test_final_numbers_are_judged_on_the_decoded_text() -> None:
    runs = {"ar": [result([4, 18], 1.0)], "via-sd": [result([4, 17], 1.0)]}
    scored = [entry("p", runs, reference="9 * 2\n#### 18")]
    shares = [results.method_entry(spec, scored)["quality"]["final_number_correct"] for spec in SPECS]
    assert shares == [1.0, 0.0]


def test_repeats_that_differ_are_reported() -> None:
    runs = {"ar": [result([1, 2], 1.0), result([1, 3], 1.0)], "via-sd": [result([1], 1.0)]}
    base, via = (results.method_entry(spec, [entry("p", runs)]) for spec in SPECS)
    assert not base["repeats_agree"] and via["repeats_agree"]


def test_rates_are_pooled_over_prompts_by_what_they_are_shares_of() -> None:
    short = summary(cycles=1, a=1, c_lost=1)  # 1 of 2 examined rejected, q in 1 of 1 cycles
    long = summary(cycles=9, a=4)  # 0 of 36, q in 0 of 9
    pooled = results.pooled_summary([short, long], new_tokens=20)
    assert pooled["rejection_rate"] == pytest.approx(1 / 38)
    assert pooled["escalation_rate"] == pytest.approx(1 / 10)
    assert pooled["mean_committed"] == pytest.approx(2.0)
    assert pooled["full_forwards_per_token"] == pytest.approx(1 / 20)
    assert pooled["slim_forwards_per_token"] == pytest.approx(10 / 20)


def test_audit_agreement_is_pooled_by_audited_tokens() -> None:
    few, many = summary(cycles=1), summary(cycles=1)
    few |= {"slim_audited": 1, "audit": {"agree": 0.0}}
    many |= {"slim_audited": 3, "audit": {"agree": 1.0}}
    assert results.pooled_summary([few, many], 4)["audit_agree"] == pytest.approx(0.75)


def test_methods_without_a_trace_have_no_rates_instead_of_zeros() -> None:
    base = results.method_entry(SPECS[0], two_prompts())
    assert base["rejection_rate"] is None and base["full_forwards_per_token"] is None
    assert base["phases_ms"] is None


def test_phases_are_medians_over_repeats_added_over_prompts() -> None:
    traced = [result([1], 1.0, summary=summary(cycles=cycles)) for cycles in (2, 90, 3)]
    prompts = [entry(name, {"ar": traced}) for name in "pq"]
    assert results.method_entry(SPECS[0], prompts)["phases_ms"]["draft"] == pytest.approx(6.0)


def test_tracing_cost_is_time_with_over_time_without() -> None:
    on = result(range(10), 1.03, summary=summary(cycles=5))
    runs = {"ar": [on], "via-sd": [on], results.UNTRACED: [result(range(10), 1.0)]}
    cost = results.tracing_cost([entry("p", runs), entry("q", runs)])
    assert cost is not None
    assert cost["time_ratio"] == pytest.approx(1.03)
    assert cost["time_ratio_ci"] == [pytest.approx(1.03)] * 2
    assert (cost["host_us_per_cycle"], cost["cycle_us"]) == (pytest.approx(1000), pytest.approx(9000))
    assert results.tracing_cost(two_prompts()) is None


def test_every_figure_can_be_recomputed_from_the_written_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    written = results.document({"cpu": "x"}, SPECS, two_prompts(), complete=True)
    results.write_result(path, written)
    read = results.read_result(path)
    assert read == json.loads(json.dumps(written))
    again = results.document(read["provenance"], SPECS, read["prompts"], complete=True)
    assert json.loads(json.dumps(again)) == read


def test_the_schema_has_the_promised_keys() -> None:
    written = results.document({}, SPECS, two_prompts(), complete=False)
    assert (written["schema"], written["complete"]) == ("viasd-bench/1", False)
    promised = {
        "method", "settings", "tokens_per_s", "ratio_to_ar", "ratio_ci", "new_tokens", "rejection_rate",
        "escalation_rate", "mean_committed", "full_forwards_per_token", "phases_ms", "quality",
    }  # fmt: skip
    assert all(promised <= set(method) for method in written["methods"])
    assert len(written["prompts"]) == 2


def test_a_failed_write_leaves_the_previous_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    before = {"schema": "viasd-bench/1", "prompts": []}
    results.write_result(path, before)
    with pytest.raises(ValueError, match="JSON compliant"):
        results.write_result(path, {"speed": float("nan")})
    assert json.loads(path.read_text()) == before
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_writing_to_a_folder_that_went_away_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        results.write_result(tmp_path / "gone" / "result.json", {})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "viasd-trace/1"}', "not json", "\x00"])
def test_other_files_are_refused_as_results(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"other\.json"):
        results.read_result(path)
    with pytest.raises(DataError, match="does not exist"):
        results.read_result(tmp_path / "missing.json")
