"""What a run leaves behind to be looked at: its rollouts with their judgements, its rubrics step by step, its bank.

    record/
      groups.jsonl     a line for each question of each step: rubrics in use, born and retired, lessons shown
      rollouts.jsonl   a line for each attempt: the trajectory, its judgement, its credit, its tokens
      groups.index.jsonl, rollouts.index.jsonl
                       a short line for each of those: where it stands in its file, and what a list shows of it
      lessons.jsonl    a line for each change of the bank: the item as it then was, with its vector
      vocabulary.json  what each token id says

The first line of an index names the format and the recording; a resumed run cuts off what it does again and gives
the recording a new name. Whoever reads takes whole lines alone. Nothing here is needed to train or to resume.
"""

from typing import Annotated

from pydantic import ConfigDict, Field

from rubricem_agent.memory.item import BankItem
from rubricem_agent.rollout.packed_tokens import PackedTokens
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.rubric import Rubric
from rubricem_env.judge.outcomes import RolloutJudgement
from rubricem_env.judge.rubric_set import ActiveRubric, RetiredRubric

RECORD_VERSION = 1
RECORD_FOLDER = "record"
GROUPS, ROLLOUTS, LESSONS = "groups", "rollouts", "lessons"
VOCABULARY_FILE = "vocabulary.json"
QUESTION_CHARS = 500
"""Of a question in an index."""

Count = Annotated[int, Field(ge=0)]
Number = float | None
FourNumbers = tuple[Number, Number, Number, Number]


class Header(Frozen):
    """The first line of an index, and of the lessons. A newer release may say more in it, and is still known as newer."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    record: int
    """The version of the format."""
    name: Text
    """Of this recording: another one after every resume."""
    embedder: Text = ""
    """Of the lessons' vectors."""


class ShownLesson(Frozen):
    """An item of the bank that stood before a question."""

    item: Annotated[int, Field(ge=1)]
    similarity: float


class GroupEntry(Frozen):
    """One question of one step."""

    step: Count
    place: Count
    """Among the questions of its step."""
    encounter: Text = ""
    query_key: Text
    question: Text
    judge: Text = ""
    rubrics: tuple[Rubric, ...] = ()
    """All that the group was marked by."""
    active: tuple[ActiveRubric, ...] = ()
    """In use after the step, with the variance of their marks."""
    retired: tuple[RetiredRubric, ...] = ()
    """Taken out of use in this step."""
    refused: tuple[Text, ...] = ()
    proposal_failure: Text = ""
    lessons: tuple[ShownLesson, ...] = ()


class RolloutEntry(Frozen):
    """One attempt."""

    step: Count
    place: Count
    """Its group's place in the step."""
    attempt: Count
    rollout: Rollout
    """Without its tokens."""
    tokens: PackedTokens | None = None
    judged: RolloutJudgement
    true: FourNumbers | None = None
    returns: FourNumbers | None = None
    advantages: FourNumbers | None = None
    trained: bool = False


class GroupHead(Frozen):
    """What the index says of a group."""

    at: Count
    """The byte at which its line begins."""
    size: Count
    """Bytes of the line, without the line break."""
    step: Count
    place: Count
    query_key: Text
    question: Text
    encounter: Text = ""
    active: Count = 0
    retired: Count = 0
    lessons: tuple[ShownLesson, ...] = ()


class RolloutHead(Frozen):
    """What the index says of a rollout."""

    at: Count
    size: Count
    step: Count
    place: Count
    attempt: Count
    scores: FourNumbers
    true: FourNumbers
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
    """Of its question, little-endian float32 in base64."""
