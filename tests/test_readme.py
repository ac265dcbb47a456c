"""The README's figures are the ones in the result file, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from viasd_core.bench import payoff
from viasd_core.bench.repairs import ABLATIONS, kept
from viasd_core.bench.report import markdown
from viasd_core.bench.results import read_result
from viasd_core.bench.table import with_interval
from viasd_core.cli.main import build_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULT = ROOT / "benchmarks" / "tiny-cpu.json"


def speed_table(report: str) -> str:
    return report.split("### Speed\n\n")[1].split("\n\n")[0]


@pytest.mark.parametrize("name", ["tiny-cpu", "tiny-drafters-cpu"])
def test_the_speed_table_is_the_one_the_result_file_gives(name: str) -> None:
    table = speed_table(markdown(read_result(RESULT.parent / f"{name}.json"), name))
    shown = README.split(f"<!-- speed table of benchmarks/{name}.json -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == table


@pytest.mark.parametrize("path", sorted(RESULT.parent.glob("[ct]*-cpu.json")), ids=lambda path: path.stem)
def test_the_report_beside_a_result_is_the_one_it_gives(path: Path) -> None:
    assert (
        path.with_suffix(".md").read_text(encoding="utf-8") == markdown(read_result(path), path.name) + "\n"
    )


@pytest.mark.parametrize(("name", "least"), [("tiny-skip-cpu", 0.1), ("coder-skip-cpu", 0.25)])
def test_the_figures_over_the_skip_ratio_are_those_of_the_result(name: str, least: float) -> None:
    result = read_result(RESULT.parent / f"{name}.json")
    rows = []
    for entry in result["methods"]:
        if entry["method"] != "via-sd" or entry["settings"]["tiers"]:
            continue
        speed = payoff.compare(result, entry["label"], "sd")
        words = ("of cycles", "of what q' decided") if entry["settings"]["skip_ratio"] == least else ("", "")
        share, agree = f"{entry['escalation_rate']:.0%}", f"{entry['audit_agree']:.0%}"
        rows.append(
            f"| {entry['settings']['skip_ratio']:.0%} | {share} {words[0]} | {entry['mean_committed']:.2f} | "
            f"{agree} {words[1]} | {with_interval(speed['ratio'], speed['ci'])} |"
        )
    shown = README.split(f"(benchmarks/{name}.md)")[1].split("\n\n")[1].splitlines()[2:]
    assert [plain(row) for row in shown] == sorted(plain(row) for row in rows)


def plain(row: str) -> str:
    return re.sub(r"\s+", " ", row.replace("%", " %")).replace("% |", "% |")


def test_the_figures_of_repairs_are_those_of_the_result() -> None:
    result = read_result(RESULT.parent / "tiny-cure-cpu.json")
    by_label = {entry["label"]: entry for entry in result["methods"]}
    found = {
        label: kept(result["prompts"], label, by_label[label], by_label["block"])
        for label in ("cure", *ABLATIONS)
    }
    cure = found["cure"]
    without = [f"{found[label].over_parallel:.2f}" for label in ABLATIONS]
    for words in (
        f"repairs keep {with_interval(cure.over_parallel, cure.over_parallel_ci)} times the drafts",
        f"({cure.drafts:.2f} against {cure.drafts - cure.beyond_parallel:.2f}; tokens a step "
        f"{by_label['cure']['mean_committed']:.2f} against {by_label['block']['mean_committed']:.2f})",
        f"take {cure.time_over_parallel:.2f} times as long a token",
        f"Without branch 0 it is {without[0]}, without resynchronisation {without[1]}, without both "
        f"{without[2]}",
    ):
        assert words in " ".join(README.split())


def test_every_command_in_the_readme_is_understood() -> None:
    text = README.replace("\\\n", " ")
    commands = re.findall(r"^    python -m viasd_core ([^#\n]+)", text, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        assert callable(build_parser().parse_args(words).run)


def test_every_file_the_readme_names_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
