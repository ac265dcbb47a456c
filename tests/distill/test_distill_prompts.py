"""Prompt files: every layout the benchmark reads, text paragraphs, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from toys import toy_pair
from viasd_core.distill.prompts import prepare, read_prompts
from viasd_core.errors import DataError


def lines(path: Path, *records: object) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records), "utf-8")
    return path


def test_instructions_are_read_with_their_input_and_without_their_answers(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "alpaca.jsonl",
        {"instruction": "Name a colour.", "input": "", "output": "Red."},
        {"instruction": "Translate to French.", "input": "the hat", "output": "le chapeau"},
    )
    assert read_prompts([path]) == ["Name a colour.", "Translate to French.\n\nthe hat"]


def test_an_instruction_with_instances_takes_the_first_input(tmp_path: Path) -> None:
    record = {"instruction": "Sum up.", "instances": [{"input": "A.", "output": "B."}, {"input": "C."}]}
    assert read_prompts([lines(tmp_path / "seeds.jsonl", record)]) == ["Sum up.\n\nA."]


def test_one_json_array_is_as_good_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text(json.dumps([{"instruction": "One", "input": ""}, {"instruction": "Two", "input": ""}]))
    assert read_prompts([path]) == ["One", "Two"]


def test_a_named_layout_reads_what_would_be_taken_for_another(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "odd.jsonl", {"instruction": "Say it.", "input": "", "question": "Why?", "answer": "."}
    )
    with pytest.raises(DataError, match="task 'gsm' is not known"):
        read_prompts([path], "gsm")
    assert [read_prompts([path], task) for task in ("instructions", "gsm8k")] == [["Say it."], ["Why?"]]


def test_text_is_one_prompt_a_paragraph(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffFirst line\r\nof one.\r\n \t\r\n\r\nGrüße!\n\n\n  Third.  \n".encode())
    assert read_prompts([path]) == ["First line\nof one.", "Grüße!", "Third."]


def test_a_byte_order_mark_and_gzip_do_not_get_into_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "zipped.jsonl.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps({"prompt": "the hat"}).encode()))
    assert read_prompts([str(path)]) == ["the hat"]


def test_repeats_are_dropped_across_files_and_order_is_kept(tmp_path: Path) -> None:
    one = lines(tmp_path / "one.jsonl", {"prompt": "a"}, {"prompt": "b"}, {"prompt": " a "})
    two = tmp_path / "two.txt"
    two.write_text("c\n\nb\n\na")
    assert read_prompts([one, two]) == ["a", "b", "c"]


BAD = {
    "missing.txt": (None, "does not exist"),
    "missing.jsonl": (None, "does not exist"),
    "empty.txt": (b"\n \n\n", "is empty"),
    "empty.jsonl": (b"", "is empty"),
    "latin.txt": ("Grüße".encode("latin-1"), "cannot be read as UTF-8"),
    "latin.jsonl": ('{"prompt": "Grüße"}'.encode("latin-1"), "not UTF-8"),
    "broken.jsonl": (b'{"prompt": "a"}\n{"prompt": ', "line 2: not JSON"),
    "strange.jsonl": (b'{"words": "a"}', "no known layout"),
    "hollow.jsonl": (b'{"prompt": "  "}', "the prompt is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_is_named_in_a_sentence(name: str, tmp_path: Path) -> None:
    content, said = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        read_prompts([tmp_path / name])
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_a_folder_is_no_prompt_file(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(DataError, match=r"folder\.txt cannot be read"):
        read_prompts([tmp_path / "folder.txt"])


def test_prompts_that_are_too_long_are_left_out_and_counted() -> None:
    pair = toy_pair(drafter="none")
    texts = ["ab", "abcdefghijkl", "abc", ""]
    prompts, left_out = prepare(pair, texts, longest=3, seed=0)
    assert sorted(len(prompt.ids) for prompt in prompts) == [2, 3] and left_out == 2


def test_an_index_is_a_prompts_place_in_the_shuffled_list_whatever_is_left_out() -> None:
    """So that shards keep their meaning when the limit changes nothing about the others."""
    pair = toy_pair(drafter="none")
    texts = ["a" * length for length in range(1, 21)]
    every = {prompt.index: prompt.ids for prompt in prepare(pair, texts, longest=20, seed=3)[0]}
    some = {prompt.index: prompt.ids for prompt in prepare(pair, texts, longest=7, seed=3)[0]}
    assert len(every) == 20 and len(some) == 7
    assert all(every[index] == ids for index, ids in some.items())
    other = {prompt.index: prompt.ids for prompt in prepare(pair, texts, longest=20, seed=4)[0]}
    assert other != every and sorted(other) == sorted(every)


def test_nothing_left_to_answer_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match=r"none of 2 prompts has between 1 and 1 tokens.*--longest-prompt"):
        prepare(toy_pair(drafter="none"), ["abc", "def"], longest=1, seed=0)
