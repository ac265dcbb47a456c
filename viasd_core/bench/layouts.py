"""How one record of each published benchmark becomes a `BenchItem`. Pure functions; no files here.

A prompt is the published text. Where that is a bare document, a code stub or a source sentence and not an
instruction, one short instruction of our own precedes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]

LANGUAGES = {
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "ja": "Japanese",
    "kk": "Kazakh",
    "lv": "Latvian",
    "ro": "Romanian",
    "ru": "Russian",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "zh": "Chinese",
}


@dataclass(frozen=True)
class BenchItem:
    """One prompt. `reference` is a string or a list of equally good strings; `tests` is Python source or
    cases."""

    id: str
    prompt: str
    task: str = ""
    reference: str | list[str] | None = None
    tests: Any = None


def plain(record: Record, place: str) -> BenchItem:
    """Our own layout: `prompt`, and optionally `id`, `task`, `reference`, `tests`."""
    return BenchItem(
        id=str(record.get("id", place)),
        prompt=_text(record["prompt"]),
        task=str(record.get("task", "")),
        reference=record.get("reference"),
        tests=record.get("tests"),
    )


def humaneval(record: Record, place: str) -> BenchItem:
    return BenchItem(
        id=str(record["task_id"]),
        prompt="Complete this Python function. Answer with code only.\n\n" + _text(record["prompt"]),
        task="humaneval",
        reference=record.get("canonical_solution"),
        tests=f"{record['test']}\ncheck({record['entry_point']})\n",
    )


def mbpp(record: Record, place: str) -> BenchItem:
    """Both the sanitized file (`prompt`) and the full one (`text`). The tests name the function, so they are
    shown."""
    checks = list(record["test_list"])
    setup = record.get("test_imports") or [record.get("test_setup_code", "")]
    question = _text(record["prompt"] if "prompt" in record else record["text"])
    return BenchItem(
        id=str(record["task_id"]),
        prompt=f"{question}\nThe code must pass these tests:\n" + "\n".join(checks),
        task="mbpp",
        reference=record["code"],
        tests="\n".join([*filter(None, setup), *checks]) + "\n",
    )


def gsm8k(record: Record, place: str) -> BenchItem:
    return BenchItem(
        id=place, prompt=_text(record["question"]), task="gsm8k", reference=_text(record["answer"])
    )


def turns(record: Record, place: str) -> BenchItem:
    """MT-Bench, Spec-Bench and EAGLE's question files: the first of `turns`, its own reference where there is
    one."""
    reference = record.get("reference")
    return BenchItem(
        id=str(record["question_id"]),
        prompt=_text(record["turns"][0]),
        task=str(record.get("category", "")),
        reference=reference[0] if isinstance(reference, list) and reference else None,
    )


def instructions(record: Record, place: str) -> BenchItem:
    """Instruction sets (Alpaca, GPTeacher, self-instruct): the instruction, then its input if it has one."""
    given = record.get("input", "")
    if record.get("instances"):
        given = record["instances"][0].get("input", "")
    return BenchItem(
        id=str(record.get("id", place)),
        prompt="\n\n".join(part for part in (_text(record["instruction"]), _text(given)) if part.strip()),
        task="instructions",
    )


def livecodebench(record: Record, place: str) -> BenchItem:
    """Only the public cases are read: the private ones are a compressed pickle, which is code."""
    starter = record.get("starter_code") or ""
    prompt = "Solve this problem in Python.\n\n" + _text(record["question_content"])
    if starter:
        prompt += f"\n\nStart from this code:\n{starter}"
    return BenchItem(
        id=str(record["question_id"]),
        prompt=prompt,
        task="livecodebench",
        tests=json.loads(record.get("public_test_cases") or "[]"),
    )


def squad(record: Record, place: str) -> BenchItem:
    """One question with its paragraph, from the released file (see `squad_questions`) or a line of the hub's.

    No answers means that the question cannot be answered.
    """
    found = record["answers"]
    texts = found["text"] if isinstance(found, dict) else [answer["text"] for answer in found]
    answers = list(dict.fromkeys(texts))
    return BenchItem(
        id=str(record["id"]),
        prompt="Answer from the passage alone; say 'unanswerable' if it does not tell.\n\n"
        f"Passage: {_text(record['context'])}\n\nQuestion: {_text(record['question'])}",
        task="squad",
        reference=answers or ["unanswerable"],
    )


def squad_questions(document: Record) -> Iterator[Record]:
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield {**question, "context": paragraph["context"]}


def xsum(record: Record, place: str) -> BenchItem:
    return BenchItem(
        id=str(record.get("id", place)),
        prompt="Summarise this article in one sentence.\n\n" + _text(record["document"]),
        task="xsum",
        reference=_text(record["summary"]),
    )


def cnn_dailymail(record: Record, place: str) -> BenchItem:
    return BenchItem(
        id=str(record.get("id", place)),
        prompt="Summarise this article in three sentences.\n\n" + _text(record["article"]),
        task="cnn-dailymail",
        reference=_text(record["highlights"]),
    )


def wmt(record: Record, place: str) -> BenchItem:
    """`translation` maps two language codes to a sentence each; English is the source where it is one of
    them."""
    pair = record["translation"]
    source = "en" if "en" in pair else next(iter(pair))
    target = next(code for code in pair if code != source)
    return BenchItem(
        id=place,
        prompt=f"Translate from {LANGUAGES.get(source, source)} to {LANGUAGES.get(target, target)}:\n\n"
        + _text(pair[source]),
        task=f"wmt-{source}-{target}",
        reference=_text(pair[target]),
    )


def open_question(record: Record, place: str) -> BenchItem:
    """NQ-open: a question and a list of accepted short answers."""
    return BenchItem(id=place, prompt=_text(record["question"]), task="nq", reference=list(record["answer"]))


def web_questions(record: Record, place: str) -> BenchItem:
    """Three layouts in circulation: the original (`utterance`), the hub's (`question`), the cleaned one
    (`qText`)."""
    if "utterance" in record:
        found = re.findall(r'\(description (?:"([^"]*)"|([^()"]+))\)', _text(record["targetValue"]))
        question, answers = record["utterance"], [quoted or bare for quoted, bare in found]
    else:
        question, answers = record["qText" if "qText" in record else "question"], list(record["answers"])
    return BenchItem(id=str(record.get("qId", place)), prompt=_text(question), task="webq", reference=answers)


def trivia_qa(record: Record, place: str) -> BenchItem:
    """The released files (`Question`, under `Data`) and the hub's lines (`question`, with `question_id`)."""
    lower = {key.lower().replace("_", ""): value for key, value in record.items()}
    answer = {key.lower(): value for key, value in lower["answer"].items()}
    accepted = [answer["value"], *answer.get("aliases", [])]
    return BenchItem(
        id=str(lower["questionid"]),
        prompt=_text(lower["question"]),
        task="triviaqa",
        reference=list(dict.fromkeys(accepted)),
    )


@dataclass(frozen=True)
class Layout:
    """A published file layout: the names it goes by, the keys that give a record away, and the reader."""

    names: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]  # alternatives; every key of one of them is present
    read: Callable[[Record, str], BenchItem]
    unpack: Callable[[Record], Iterable[Record]] | None = None  # for files that nest their records
    root: str = ""  # key of the whole-file object that nests them

    def fits(self, record: Record) -> bool:
        return any(all(key in record for key in keys) for keys in self.keys)


# Order matters: a layout whose keys include another's comes first.
LAYOUTS = (
    Layout(("humaneval",), (("task_id", "prompt", "entry_point", "test"),), humaneval),
    Layout(("mbpp",), (("test_list", "code", "prompt"), ("test_list", "code", "text")), mbpp),
    Layout(("livecodebench",), (("question_content", "question_id"),), livecodebench),
    Layout(("mt-bench", "spec-bench", "eagle"), (("question_id", "turns"),), turns),
    Layout(("squad",), (("context", "question", "answers", "id"),), squad, squad_questions, "data"),
    Layout(
        ("triviaqa",),
        (("Question", "QuestionId", "Answer"), ("question", "question_id", "answer")),
        trivia_qa,
        lambda document: document["Data"],
        "Data",
    ),
    Layout(
        ("webq",),
        (("utterance", "targetValue"), ("qText", "answers"), ("question", "answers")),
        web_questions,
    ),
    Layout(("xsum",), (("document", "summary"),), xsum),
    Layout(("cnn-dailymail",), (("article", "highlights"),), cnn_dailymail),
    Layout(("wmt",), (("translation",),), wmt),
    Layout(("instructions",), (("instruction",),), instructions),
    Layout(("prompts",), (("prompt",),), plain),
)


def question_layout(record: Record) -> Layout | None:
    """GSM8K and NQ-open share their keys: a worked solution is text, accepted answers are a list."""
    if "question" not in record or "answer" not in record:
        return None
    return NQ if isinstance(record["answer"], list) else GSM8K


GSM8K = Layout(("gsm8k",), (("question", "answer"),), gsm8k)
NQ = Layout(("nq",), (("question", "answer"),), open_question)
NAMED = {name: layout for layout in (*LAYOUTS, GSM8K, NQ) for name in layout.names}


def detect(record: Record) -> Layout | None:
    """The layout a record was published in, or None."""
    for layout in LAYOUTS:
        if layout.fits(record):
            return layout
    return question_layout(record)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, found {type(value).__name__}")
    return value
