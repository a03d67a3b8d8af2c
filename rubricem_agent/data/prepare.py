"""Training questions with persistent rubrics, prepared from the rows of a data set: one `Query` a line.

Rows may be DR Tulu's RL rows, the almanac's questions, or any rows with a question and rubrics. Repeated, overlong and
evaluation questions are skipped with a count.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from rubricem_agent.data.question_files import SourceRow
from rubricem_agent.data.question_rows import RUBRIC_NAMES, query_in
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.judgement import Polarity
from rubricem_env.domain.trajectory import Query
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.files.atomic_files import write_atomic, writing

MAX_QUESTION_TOKENS = 1_600
"""What the paper's prompt of 8,192 tokens leaves beside the agent's instructions and a full reference block."""
_SHOWN = 3
LeftOut = Literal[
    "cannot be read", "is evaluated on", "stands there already", "has no rubrics", "has too long a question"
]
"""Why a row is not in the training set."""


class PreparedSet(Frozen):
    """What became of the rows of a data set; numbers of rows count from 1."""

    rows: int
    questions: int
    rubrics: int
    flaws: int
    """Of the rubrics, those that name one."""
    left_out: dict[LeftOut, tuple[int, ...]]
    problems: tuple[str, ...]
    """What is wrong with the first rows that cannot be read."""


def wording(question: str) -> str:
    """A question's words alone, so that case, spaces and punctuation do not hide that it is the same one."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def write_training_set(
    path: Path,
    rows: Iterable[SourceRow],
    *,
    evaluated: Collection[str] = (),
    max_question_tokens: int = MAX_QUESTION_TOKENS,
    skips_broken: bool = False,
    needs_rubrics: bool = True,
) -> PreparedSet:
    """Write the rows that are fit, one `Query` a line; the file is whole or stays as it was.

    `evaluated` are the `wording` of questions that must not be trained on. A teacher's questions need no rubrics.

    Raises:
        FileFormatError: a row cannot be read and broken ones are not to be skipped, or no row is fit.
    """
    kept: dict[str, list[Polarity]] = {}
    left_out: dict[LeftOut, list[int]] = {}
    problems: list[str] = []

    def report() -> PreparedSet:
        return PreparedSet(
            rows=len(kept) + sum(map(len, left_out.values())),
            questions=len(kept),
            rubrics=sum(map(len, kept.values())),
            flaws=sum(polarities.count("negative") for polarities in kept.values()),
            left_out={reason: tuple(numbers) for reason, numbers in left_out.items()},
            problems=tuple(problems),
        )

    def lines() -> Iterator[bytes]:
        for number, content, problem in rows:
            query = _read_row(number, content, problem, problems=problems)
            reason = _reason_against(query, kept, evaluated, max_question_tokens, needs_rubrics=needs_rubrics)
            if query is None or reason is not None:
                left_out.setdefault(reason or "cannot be read", []).append(number)
                continue
            kept[query.key] = [rubric.polarity for rubric in query.rubrics]
            yield query.model_dump_json().encode() + b"\n"
        _refuse_unfit(report(), skips_broken=skips_broken)

    with writing(path, "Make room, or choose another."):
        write_atomic(path, lambda file: file.writelines(lines()))
    return report()


def _read_row(number: int, content: object, problem: str, *, problems: list[str]) -> Query | None:
    if not problem:
        try:
            return query_in(content)
        except FileFormatError as fault:
            problem = str(fault).removesuffix(".")
    if len(problems) < _SHOWN:
        problems.append(f"row {number}: {problem}")
    return None


def _reason_against(
    query: Query | None, kept: Collection[str], evaluated: Collection[str], max_tokens: int, *, needs_rubrics: bool
) -> LeftOut | None:
    if query is None:
        return "cannot be read"
    if wording(query.question) in evaluated:
        return "is evaluated on"
    if query.key in kept:
        return "stands there already"
    if estimate_tokens(query.question) > max_tokens:
        return "has too long a question"
    return "has no rubrics" if needs_rubrics and not query.rubrics else None


def _refuse_unfit(found: PreparedSet, *, skips_broken: bool) -> None:
    broken = len(found.left_out.get("cannot be read", ()))
    if broken and not skips_broken:
        raise FileFormatError(
            f"{broken} of {found.rows} rows cannot be read: {'; '.join(found.problems)}. Nothing is written. "
            "Mend them, or leave them out with --skip-broken."
        )
    if not found.rows:
        raise FileFormatError("the data set has no rows; give a file with one JSON object a line.")
    if len(found.left_out.get("has no rubrics", ())) == found.rows - broken > 0:
        raise FileFormatError(
            f"no row of the data set has rubrics in {' or '.join(RUBRIC_NAMES)}; RL needs questions with persistent "
            'rubrics, such as {"question": ..., "rubrics": [{"title", "description", "weight"}]}. With --for-teacher '
            "they become questions for `rubricem data teach`."
        )
    if not found.questions:
        counts = ", ".join(f"{len(numbers)} {reason}" for reason, numbers in found.left_out.items())
        raise FileFormatError(f"no row of the data set is fit to train on: {counts}. Nothing is written.")
