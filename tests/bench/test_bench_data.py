"""Readers: each published layout, recognised from its content, from small samples in that layout."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from viasd_core.bench.data import read_items
from viasd_core.bench.layouts import BenchItem
from viasd_core.errors import DataError


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def whole(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")
    return path


def only(path: Path, **options: Any) -> BenchItem:
    items = read_items(path, **options)
    assert len(items) == 1
    return items[0]


def test_a_prompt_alone_is_enough(tmp_path: Path) -> None:
    item = only(jsonl(tmp_path / "own.jsonl", {"prompt": "Say hello."}))
    assert item == BenchItem(id="line-1", prompt="Say hello.")


def test_own_lines_keep_id_task_reference_and_tests(tmp_path: Path) -> None:
    record = {"id": "a", "prompt": "p", "task": "t", "reference": "#### 3", "tests": "assert True"}
    item = only(jsonl(tmp_path / "own.jsonl", record))
    assert (item.id, item.task, item.reference, item.tests) == ("a", "t", "#### 3", "assert True")


def test_humaneval_gzip_becomes_runnable_tests(tmp_path: Path) -> None:
    record = {
        "task_id": "HumanEval/0",
        "prompt": "def one():\n",
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }
    path = tmp_path / "HumanEval.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(record) + "\n").encode()))
    item = only(path)
    assert (item.id, item.task) == ("HumanEval/0", "humaneval")
    assert item.prompt.endswith("def one():\n")
    names: dict[str, Any] = {}
    exec("def one():\n" + str(item.reference) + item.tests, names)
    assert names["one"]() == 1


MBPP_TESTS = ["assert two() == 2", "assert two() > 1"]


@pytest.mark.parametrize(
    "record",
    [
        {
            "task_id": 7,
            "prompt": "Return two.",
            "code": "c",
            "test_imports": ["import math"],
            "test_list": MBPP_TESTS,
        },
        {
            "task_id": 7,
            "text": "Return two.",
            "code": "c",
            "test_setup_code": "import math",
            "test_list": MBPP_TESTS,
        },
    ],
    ids=["sanitized", "full"],
)
def test_mbpp_shows_its_tests_because_they_name_the_function(tmp_path: Path, record: dict[str, Any]) -> None:
    item = only(whole(tmp_path / "mbpp.json", [record]))
    assert (item.id, item.task) == ("7", "mbpp")
    assert "Return two." in item.prompt and "assert two() == 2" in item.prompt
    assert item.tests.splitlines() == ["import math", *MBPP_TESTS]


def test_gsm8k_and_nq_share_their_keys_and_are_told_apart(tmp_path: Path) -> None:
    math = only(jsonl(tmp_path / "m.jsonl", {"question": "1+1?", "answer": "It is 2.\n#### 2"}))
    facts = only(jsonl(tmp_path / "n.jsonl", {"question": "who?", "answer": ["Ann", "Anne"]}))
    assert (math.task, math.reference) == ("gsm8k", "It is 2.\n#### 2")
    assert (facts.task, facts.reference) == ("nq", ["Ann", "Anne"])


def test_two_turn_questions_use_the_first_turn(tmp_path: Path) -> None:
    record = {
        "question_id": 81,
        "category": "writing",
        "turns": ["First.", "Second."],
        "reference": ["r1", "r2"],
    }
    item = only(jsonl(tmp_path / "question.jsonl", record))
    assert item == BenchItem(id="81", prompt="First.", task="writing", reference="r1")


def test_two_turn_questions_without_a_reference_have_none(tmp_path: Path) -> None:
    record = {"question_id": 81, "category": "writing", "turns": ["First.", "Second."]}
    assert only(jsonl(tmp_path / "question.jsonl", record)).reference is None


def test_livecodebench_reads_public_cases_and_starter_code(tmp_path: Path) -> None:
    record = {
        "question_title": "Sum",
        "question_content": "Add two numbers.",
        "question_id": "abc_a",
        "starter_code": "class Solution:",
        "public_test_cases": json.dumps([{"input": "1 2", "output": "3"}]),
        "private_test_cases": "unreadable",
    }
    item = only(jsonl(tmp_path / "test6.jsonl", record))
    assert item.id == "abc_a"
    assert "Add two numbers." in item.prompt and "class Solution:" in item.prompt
    assert item.tests == [{"input": "1 2", "output": "3"}]


def squad_file(path: Path) -> Path:
    questions = [
        {
            "id": "q1",
            "question": "Where?",
            "is_impossible": False,
            "answers": [{"text": "Rome"}, {"text": "Rome"}],
        },
        {"id": "q2", "question": "When?", "is_impossible": True, "answers": []},
    ]
    article = {"title": "t", "paragraphs": [{"context": "It stands in Rome.", "qas": questions}]}
    return whole(path, {"version": "v2.0", "data": [article]})


def test_squad_gives_one_item_a_question_with_its_passage(tmp_path: Path) -> None:
    items = read_items(squad_file(tmp_path / "dev-v2.0.json"))
    assert [item.id for item in items] == ["q1", "q2"]
    assert all("It stands in Rome." in item.prompt for item in items)
    assert [item.reference for item in items] == [["Rome"], ["unanswerable"]]


def test_squad_on_one_line_is_still_a_nested_file(tmp_path: Path) -> None:
    path = squad_file(tmp_path / "pretty.json")
    flat = tmp_path / "flat.json"
    flat.write_text(json.dumps(json.loads(path.read_text())), encoding="utf-8")
    assert read_items(flat) == read_items(path)


def test_squad_hub_lines(tmp_path: Path) -> None:
    record = {
        "id": "q",
        "context": "c",
        "question": "Where?",
        "answers": {"text": ["Rome"], "answer_start": [3]},
    }
    assert only(jsonl(tmp_path / "squad.jsonl", record)).reference == ["Rome"]


def test_trivia_qa_released_file_and_hub_lines_agree(tmp_path: Path) -> None:
    released = {
        "Question": "Who?",
        "QuestionId": "tc_1",
        "Answer": {"Value": "Bo", "Aliases": ["Bo", "Beau"]},
    }
    hub = {"question": "Who?", "question_id": "tc_1", "answer": {"value": "Bo", "aliases": ["Bo", "Beau"]}}
    first = only(whole(tmp_path / "web-dev.json", {"Domain": "Web", "Data": [released]}))
    second = only(jsonl(tmp_path / "trivia.jsonl", hub))
    assert first == second == BenchItem("tc_1", "Who?", "triviaqa", ["Bo", "Beau"])


@pytest.mark.parametrize(
    "record",
    [
        {"url": "u", "utterance": "who?", "targetValue": '(list (description "Ann Lee") (description Bo))'},
        {"url": "u", "question": "who?", "answers": ["Ann Lee", "Bo"]},
        {"qId": "w1", "qText": "who?", "answers": ["Ann Lee", "Bo"]},
    ],
    ids=["original", "hub", "cleaned"],
)
def test_web_questions_in_three_layouts(tmp_path: Path, record: dict[str, Any]) -> None:
    item = only(whole(tmp_path / "webq.json", [record]))
    assert (item.prompt, item.task, item.reference) == ("who?", "webq", ["Ann Lee", "Bo"])


def test_xsum_and_cnn_ask_for_a_summary(tmp_path: Path) -> None:
    xsum = only(jsonl(tmp_path / "x.jsonl", {"id": "1", "document": "Long text.", "summary": "Short."}))
    news = only(jsonl(tmp_path / "c.jsonl", {"id": "2", "article": "Long text.", "highlights": "Short."}))
    for item, task in ((xsum, "xsum"), (news, "cnn-dailymail")):
        assert item.task == task and item.reference == "Short."
        assert item.prompt.startswith("Summarise") and item.prompt.endswith("Long text.")


def test_cnn_csv_with_a_comma_and_a_newline_in_the_article(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text('id,article,highlights\n7,"One, two\nthree.",Short.\n', encoding="utf-8")
    item = only(path)
    assert (item.id, item.reference) == ("7", "Short.")
    assert item.prompt.endswith("One, two\nthree.")


def test_wmt_lines_translate_from_english(tmp_path: Path) -> None:
    item = only(jsonl(tmp_path / "wmt.jsonl", {"translation": {"de": "Hallo", "en": "Hello"}}))
    assert item.task == "wmt-en-de" and item.reference == "Hallo"
    assert item.prompt.endswith("Hello") and "English to German" in item.prompt


def wmt_set(folder: Path, targets: list[str]) -> Path:
    source = folder / "newstest2014-deen-src.en.sgm"
    source.write_text(
        '<srcset setid="n">\n<seg id="1">A &amp; B</seg>\n<seg id="2">Two</seg>\n', encoding="utf-8"
    )
    segments = "\n".join(f'<seg id="{number}">{text}</seg>' for number, text in enumerate(targets, 1))
    (folder / "newstest2014-deen-ref.de.sgm").write_text(f"<refset>\n{segments}\n", encoding="utf-8")
    return source


def test_wmt_sgml_pairs_source_and_reference_files(tmp_path: Path) -> None:
    items = read_items(wmt_set(tmp_path, ["A und B", "Zwei"]))
    assert [item.reference for item in items] == ["A und B", "Zwei"]
    assert items[0].prompt.endswith("A & B")


def test_wmt_sgml_of_different_lengths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 segments .* has 1"):
        read_items(wmt_set(tmp_path, ["A und B"]))


def test_limit_reads_no_further_than_asked(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"}\nnot json\n', encoding="utf-8")
    assert [item.prompt for item in read_items(path, limit=2)] == ["a", "b"]


def test_a_broken_line_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt": "b"\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"own\.jsonl, line 3: not JSON"):
        read_items(path)


def test_a_broken_first_line_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a"\n{"prompt": "b"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"own\.jsonl, line [12]: not JSON"):
        read_items(path)


@pytest.mark.parametrize("content", ["", "\n  \n", "[]"], ids=["nothing", "blank", "empty array"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"empty|no records"):
        read_items(path)


def test_a_record_of_no_known_layout_says_what_was_found(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "odd.jsonl", {"prompt": "fine"}, {"text": "no prompt here"})
    with pytest.raises(DataError, match=r"line 2: not a prompts record .*'prompt'"):
        read_items(path)
    with pytest.raises(DataError, match=r"line 1: no known layout has the keys \['text'\]"):
        read_items(jsonl(tmp_path / "odd.jsonl", {"text": "x"}))


@pytest.mark.parametrize("line", ["3", '["prompt"]', '"prompt"', "null"])
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 2: expected a JSON object"):
        read_items(path)


@pytest.mark.parametrize("prompt", ["", "  ", 3, None])
def test_a_prompt_that_is_empty_or_no_text_is_refused(tmp_path: Path, prompt: Any) -> None:
    with pytest.raises(DataError, match="line 1"):
        read_items(jsonl(tmp_path / "own.jsonl", {"prompt": prompt}))


def test_task_overrides_recognition(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "both.jsonl", {"prompt": "own", "question": "q", "answer": "#### 1"})
    assert only(path).prompt == "own"
    assert only(path, task="gsm8k").prompt == "q"
    with pytest.raises(DataError, match="not a squad record"):
        read_items(path, task="squad")
    with pytest.raises(DataError, match="'chess' is not known"):
        read_items(path, task="chess")


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_items(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match="cannot be read"):
        read_items(tmp_path)
    binary = tmp_path / "weights.bin"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(DataError, match="not UTF-8"):
        read_items(binary)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 50)[:-12])
    with pytest.raises(DataError, match="cannot be read"):
        read_items(cut)


def test_a_line_separator_inside_a_string_is_not_a_line_end(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n{"prompt": "c"}\n', encoding="utf-8")
    assert [item.prompt for item in read_items(path)] == ["a\u2028b", "c"]


def test_the_prompts_that_ship_are_24_of_five_tasks_with_judgeable_math() -> None:
    items = read_items(Path(__file__).parents[2] / "benchmarks" / "prompts.jsonl")
    assert len(items) == len({item.id for item in items}) == 24
    assert {item.task for item in items} == {"explain", "code", "math", "rewrite", "extract"}
    assert all("####" in str(item.reference) for item in items if item.task == "math")
