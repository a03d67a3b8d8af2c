"""The questions of a run on veRL, by query key, and the truth of them where the almanac is the world."""

from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.env.offline import query_of
from rubricem_env.world.jsonl import load_questions, shipped_questions_path
from rubricem_env.world.questions import Question
from trainers.verl_backend.settings import VerlSettings


class TrainingQuestions(NamedTuple):
    """What is trained on."""

    queries: dict[str, Query]
    almanac: dict[str, Question]
    """The truth by query key; empty outside the almanac."""


def load_training_questions(settings: VerlSettings) -> TrainingQuestions:
    """The almanac's training questions, or those of the file.

    Raises:
        ConfigError: neither is set.
        FileFormatError: the file cannot be read, a line is no question, or a question stands twice.
    """
    if settings.almanac is not None:
        shipped = load_questions(shipped_questions_path())
        almanac = {query_of(question).key: question for question in shipped if question.split == "train"}
        return TrainingQuestions({key: query_of(question) for key, question in almanac.items()}, almanac)
    if settings.questions is None:
        raise ConfigError("rubricem.questions is not set; name a JSONL file, or train in the almanac.")
    return TrainingQuestions(read_queries(settings.questions), {})


def read_queries(path: Path) -> dict[str, Query]:
    """The queries of a JSONL file by key, in its order.

    Raises:
        FileFormatError: it cannot be read, is empty, a line is no query, or a question stands twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read the questions {path}: {cause}. Give the path of a JSONL file.") from cause
    queries: dict[str, Query] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            query = Query.model_validate_json(line)
        except ValidationError as cause:
            raise FileFormatError(f"{path}, line {number} is no question {first_problem(cause)}") from cause
        if query.key in queries:
            raise FileFormatError(f"{path}, line {number} asks what an earlier line asks; each question stands once.")
        queries[query.key] = query
    if not queries:
        raise FileFormatError(f"{path} holds no question; `rubricem data prepare` writes such files.")
    return queries
