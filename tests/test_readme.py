"""The README's figures are the ones in the result file, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

from viasd_core.bench.report import markdown
from viasd_core.bench.results import read_result
from viasd_core.cli.main import build_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULT = ROOT / "benchmarks" / "tiny-cpu.json"


def speed_table(report: str) -> str:
    return report.split("### Speed\n\n")[1].split("\n\n")[0]


def test_the_speed_table_is_the_one_the_result_file_gives() -> None:
    table = speed_table(markdown(read_result(RESULT), RESULT.name))
    shown = README.split("<!-- speed table of benchmarks/tiny-cpu.json -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == table


def test_the_report_beside_the_result_is_the_one_it_gives() -> None:
    assert (
        RESULT.with_suffix(".md").read_text(encoding="utf-8")
        == markdown(read_result(RESULT), RESULT.name) + "\n"
    )


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
