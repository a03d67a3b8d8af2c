"""Reads a question with its rubrics from one row of a file: ours, DR Tulu's, the almanac's, or any with usual names."""

import json
from collections.abc import Mapping

from pydantic import ValidationError

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import first_problem
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import AnswerFormat, Query
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question

FORMATS = {"exact_answer": "exact", "short_form": "short", "long_form": "long"}
"""The labels of the paper's data set."""
QUESTION_NAMES = ("question", "query", "prompt", "problem")
RUBRIC_NAMES = ("rubrics", "rubric")


def query_in(row: object) -> Query:
    """The question of a row with its persistent rubrics, or without any where the row has none.

    A row is {"question", "rubrics": [{"title", "description", "weight"}], "answer_format", "source"}, of which the
    question alone is needed; or one of `rl-research/dr-tulu-rl-data`, whose `ground_truth` is JSON in a text; or one of
    `rl-research/dr-tulu-sft-data`, with `messages` and `question_type`; or a question of the almanac. Other fields are
    passed over. A negative weight makes a flaw, a weight of zero drops the rubric.

    Raises:
        FileFormatError: the row is none of these.
    """
    if not isinstance(row, Mapping):
        raise FileFormatError(f"it is a JSON {type(row).__name__}; a row is an object with a question and rubrics")
    if "truth" in row:
        return query_of(almanac_question(row))
    fields = {**row, **_ground_truth(row.get("ground_truth"))}
    question = question_in(fields)
    if not question:
        raise FileFormatError(f"it names no question; a row has one of {', '.join(QUESTION_NAMES)}, or messages")
    try:
        return Query(
            question=question,
            answer_format=_answer_format(fields),
            rubrics=_persistent_rubrics(fields),
            source=source if isinstance(source := fields.get("source"), str) else "",
        )
    except ValidationError as cause:
        raise FileFormatError(first_problem(cause).removesuffix(".")) from cause


def question_in(row: Mapping[str, object]) -> str:
    """The text that a row asks: by its usual names, or the last message of a user; empty where there is none."""
    for name in QUESTION_NAMES:
        text = row.get(name)
        if isinstance(text, str) and text.strip():
            return text.strip()
    messages = row.get("messages")
    user_texts = [
        message["content"]
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str)
    ]
    return user_texts[-1].strip() if user_texts else ""


def almanac_question(row: Mapping[str, object]) -> Question:
    """The almanac's question that a row with a `truth` is; raises FileFormatError where it is none."""
    try:
        return Question.model_validate_json(json.dumps(row))
    except ValidationError as cause:
        raise FileFormatError(f"it has a truth and is no question of the almanac: {first_problem(cause)}") from cause


def _ground_truth(found: object) -> Mapping[str, object]:
    """The content of one of DR Tulu's fields: a text, or a list of one text; None if it is empty."""
    text = found[0] if isinstance(found, list) and found else found
    if text is None or isinstance(text, Mapping):
        return text or {}
    if not isinstance(text, str):
        raise FileFormatError(f"its ground_truth is a JSON {type(text).__name__}; it is an object, as text")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"its ground_truth is not JSON: {cause}") from cause
    if not isinstance(fields, dict):
        raise FileFormatError(f"its ground_truth holds a JSON {type(fields).__name__}; it holds an object")
    return fields


def _answer_format(row: Mapping[str, object]) -> AnswerFormat:
    """DR Tulu calls it question_type; the default is a long report."""
    name = row.get("answer_format", row.get("question_type", AnswerFormat.LONG.value))
    known = FORMATS.get(name, name) if isinstance(name, str) else name
    if known not in list(AnswerFormat):
        names = ", ".join([*AnswerFormat, *FORMATS])
        raise FileFormatError(f"its answer format is {name!r:.40}; it is one of {names}")
    return AnswerFormat(str(known))


def _persistent_rubrics(row: Mapping[str, object]) -> tuple[Rubric, ...]:
    given = next((row[name] for name in RUBRIC_NAMES if row.get(name)), [])
    if not isinstance(given, list):
        raise FileFormatError(f"its rubrics are a JSON {type(given).__name__}; they are a list")
    if not given:
        return ()
    rubrics = read_rubrics(json.dumps(given), "its list of rubrics")
    if any(rubric.stage != Stage.ANSWER for rubric in rubrics):
        raise FileFormatError("one of its rubrics judges another stage; those of a data set judge the answer")
    return tuple(rubric.model_copy(update={"persistent": True}) for rubric in rubrics)
