"""DeepResearch Bench II: binary rubric items in three dimensions, judged in batches of 50.

An item is 1 (met), 0 (not there) or -1 (met, but from the article that the task forbids). A task's score is the share
of items with 1; the mean over tasks is the benchmark's number. A batch without a valid reply takes the whole task out.
The file is the official tasks_and_rubrics.jsonl; `prompt` tells the agent which sources are forbidden.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import AliasPath, Field, JsonValue

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import RowId, json_lines, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.reply_parsing import Unparsed, parse_json, read_form
from rubricem_agent.evals.rules import leaderboard_rules, official_rules
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import AnswerFormat

DIMENSIONS = ("info_recall", "analysis", "presentation")
MAX_CHARACTERS = 150_000
"""Of a report; the rest is not judged."""
_FENCED = re.compile(r"```json\s*(.*)```", re.DOTALL)
_KEY = re.compile(r'"(.*?)"(?=\s*:)')
_BARE_QUOTE = re.compile(r'(?<!\\)"')


class Drb2Gold(Gold):
    """A row of the file: rubric items by dimension, and the article that must not be used."""

    id: RowId = Field(validation_alias="idx")
    prompt: Text = Field(min_length=1)
    task: Annotated[Text, Field(validation_alias=AliasPath("content", "task"))]
    rubric: dict[str, tuple[Text, ...]] = Field(validation_alias=AliasPath("content", "rubric"))
    blocked: dict[str, JsonValue] = Field(validation_alias=AliasPath("content", "blocked"))


load = rows_loader(
    "drb2",
    json_lines,
    Drb2Gold,
    prompt=lambda row: row.prompt,
    num_rows=132,
    sha256="83d908225797236dbe15822645a5ea1f6cfe08b74e7afbffee71e21ba79eaca1",
)


class _ItemResult(Frozen):
    rubric_item: str
    score: Annotated[int, Field(ge=-1, le=1)]
    reason: str = ""
    evidence: str | list[str] = ""


class _Results(Frozen):
    results: list[_ItemResult]


def read_results(reply: str, items: Sequence[str]) -> dict[str, JsonValue] | Unparsed:
    """The score by item of a reply that is one JSON object of the form that was asked for, with every item once."""
    said = read_form(reply, _Results)
    if isinstance(said, Unparsed):
        return said
    if Counter(result.rubric_item for result in said.results) != Counter(items):
        return Unparsed("the reply does not name every item once by its own words")
    scores: dict[str, JsonValue] = {result.rubric_item: result.score for result in said.results}
    if any(scores[result.rubric_item] != result.score for result in said.results):
        return Unparsed("an item has two scores")
    return scores


def parse_results(reply: str, items: Sequence[str]) -> dict[str, JsonValue] | Unparsed:
    """The score by item by the official parse, unchecked.

    Each item must be named letter by letter, in as many results as there are items. A fence labelled json is read
    first, then the whole text; quotation marks before a colon are escaped, so that two fields on one line are not read.
    """
    parsed: JsonValue | Unparsed = Unparsed("no reply")
    for text in (*_FENCED.findall(reply)[:1], reply):
        mended = _KEY.sub(lambda key: f'"{_BARE_QUOTE.sub(chr(92) + chr(92) + chr(34), key[1])}"', text)
        parsed = parse_json(mended.strip())
        if not isinstance(parsed, Unparsed):
            break
    results = parsed.get("results", []) if isinstance(parsed, dict) else None
    if not isinstance(results, list) or len(results) != len(items):
        return Unparsed("the reply has not one result for each item")
    if not all(isinstance(result, dict) for result in results):
        return Unparsed("a result is no object")
    scores = {
        str(result.get("rubric_item", "")): result.get("score", 0) for result in results if isinstance(result, dict)
    }
    return scores if set(items) <= set(scores) else Unparsed("an item is not named by its own words")


def task_shares(rubric: Mapping[str, Sequence[str]], scores: Mapping[str, JsonValue]) -> dict[str, float | None]:
    """The share of items that are met, by dimension and in all, and that of blocked ones; None where nothing counts.

    An item whose score is no number is not counted; an item in two dimensions belongs to the later one.
    """
    owner = {item: name for name in DIMENSIONS for item in rubric.get(name, ())}
    counted = {item: score for item, score in scores.items() if item in owner and isinstance(score, int | float)}

    def share(values: Sequence[float], wanted: int) -> float | None:
        return sum(value == wanted for value in values) / len(values) if values else None

    every = list(counted.values())
    by_name = {name: [score for item, score in counted.items() if owner[item] == name] for name in DIMENSIONS}
    return {
        "total": share(every, 1),
        **{name: share(own, 1) for name, own in by_name.items()},
        "blocked_rate": share(every, -1),
    }


def batches_of(rubric: Mapping[str, Sequence[str]], size: int) -> list[list[str]]:
    """All items in the order of the dimensions, `size` at a time."""
    items = [item for name in DIMENSIONS for item in rubric.get(name, ())]
    return [items[start : start + size] for start in range(0, len(items), size)]


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One round: every batch."""
    gold = case.gold_as(Drb2Gold)
    batches = batches_of(gold.rubric, grader.rules.batch_size)
    if case.answer.is_empty or not batches:
        return grader.excluded("there is no report" if batches else "the task has no rubric item")
    shown = [{"task": gold.task, "rubric_items": batch, "blocked": gold.blocked} for batch in batches]
    parsed = yield tuple(
        grader.question(
            f"batch-{number}",
            "drb2",
            parse=partial(read_results, items=batch),
            official_parse=partial(parse_results, items=batch),
            report=case.answer.text[:MAX_CHARACTERS],
            rubric=json.dumps(shown[number], ensure_ascii=False, indent=2),
        )
        for number, batch in enumerate(batches)
    )
    scores: dict[str, JsonValue] = {}
    for results in parsed:
        if not isinstance(results, Unparsed):
            scores.update(results)
    labels = {
        f"item-{number}": str(scores[item])
        for number, item in enumerate(item for batch in batches for item in batch)
        if item in scores
    }
    shares = task_shares(gold.rubric, scores)
    if any(isinstance(results, Unparsed) for results in parsed) or shares["total"] is None:
        return grader.excluded("a batch got no valid reply")._replace(labels=labels)
    total = shares.pop("total") or 0.0
    metrics = {name: value for name, value in shares.items() if value is not None}
    return Grade(total, total, metrics=metrics, labels=labels)


OFFICIAL = official_rules("gemini-2.5-pro", tries=10, batch_size=50, max_output_tokens=65_536)
BENCHMARK = Benchmark(
    name="drb2",
    title="DRB II",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "total", prompts=("drb2",)),
    official=OFFICIAL,
    leaderboard=leaderboard_rules(
        OFFICIAL,
        "gpt-5.5",
        effort="medium",
        max_output_tokens=32_768,
        leaves_out=("112", "114"),
        since="2026-10",
        source="README of github.com/imlrz/DeepResearch-Bench-II at 7c7a9a8; judge since August 2026, the old one on "
        "its branch gemini-25",
        shift="agreement with people on 738 verdicts: gpt-5.5 91.19 % (kappa 0.80), gemini-3.1-pro 91.06 % (0.79); "
        "nothing was published about the scores of both",
    ),
    hub="github.com/imlrz/DeepResearch-Bench-II: tasks_and_rubrics.jsonl",
    ids="idx of the data file",
)
