"""The data of a benchmark and the protocol that a mode fixes.

What the agent may see (`Example`) is kept apart from what only judges and scorers may see (`Gold`). Every number is
reported together with its mode:

official   the benchmark's own scorer
drtulu     DR Tulu's protocol, which the paper says that it shares
strict     as official, but replies are read without quirks and every failure counts as the worst case

A benchmark file that is missing, of another version or malformed raises FileFormatError.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, JsonValue

from rubricem_agent.data.chatml import ChatTurn as ChatTurn
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import RubricEMError, UsageError
from rubricem_env.domain.trajectory import AnswerFormat


class Example(Frozen):
    """Everything that the agent is given. It never contains gold answers, rubrics, root urls or answer types."""

    id: Text
    prompt_text: Text
    turns: tuple[ChatTurn, ...] = ()
    """The conversation behind `prompt_text`, where the benchmark has one."""


class Gold(Frozen):
    """Base of what scores an example, usually the row of the file. Other columns of the file are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    id: Text

    def accepted_answers(self) -> tuple[str, ...]:
        """Every answer that counts as right; none where rubrics score the example."""
        return ()

    def lacks(self) -> str:
        """What scoring needs and the files do not have, such as "criteria"; empty where nothing is missing."""
        return ""


@dataclass(frozen=True)
class Dataset:
    """Examples in file order, their gold by id, and the path and hash of the file of both."""

    examples: tuple[Example, ...]
    gold: Mapping[str, Gold]
    path: Path
    sha256: str
    formats: Mapping[str, AnswerFormat] = field(default_factory=dict)
    """Answer formats by example id, where the examples of a benchmark differ in it."""


class DataPaths(NamedTuple):
    """The files of a benchmark. Only DeepResearchBench needs more than one."""

    path: Path | None = None
    criteria: Path | None = None
    references: Path | None = None


def required(path: Path | None, what: str, *, option: str = "--data FILE") -> Path:
    """The path of a file that must be given. Raises UsageError where the path is missing."""
    if path is None:
        raise UsageError(f"{what} needs a file that was not named. Give it with {option}.")
    return path


EvaluationMode = Literal["official", "drtulu", "strict"]

SubsetRule = Literal["simple_evals", "drtulu", "first"]
"""The published rule that draws a subset: simple-evals samples with seed 0, DR Tulu shuffles with seed 42."""
CitationMode = Literal["kept", "dropped", "numbered"]
"""What the judge reads of cite tags: the tags; the claims alone; or the claims with [n] and a list of references."""
Extraction = Literal["answer_tag", "predecessor"]
"""How the answer is extracted: from the answer tags, or by DR Tulu's rule (`predecessor` in records)."""


class Rules(Frozen):
    """Everything that a mode fixes for one benchmark."""

    mode: EvaluationMode
    judge: Text
    """The model that the published numbers were made with; empty where no model judges."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=1)] = 2048
    tries: Annotated[int, Field(ge=1)] = 3
    """Replies requested before a question counts as unreadable."""
    batch_size: Annotated[int, Field(ge=1)] = 1
    clips_mean: bool = False
    sampling: SubsetRule = "first"
    citations: CitationMode = "dropped"
    extraction: Extraction = "answer_tag"
    answer_format: AnswerFormat | None = None
    """What the agent is asked for, where it is not the benchmark's own format."""

    @property
    def is_strict(self) -> bool:
        return self.mode == "strict"


def official_rules(judge: str, **changes: object) -> Rules:
    """The rules of the official mode; `changes` are fields that differ from the defaults."""
    return Rules.model_validate({"mode": "official", "judge": judge, **changes})


def drtulu_rules(official: Rules, **changes: object) -> Rules:
    """The official rules as DR Tulu changes them for every benchmark; `changes` are those of one benchmark."""
    shared = {
        "mode": "drtulu",
        "temperature": 0.0,
        "extraction": "predecessor",
        "citations": "kept",
        "sampling": "drtulu",
        "clips_mean": False,
    }
    return official.model_copy(update={**shared, **changes})


SHORT_GUIDANCE = "Give the answer alone, as short as it can be, in \\boxed{}."
GPT = "gpt-4.1-2025-04-14"
GEMINI_PRO = "gemini-2.5-pro-preview-06-05"


class ScoringError(RubricEMError):
    """The official scorer raises on this input, so that no number may be made up for it.

    `official` is the name of the exception type that the official code raises.
    """

    def __init__(self, official: str, reason: str) -> None:
        super().__init__(f"{reason} (the official scorer raises {official} here)")
        self.official = official
        self.reason = reason


def official_field(record: object, name: str) -> JsonValue:
    """A field of a recorded object, as the official code reads it: raises ScoringError where that code stops."""
    if not isinstance(record, Mapping):
        raise ScoringError("TypeError", f"{record!r} has no field {name}")
    if name not in record:
        raise ScoringError("KeyError", f"the record has no field {name}")
    value: JsonValue = record[name]
    return value


def shown(value: object, *, limit: int = 80) -> str:
    """A value in a message: a list by its items, a long text by its beginning."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "not there" if value is None else str(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


def parse_json(text: str) -> JsonValue | Unparsed:
    """The whole text as JSON. NaN and Infinity are accepted and the last of two equal keys wins, as in Python's json."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {error}")
    return value


def drop_fence_marks(text: str) -> str:
    """The text without any code fence marks, labelled json or bare."""
    return text.replace("```json", "").replace("```", "")


def as_number(value: JsonValue) -> float | None:
    """The value as Python's `float` reads it; None where it cannot."""
    if value is None or isinstance(value, dict | list):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
