"""The record of a run for the viewer: rollouts with their judgements, rubrics step by step, and the bank.

    record/
      groups.jsonl.gz    a line for each question of each step: rubrics in use, new and retired, lessons shown
      rollouts.jsonl.gz  a line for each attempt: the trajectory, its judgement, its credit, its tokens
      groups.index.jsonl, rollouts.index.jsonl
                         a short line for each of those: its position in the file, and what a list shows of it
      rollouts.columns   the index of rollouts once more, in binary (`rollout_columns.py`); it may be missing
      lessons.jsonl      a line for each change of the bank: the item at that time, with its vector
      vocabulary.json    the text of each token id

Of the first two each line is compressed by itself (`files/packed_lines.py`). The first line of an index names the
format and the recording; a resumed run removes what it repeats and gives the recording a new name. Readers take
complete lines only. The index is written after what it points to. Nothing here is needed to train or to resume.
"""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from rubricem_env.domain.base import MAX_STAGES, STAGES, Frozen, StageName, Text
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.judge.rubrics.rubric_set import ActiveRubric, RetiredRubric
from rubricem_records.bank.bank_items import BankItem
from rubricem_records.rollouts.packed_tokens import PackedTokens
from rubricem_records.rollouts.rollouts import Rollout

RECORD_VERSION = 2

RECORD_FOLDER = "record"

GROUPS = "groups"
ROLLOUTS = "rollouts"
LESSONS = "lessons"

VOCABULARY_FILE = "vocabulary.json"

QUESTION_CHARS = 500
"""The length at which a question is truncated in an index."""

Count = Annotated[int, Field(ge=0, le=2**53)]
"""At most what a number of JSON can hold exactly."""

Number = float | None


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError(f"two stages have one name in {', '.join(names)}")
    return names


StageNames = Annotated[tuple[StageName, ...], Field(min_length=1, max_length=MAX_STAGES), AfterValidator(_distinct)]
"""The names of all stages, in order."""

StageNumbers = tuple[Number, ...]
"""A number for each stage."""


class Header(Frozen):
    """The first line of an index, and of the lessons. Unknown fields are ignored, so that newer formats are known."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    record: int
    """The version of the format."""
    name: Text
    """The name of this recording; every resume gives it another one."""
    embedder: Text = ""
    """The name of the embedder that the lessons' vectors come from."""
    stages: StageNames = STAGES
    """The names of the stages that each rollout has scores of."""

    def line(self) -> str:
        """The line; it leaves the stages of deep research out."""
        return self.model_dump_json(exclude={"stages"} if self.stages == STAGES else None)


class ShownLesson(Frozen):
    """An item of the bank that stood before a question."""

    item: Annotated[int, Field(ge=1)]
    similarity: float
    attempts: tuple[Count, ...]
    """The attempts of the group that saw it."""


class GroupEntry(Frozen):
    """One question of one step."""

    step: Count
    place: Count
    """Its index among the questions of its step."""
    curriculum_step: Count = 0
    """The step whose question it is: an earlier one than `step` where steps are sampled ahead. 0 where unknown."""
    encounter: Text = ""
    query_key: Text
    question: Text
    judge: Text = ""
    rubrics: tuple[Rubric, ...] = ()
    """All rubrics that the group was scored by."""
    active: tuple[ActiveRubric, ...] = ()
    """The rubrics in use after the step, with the variance of their scores."""
    retired: tuple[RetiredRubric, ...] = ()
    """The rubrics that were retired in this step."""
    refused: tuple[Text, ...] = ()
    proposal_failure: Text = ""
    lessons: tuple[ShownLesson, ...] = ()


class RolloutEntry(Frozen):
    """One attempt."""

    step: Count
    place: Count
    """The index of its group in the step."""
    attempt: Count
    rollout: Rollout
    """The rollout without its tokens."""
    tokens: PackedTokens | None = None
    judged: RolloutJudgement
    true: StageNumbers | None = None
    returns: StageNumbers | None = None
    advantages: StageNumbers | None = None
    trained: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether neither the world nor the judge lost it."""
        return self.rollout.is_valid and self.judged.is_valid


class GroupHead(Frozen):
    """What the index says of a group."""

    at: Count
    """The byte at which its line begins."""
    size: Count
    """Bytes of the compressed line."""
    step: Count
    place: Count
    query_key: Text
    question: Text
    encounter: Text = ""
    active: Count = 0
    retired: Count = 0
    lessons: tuple[ShownLesson, ...] = ()

    @property
    def id(self) -> str:
        """The name of the group in the viewer."""
        return f"{self.step}-{self.place}"


class RolloutHead(Frozen):
    """What the index says of a rollout."""

    at: Count
    size: Count
    step: Count
    place: Count
    attempt: Count
    scores: StageNumbers
    true: StageNumbers
    valid: bool
    complete: bool
    ending: Text
    calls: Count
    tokens: Count
    violations: Count


class LessonLine(Frozen):
    """One change of the bank."""

    step: Count
    item: BankItem
    vector: Text
    """The vector of its question, little-endian float32 in base64."""


Entry = TypeVar("Entry", GroupEntry, RolloutEntry)


def group_head(entry: GroupEntry, at: int, size: int) -> GroupHead:
    """What a list shows of a group."""
    shown = entry.model_dump(include={"step", "place", "query_key", "encounter", "lessons"})
    shown |= {"question": entry.question[:QUESTION_CHARS], "active": len(entry.active), "retired": len(entry.retired)}
    return GroupHead(at=at, size=size, **shown)


def rollout_head(entry: RolloutEntry, at: int, size: int) -> RolloutHead:
    """What a list shows of a rollout."""
    parsed = entry.rollout.parsed
    nothing: StageNumbers = (None,) * len(entry.judged.judgement.stages)
    return RolloutHead(
        at=at,
        size=size,
        step=entry.step,
        place=entry.place,
        attempt=entry.attempt,
        scores=entry.judged.judgement.scores,
        true=entry.true or nothing,
        valid=entry.is_valid,
        complete=parsed.is_complete,
        ending=parsed.trajectory.ending.value if parsed.trajectory.ending else "",
        calls=sum(turn.call is not None for turn in parsed.turns),
        tokens=entry.tokens.length if entry.tokens is not None else 0,
        violations=len(parsed.violations),
    )
