"""A benchmark as it is loaded: what the agent may see, and apart from it what only judge and scorer may see.

The named ways of running a benchmark. A mode pins everything that moves a number, and stands beside every number.

official   what the benchmark's own scorer does
drtulu     what the predecessor did, whose protocol the paper says that it shares
strict     as official, with readings that take no quirk for a verdict, and every failure as the worst case

What the benchmark scorers and the readers of their files raise.

RubricEMError
├── ScoringError               the official scorer raises on this input; `official` names the type that it raises
└── UsageError
    └── FileFormatError
        ├── BenchmarkFileError a benchmark file is not what its official format says
        └── RecordedCaseError  a line of recorded verdicts cannot be read

The replies that a judge gave to one question, in the order in which they were asked for.

JSON as judges write it: parsed without raising, and the fences around it.

A unit: one kind of recorded case, how it is scored here, and how the other known scorers score it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, Self, TypeVar

from pydantic import ConfigDict, Field, JsonValue

from rubricem_env.domain.base import Frozen, Text, well_formed
from rubricem_env.domain.errors import FileFormatError, RubricEMError


class ChatTurn(Frozen):
    """One message of a conversation that ends with a question to the agent."""

    model_config = ConfigDict(extra="ignore")

    role: Text
    content: Text


class Example(Frozen):
    """All that the agent is given. No gold answer, rubric, root url or answer type ever enters it."""

    id: Text
    prompt_text: Text
    turns: tuple[ChatTurn, ...] = ()
    """The conversation behind `prompt_text`, where the benchmark has one."""


class Gold(Frozen):
    """Base of what scores an example. Subclasses add the fields of their benchmark."""

    id: Text
    canary: Text | None = None
    """The mark by which leaked benchmark text is recognised. It is kept with the record."""


class ShortAnswerGold(Gold):
    """Gold that is one short answer, or several of which any counts."""

    def accepted_answers(self) -> tuple[str, ...]:
        """Every answer that counts as right."""
        raise NotImplementedError


class SourceFile(NamedTuple):
    """The file that examples were read from, for the run's manifest."""

    path: Path
    sha256: str
    rows: int


GoldT = TypeVar("GoldT", bound=Gold)


class Benchmark(NamedTuple, Generic[GoldT]):
    """Examples in file order, their gold by id, and where both came from."""

    examples: tuple[Example, ...]
    gold: Mapping[str, GoldT]
    source: SourceFile


class EvaluationMode(StrEnum):
    """A protocol by name."""

    OFFICIAL = "official"
    DRTULU = "drtulu"
    STRICT = "strict"


class Sampling(StrEnum):
    """By which published rule a subset is drawn."""

    SIMPLE_EVALS = "simple_evals"
    """A sample with seed 0."""
    DRTULU = "drtulu"
    """All rows shuffled with seed 42, then the first ones."""
    FIRST = "first"
    """The first rows of the file."""


class CitationMode(StrEnum):
    """What becomes of cite tags in the text that is judged."""

    KEPT = "kept"
    DROPPED = "dropped"
    """The claim stays, the tag goes."""
    NUMBERED = "numbered"
    """The claim with [n], and a list of references at the end."""


class Extraction(StrEnum):
    """How the answer is found in what the policy wrote."""

    ANSWER_TAG = "answer_tag"
    """Inside the answer tags; the content of a box in it for exact answers, with its braces balanced."""
    PREDECESSOR = "predecessor"
    """As the predecessor does: the first box even in a report, cut at its first closing brace."""


class Rules(Frozen):
    """All that a mode pins for one benchmark."""

    mode: EvaluationMode
    judge: Text
    """The model that the published numbers were made with; empty where nothing is judged by a model."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=1)] = 2048
    tries: Annotated[int, Field(ge=1)] = 3
    """Replies asked for before one counts as unreadable."""
    batch_size: Annotated[int, Field(ge=1)] = 1
    clips_mean: bool = False
    sampling: Sampling = Sampling.FIRST
    citations: CitationMode = CitationMode.DROPPED
    extraction: Extraction = Extraction.ANSWER_TAG

    @property
    def is_strict(self) -> bool:
        return self.mode is EvaluationMode.STRICT


class ScoringError(RubricEMError):
    """The official scorer stops on this input, and so do we, instead of inventing a number.

    `official` is the name of the exception type that the official code raises there; `judge_calls` is how many
    replies had been asked for by then, where the scorer counts them.
    """

    def __init__(self, official: str, reason: str, *, judge_calls: int | None = None) -> None:
        super().__init__(f"{reason} (the official scorer raises {official} here)")
        self.official = official
        self.reason = reason
        self.judge_calls = judge_calls


class BenchmarkFileError(FileFormatError):
    """A benchmark file is missing, of another version, or malformed at a named place."""


class RecordedCaseError(FileFormatError):
    """A file of recorded verdicts has a line that cannot be read."""


API_ERROR = "<<API_ERROR>>"
"""Stands in a recording where the request itself failed."""


class Replies:
    """Hands out recorded replies one by one and counts the calls; after the last, the last again.

    A recording holds a refusing judge once; an official scorer that asks three times gets it three times.
    """

    def __init__(self, recorded: Sequence[str]) -> None:
        self._recorded = tuple(recorded)
        self.calls = 0

    def ask(self) -> str | None:
        """The next reply, or None where the request failed. Every call counts, failed ones too."""
        index = min(self.calls, len(self._recorded) - 1)
        self.calls += 1
        reply = self._recorded[index] if self._recorded else API_ERROR
        return None if reply == API_ERROR else reply


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


def parse_json(text: str) -> JsonValue | Unparsed:
    """The JSON value that the whole text is. NaN and Infinity are let in and of two equal keys the last wins, as in Python's json."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {error}")
    return value


def drop_fence_marks(text: str) -> str:
    """The text without any fence mark, labelled json or bare, wherever it stands."""
    return text.replace("```json", "").replace("```", "")


CaseInput = Mapping[str, JsonValue]
Scorer = Callable[[CaseInput], object]
"""From a case's input to what our scorer gives: JSON-like values, NamedTuples already taken apart."""


@dataclass(frozen=True)
class Unit:
    """The scorer of a unit and those of its variants by name. A scorer raises ScoringError where the official one raises."""

    score: Scorer
    variants: Mapping[str, Scorer] = field(default_factory=dict)


class RecordedInput(Frozen):
    """Base of the inputs: fields that we do not read are let through, wrong types are not."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    @classmethod
    def read(cls, case_input: CaseInput) -> Self:
        """The input checked as JSON, where a list is a tuple. Raises pydantic's ValidationError."""
        return cls.model_validate_json(str(well_formed(json.dumps(case_input, ensure_ascii=False))))
