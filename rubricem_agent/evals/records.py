"""The logs of a run (answers and replies of judges), their append-only journal, and what the run has cost."""

from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import Field

from rubricem_agent.files import LineFile, writing
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import refuse_other_than_file, validating
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.prices import PRICES, Price, price_of
from rubricem_env.llm.thoughts import without_thoughts
from rubricem_env.llm.usage import Meter, SpendLimitReached, Usage

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Money = Annotated[float, Field(ge=0)]


class CaseKey(NamedTuple):
    """One example in one epoch."""

    id: str
    epoch: int


VerdictKey = tuple[CaseKey, str, str, str]
"""Identifies a question to a judge within a run: the case, the judge, the question, and the hash of its prompt."""


class AnswerRecord(Frozen):
    """What the agent did with one example. A failure is recorded as well, and tried again on resume.

    An answerer fills in what it knows; the run adds its benchmark and mode, the cost and the time.
    """

    benchmark: Text = ""
    mode: Text = ""
    id: Text
    epoch: Count
    trajectory: Trajectory | None = None
    """The prompt as it was sent, every turn, every tool call."""
    given: Text | None = None
    """An answer from a file, instead of a trajectory."""
    failure: Text = ""
    usage: Usage = Usage()
    model: Text = ""
    dollars: Money | None = None
    """None where the model's price is unknown; earlier releases wrote nothing then, as for what is free."""
    seconds: Seconds = 0.0

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.id, self.epoch)

    @property
    def is_final(self) -> bool:
        return not self.failure


PAGES = "pages"
"""The judge's name in the log where a page was read."""


class VerdictRecord(Frozen):
    """A judge's replies to one question, all tries in order. An outage is recorded as well, and asked again."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    judge: Text
    question: Text
    asked: Text
    """The start of the SHA-256 of the prompt: another answer or another prompt is another question."""
    replies: tuple[Text, ...] = ()
    model: Text = ""
    """The name that the server reported."""
    failure: Text = ""
    usage: Usage = Usage()
    dollars: Money | None = None
    seconds: Seconds = 0.0

    @property
    def key(self) -> VerdictKey:
        return (CaseKey(self.id, self.epoch), self.judge, self.question, self.asked)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The replies as they are graded: without a judge's reasoning, which no official script has to read."""
        return self.replies if self.judge == PAGES else tuple(map(without_thoughts, self.replies))

    @property
    def is_final(self) -> bool:
        """Whether the judge replied. Earlier releases recorded empty replies, which are outages; a page may be empty."""
        is_empty = bool(self.replies) and not self.replies[-1].strip()
        return not self.failure and (self.judge == PAGES or not is_empty)


def check_budget(limit: float | None, *, spent_before: float, meters: Iterable[Meter]) -> None:
    """Check that another call may begin under the limit on what a run may cost, over all its parts and resumes.

    Calls in progress when the limit is reached are still paid for; none begins after it.

    Raises SpendLimitReached where it is reached; the message says how to resume.
    """
    spent = spent_before + sum(meter.total.dollars for meter in meters)
    if limit is not None and spent >= limit:
        raise SpendLimitReached(
            f"the run has cost ${spent:.2f}, and the budget is ${limit:.2f}. Everything so far is in "
            "the logs: run the same command with a larger --budget to resume."
        )


NO_ROOM = "Make room, or make the folder writable; the same command then resumes."
RecordT = TypeVar("RecordT", AnswerRecord, VerdictRecord)


class Journal(Generic[RecordT]):
    """The records of one append-only file: of each key the first final record counts, else its last one."""

    def __init__(self, path: Path, kind: type[RecordT]) -> None:
        self._kind: type[RecordT] = kind
        self._file = LineFile(path)
        self._records: dict[Hashable, RecordT] = {}

    @classmethod
    def read(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """The records of a file, which may be missing; a last line truncated by a kill is skipped.

        Raises FileFormatError where a line is not a record.
        """
        journal = cls(path, kind)
        journal._load()
        return journal

    @classmethod
    def open(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """As `read`, and ready to append; a truncated last line is removed.

        Raises UsageError where another run is writing it.
        """
        journal = cls(path, kind)
        with writing(path, NO_ROOM):
            try:
                journal._file.lock()
            except BlockingIOError as cause:
                raise UsageError(
                    f"{path} is being written by another run; wait for it, or use another --out."
                ) from cause
            journal._load()  # first: what is no truncated record must not be removed
            journal._file.repair()
        return journal

    @property
    def records(self) -> tuple[RecordT, ...]:
        """The record of every key, in order of first appearance."""
        return tuple(self._records.values())

    def find(self, key: Hashable) -> RecordT | None:
        """The record of a key."""
        return self._records.get(key)

    def append(self, record: RecordT) -> None:
        """Write one line and add the record. The line outlives the process, not a power cut.

        Raises ConfigError where the disk refuses; the line is then not in the file.
        """
        with writing(self._file.path, NO_ROOM):
            self._file.append([record.model_dump_json(exclude_defaults=True).encode()])
        self._add(record)

    def adopt(self, records: Iterable[RecordT]) -> None:
        """Append the final records of keys that have none yet."""
        for record in records:
            known = self.find(record.key)
            if record.is_final and not (known is not None and known.is_final):
                self.append(record)

    def close(self) -> None:
        """Let other runs write; safe to call twice."""
        self._file.close()

    def _load(self) -> None:
        path = self._file.path
        refuse_other_than_file(path, "log")
        if not _is_truncated_record(self._file.read_rest()):
            raise FileFormatError(
                f"{path} ends in what is no {self._kind.__name__}, whole or truncated. Restore the file, or "
                "move it away; its work will be repeated."
            )
        for number, line in enumerate(self._file.read(), start=1):
            what = f"{path} line {number} is no {self._kind.__name__}"
            with validating(what, "Remove the line; its work will be repeated."):
                self._add(self._kind.model_validate_json(line))

    def _add(self, record: RecordT) -> None:
        known = self._records.get(record.key)
        if known is None or not known.is_final:
            self._records[record.key] = record


def _is_truncated_record(rest: bytes) -> bool:
    """Whether a kill or a power cut, which fills up with zeros, can have left this after the last line."""
    rest = rest.rstrip(b"\0")
    try:
        text = getincrementaldecoder("utf-8")().decode(rest)
    except UnicodeDecodeError:
        return False
    return not rest or (text.startswith("{") and "\0" not in text)


NO_PRICE = "no price known"
_IN_PROCESS = ("scripted", "expert", "local:")


class ModelCost(Frozen):
    """The cost of one model in one stage, run or estimated."""

    stage: Text
    model: Text
    usage: Usage
    dollars: float
    is_priced: bool
    """Whether the model's price is known; otherwise the dollars are incomplete."""


def dollars_of(usage: Usage, *names: str, prices: Mapping[str, Price] = PRICES) -> float | None:
    """The cost at the price of the first of a model's names that has one; None where it is unknown."""
    price = next(filter(None, (price_of(name, prices) for name in names)), None)
    if price is not None:
        return price.cost(usage.input_tokens, usage.cached_tokens, usage.output_tokens)
    return 0.0 if not usage.tokens or any(name.startswith(_IN_PROCESS) for name in names) else None


def costs_of(answers: Iterable[AnswerRecord], verdicts: Iterable[VerdictRecord]) -> tuple[ModelCost, ...]:
    """Sums over the log, stages in the order of the run."""
    usages: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
    dollars: defaultdict[tuple[str, str], list[float | None]] = defaultdict(list)
    for stage, records in (("answers", answers), ("verdicts", verdicts)):
        for record in records:
            if record.usage.calls:
                usages[stage, record.model] += record.usage
                # Earlier releases wrote no dollars of 0.
                known = dollars_of(record.usage, record.model) if record.dollars is None else record.dollars
                dollars[stage, record.model].append(known)
    return tuple(
        ModelCost(
            stage=stage,
            model=model,
            usage=usage,
            dollars=sum(filter(None, dollars[stage, model])),
            is_priced=None not in dollars[stage, model],
        )
        for (stage, model), usage in usages.items()
    )


def cost_cells(cost: ModelCost) -> tuple[str, ...]:
    """Calls, tokens read, tokens written and dollars, as a table shows them."""
    counts = (cost.usage.calls, cost.usage.input_tokens, cost.usage.output_tokens)
    return (*map("{:,}".format, counts), f"{cost.dollars:.2f}" if cost.is_priced else NO_PRICE)


def cost_text(costs: Sequence[ModelCost]) -> str:
    """Dollars as text; "at least" where the cost of models without a price is missing."""
    dollars = sum(cost.dollars for cost in costs)
    if all(cost.is_priced for cost in costs):
        return f"${dollars:.2f}"
    return f"at least ${dollars:.2f}" if dollars else NO_PRICE
