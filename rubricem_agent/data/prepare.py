"""Makes a training set of a data set: questions with persistent rubrics, none that is evaluated on, none twice."""

import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from rubricem_agent.data.source_rows import SourceRow
from rubricem_agent.data.training_rows import RUBRIC_NAMES, query_in
from rubricem_agent.memory.atomic_file import write_atomic
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.query import Query
from rubricem_env.domain.rubric import Polarity
from rubricem_env.env.episode import estimate_tokens

MAX_QUESTION_TOKENS = 1_600
"""What the paper's prompt of 8,192 tokens leaves beside the agent's instructions and a full reference block."""
_SHOWN = 3


class LeftOut(StrEnum):
    """Why a row is not in the training set."""

    BROKEN = "cannot be read"
    EVALUATED = "is evaluated on"
    REPEATED = "stands there already"
    BARE = "has no rubrics"
    LONG = "has too long a question"


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


class Preparation:
    """Goes through the rows once and remembers what it left out."""

    def __init__(self, evaluated: Collection[str], *, max_question_tokens: int = MAX_QUESTION_TOKENS) -> None:
        """`evaluated` are the `wording` of questions that must not be trained on."""
        self._evaluated = evaluated
        self._max_question_tokens = max_question_tokens
        self._rows = 0
        self._seen: set[str] = set()
        self._rubrics = 0
        self._flaws = 0
        self._left_out: dict[LeftOut, list[int]] = {}
        self._problems: list[str] = []

    def keep(self, rows: Iterable[SourceRow]) -> Iterator[Query]:
        """The questions that are fit to train on, in the order of the rows."""
        for row in rows:
            self._rows += 1
            query = self._read(row)
            reason = LeftOut.BROKEN if query is None else self._reason_against(query)
            if query is None or reason is not None:
                self._left_out.setdefault(reason or LeftOut.BROKEN, []).append(row.number)
                continue
            self._seen.add(query.key)
            self._rubrics += len(query.rubrics)
            self._flaws += sum(rubric.polarity is Polarity.NEGATIVE for rubric in query.rubrics)
            yield query

    def report(self) -> PreparedSet:
        return PreparedSet(
            rows=self._rows,
            questions=len(self._seen),
            rubrics=self._rubrics,
            flaws=self._flaws,
            left_out={reason: tuple(numbers) for reason, numbers in self._left_out.items()},
            problems=tuple(self._problems),
        )

    def _read(self, row: SourceRow) -> Query | None:
        if not row.problem:
            try:
                return query_in(row.content)
            except FileFormatError as fault:
                row = row._replace(problem=str(fault).removesuffix("."))
        if len(self._problems) < _SHOWN:
            self._problems.append(f"row {row.number}: {row.problem}")
        return None

    def _reason_against(self, query: Query) -> LeftOut | None:
        if wording(query.question) in self._evaluated:
            return LeftOut.EVALUATED
        if query.key in self._seen:
            return LeftOut.REPEATED
        if not query.rubrics:
            return LeftOut.BARE
        return LeftOut.LONG if estimate_tokens(query.question) > self._max_question_tokens else None


def wording(question: str) -> str:
    """A question's words alone, so that case, spaces and punctuation do not hide that it is the same one."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def write_training_set(
    path: Path, rows: Iterable[SourceRow], *, preparation: Preparation, skips_broken: bool = False
) -> PreparedSet:
    """Write the rows that are fit, one `Query` a line; the file is whole or stays as it was.

    Raises:
        FileFormatError: a row cannot be read and broken ones are not to be skipped, or no row is fit.
    """

    def lines() -> Iterator[bytes]:
        for query in preparation.keep(rows):
            yield query.model_dump_json().encode() + b"\n"
        _refuse_unfit(preparation.report(), skips_broken=skips_broken)

    try:
        write_atomic(path, lambda file: file.writelines(lines()))
    except OSError as cause:
        raise FileFormatError(
            f"cannot write {path}: {cause.strerror or cause}. Make room, or choose another."
        ) from cause
    return preparation.report()


def _refuse_unfit(found: PreparedSet, *, skips_broken: bool) -> None:
    broken = len(found.left_out.get(LeftOut.BROKEN, ()))
    if broken and not skips_broken:
        raise FileFormatError(
            f"{broken} of {found.rows} rows cannot be read: {'; '.join(found.problems)}. Nothing is written. "
            "Mend them, or leave them out with --skip-broken."
        )
    if not found.rows:
        raise FileFormatError("the data set has no rows; give a file with one JSON object a line.")
    if len(found.left_out.get(LeftOut.BARE, ())) == found.rows - broken > 0:
        raise FileFormatError(
            f"no row of the data set has rubrics in {' or '.join(RUBRIC_NAMES)}; RL needs questions with persistent "
            'rubrics, such as {"question": ..., "rubrics": [{"title", "description", "weight"}]}.'
        )
    if not found.questions:
        counts = ", ".join(f"{len(numbers)} {reason.value}" for reason, numbers in found.left_out.items())
        raise FileFormatError(f"no row of the data set is fit to train on: {counts}. Nothing is written.")
