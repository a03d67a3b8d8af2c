"""Questions of one's own with their answers: graded by string, and by the source of what is cited.

A line of the file is {"question", "answer"}; `answer` is a text or a list of texts, each of which is right. It may have
an `id`, an `answer_format` (exact, short or long) and a `source`: a part of the title or of the address of the document
that an answer should cite.
"""

from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field

from rubricem_agent.data.question_rows import QUESTION_NAMES
from rubricem_agent.evals.benchmark import OR_FROM_MEMORY, Benchmark
from rubricem_agent.evals.benchmarks.answer_overlap import normalize_answer, score_answer
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import Advice, RowId, assemble, json_lines, read_row
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.rules import SHORT_GUIDANCE, official_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat, Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.rollouts.snippet_sources import shown_sources

OWN_FILE = Advice(
    "a file of your questions with --data FILE", 'Write one line for each question: {"question": ..., "answer": ...}.'
)
Filled = Annotated[Text, Field(min_length=1)]
OneOrMore = Annotated[
    tuple[Filled, ...],
    BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else (given,)),
    Field(min_length=1),
]


class OwnGold(Gold):
    """A line of the file."""

    id: RowId = Field(min_length=1)
    question: Filled = Field(validation_alias=AliasChoices(*QUESTION_NAMES))
    answers: OneOrMore = Field(validation_alias=AliasChoices("answer", "answers"))
    answer_format: AnswerFormat = AnswerFormat.EXACT
    source: OneOrMore | None = None
    """Parts of titles or addresses, any of which will do."""

    def accepted_answers(self) -> tuple[str, ...]:
        return self.answers

    def is_source(self, title: str, url: str) -> bool:
        """Whether a snippet comes from the document that holds the answer."""
        return any(part.casefold() in place.casefold() for part in self.source or () for place in (title, url))


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """The questions in the order of the file; a line without an id is identified by its number, from 0."""
    path = required(paths.path, "an evaluation on questions of your own")
    rows = []
    for number, line in enumerate(json_lines(path, OWN_FILE)):
        named = isinstance(line.content, dict) and "id" in line.content
        rows.append(read_row(line, OwnGold, **({} if named else {"id": str(number)})))
    examples = [Example(id=row.id, prompt_text=row.question) for row in rows]
    data = assemble(path, examples, gold=rows)
    return Dataset(data.examples, data.gold, path, data.sha256, {row.id: row.answer_format for row in rows})


def contains(text: str, answer: str) -> bool:
    """Whether the words of the answer stand in the text, next to each other."""
    return f" {normalize_answer(answer)} " in f" {normalize_answer(text)} "


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """An exact answer matches if it is one that is right; a longer text if it contains one.

    `found` is that an answer that is right stands in it, and `cited` that it cites a snippet of the source.
    """
    yield ()
    gold = case.gold_as(OwnGold)
    text = case.answer.text
    found = float(any(contains(text, answer) for answer in gold.answers))
    overlap = score_answer(text, gold.answers)
    match = overlap.em if gold.answer_format is AnswerFormat.EXACT else found
    metrics = {"found": found, "f1": overlap.f1}
    if gold.source is not None and case.trajectory is not None:
        metrics["cited"] = cites_source(gold, case.trajectory)
    return Grade(match, match, metrics=metrics)


def cites_source(gold: OwnGold, trajectory: Trajectory) -> float:
    """1 if the answer cites a snippet of the question's source, else 0."""
    shown = shown_sources(trajectory)
    known = (shown.get(each) for each in parse_trajectory(trajectory).citations.known)
    return float(any(source is not None and gold.is_source(source.title, source.url) for source in known))


BENCHMARK = Benchmark(
    name="own",
    title="your file",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "match", is_binary=True),
    official=official_rules(""),
    searches=OR_FROM_MEMORY,
    takes_any_stages=True,
    hub='a file of yours, of lines {"question", "answer"}',
    guidance=SHORT_GUIDANCE,
    ids="id of the file; row numbers from 0 where it has none",
)
