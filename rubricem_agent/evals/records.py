"""The two kinds of lines that a run's logs hold: one for each answer, one for each question to a judge.

The most that a run may cost, over all its parts and all the times that it was resumed.

An append-only log of records: whole lines or nothing, also after kill -9, and one writer at a time.

What a run has cost, by stage and by model.
"""

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from rubricem_agent.files import LineFile
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import Trajectory, first_problem
from rubricem_env.llm.usage import Meter, SpendLimitReached, Usage, price_of

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Money = Annotated[float, Field(ge=0)]


class CaseKey(NamedTuple):
    """One example in one epoch."""

    id: str
    epoch: int


class AnswerRecord(Frozen):
    """What the agent did with one example. A failure of the world is a record as well, and is tried again on resume."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    trajectory: Trajectory | None = None
    """The prompt as it was sent, every turn, every tool call."""
    given: Text | None = None
    """An answer from elsewhere, in place of a trajectory."""
    failure: Text = ""
    usage: Usage = Usage()
    model: Text = ""
    dollars: Money = 0.0
    seconds: Seconds = 0.0

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.id, self.epoch)

    @property
    def is_final(self) -> bool:
        return not self.failure


class VerdictRecord(Frozen):
    """What a judge replied to one question, all tries in order. An outage is a record as well, and is asked again."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    judge: Text
    question: Text
    asked: Text
    """The start of the SHA-256 of what was asked: another answer or another prompt is another question."""
    replies: tuple[Text, ...] = ()
    model: Text = ""
    """As the server named itself."""
    failure: Text = ""
    usage: Usage = Usage()
    dollars: Money = 0.0
    seconds: Seconds = 0.0

    @property
    def key(self) -> "VerdictKey":
        return VerdictKey(self.id, self.epoch, self.judge, self.question, self.asked)

    @property
    def is_final(self) -> bool:
        return not self.failure


class VerdictKey(NamedTuple):
    """Names a question to a judge within a run."""

    id: str
    epoch: int
    judge: str
    question: str
    asked: str


class Budget:
    """Adds up meters. Calls under way when the ceiling is met are paid for; none begins after it."""

    def __init__(self, ceiling: float | None, *, spent_before: float, meters: Iterable[Meter]) -> None:
        self._ceiling = ceiling
        self._spent_before = spent_before
        self._meters = tuple(meters)

    @property
    def spent(self) -> float:
        """Dollars, those of earlier parts included."""
        return self._spent_before + sum(meter.total.dollars for meter in self._meters)

    def check(self) -> None:
        """Let the next call begin.

        Raises:
            SpendLimitReached: the ceiling is met; the message says how to go on.
        """
        if self._ceiling is not None and self.spent >= self._ceiling:
            raise SpendLimitReached(
                f"the run has cost ${self.spent:.2f}, and the budget is ${self._ceiling:.2f}. Everything so far is in "
                "the logs: run the same command with a larger --budget to go on."
            )


RecordT = TypeVar("RecordT", AnswerRecord, VerdictRecord)


class Journal(Generic[RecordT]):
    """The lines of one file. The first final record of a key stands; without one, the last record of the key."""

    def __init__(self, path: Path, kind: type[RecordT]) -> None:
        self._path = path
        self._kind: type[RecordT] = kind
        self._file = LineFile(path)
        self._records: dict[Hashable, RecordT] = {}

    @classmethod
    def read(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """The records of a file, which may be missing; a last line that was cut off by a kill is passed over.

        Raises:
            FileFormatError: a line is no record.
        """
        journal = cls(path, kind)
        journal._load()
        return journal

    @classmethod
    def open(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """As `read`, and ready to append; the cut-off line is removed.

        Raises:
            UsageError: another run is writing it.
        """
        journal = cls(path, kind)
        journal._claim()
        journal._load()
        return journal

    @property
    def records(self) -> tuple[RecordT, ...]:
        """The standing record of every key, in order of first appearance."""
        return tuple(self._records.values())

    def find(self, key: Hashable) -> RecordT | None:
        """The standing record of a key."""
        return self._records.get(key)

    def append(self, record: RecordT) -> None:
        """Write a line in one piece, then know it. What was appended survives the process, not a power cut."""
        self._file.append([record.model_dump_json(exclude_defaults=True).encode()])
        self._keep(record)

    def close(self) -> None:
        """Let other runs write; safe to call twice."""
        self._file.close()

    def _load(self) -> None:
        for number, line in enumerate(self._file.read(), start=1):
            try:
                self._keep(self._kind.model_validate_json(line))
            except ValidationError as cause:
                raise FileFormatError(
                    f"{self._path} line {number} is no {self._kind.__name__}: {first_problem(cause)} "
                    "Remove the line; what it held will be done again."
                ) from cause

    def _claim(self) -> None:
        try:
            self._file.lock()
        except OSError as cause:
            raise UsageError(
                f"{self._path} is being written by another run; wait for it, or use another --out."
            ) from cause
        self._file.repair()

    def _keep(self, record: RecordT) -> None:
        known = self._records.get(record.key)
        if known is None or not known.is_final:
            self._records[record.key] = record


NO_PRICE = "no price known"
_IN_PROCESS = ("scripted", "expert")


class ModelCost(Frozen):
    """Of one model in one stage."""

    stage: Text
    model: Text
    usage: Usage
    dollars: float
    is_priced: bool
    """Whether the price table knows the model; otherwise the dollars are not all."""


def has_price(model: str) -> bool:
    """Whether it is known what the model charges: by the price table, or because it runs in this process."""
    return price_of(model) is not None or model in _IN_PROCESS or model.startswith("local:")


def dollars_of(model: str, usage: Usage) -> float:
    """By list price; 0 where the model has none."""
    price = price_of(model)
    return price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens) if price else 0.0


def costs_of(answers: Iterable[AnswerRecord], verdicts: Iterable[VerdictRecord]) -> tuple[ModelCost, ...]:
    """Sums over the log, stages in the order of the run."""
    sums: dict[tuple[str, str], Usage] = {}
    for stage, records in (("answers", answers), ("verdicts", verdicts)):
        for record in records:
            if record.usage.calls:
                known = sums.get((stage, record.model), Usage())
                sums[stage, record.model] = known + record.usage
    return tuple(
        ModelCost(
            stage=stage,
            model=model,
            usage=usage,
            dollars=dollars_of(model, usage),
            is_priced=has_price(model) or not usage.tokens,
        )
        for (stage, model), usage in sums.items()
    )


def cost_text(costs: Sequence[ModelCost]) -> str:
    """Dollars as they are shown. What models without a price have cost is not in them, and said to be missing."""
    dollars = sum(cost.dollars for cost in costs)
    if all(cost.is_priced for cost in costs):
        return f"${dollars:.2f}"
    return f"at least ${dollars:.2f}" if dollars else NO_PRICE
