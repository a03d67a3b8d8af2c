"""A trajectory: who wrote which text, in order. The one record that everything else reads."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.query import AnswerFormat, query_key
from rubricem_env.domain.tool import ToolCall, ToolStatus

TRAJECTORY_VERSION = 1


class Origin(StrEnum):
    """Who wrote a segment. Structure is read from the policy's text alone."""

    PROMPT = "prompt"
    POLICY = "policy"
    TOOL = "tool"


class Observation(Frozen):
    """What a tool segment stands for: the call that it answers, how that went, and the snippets that it showed."""

    status: ToolStatus | None = None
    """None for a notice of the environment: nothing was executed."""
    call: ToolCall | None = None
    snippet_ids: tuple[Text, ...] = ()


class Segment(Frozen):
    """A piece of text with its author."""

    origin: Origin
    text: Text
    cut: Text = ""
    """On policy segments: what was written after the action, and taken away. Kept for the record, part of nothing."""
    observation: Observation | None = None
    """On tool segments that this project's episode made; absent in files from elsewhere."""


class Ending(StrEnum):
    """Why an episode is over. Answered is termination; all others are truncation: the limits ended it, not the policy."""

    ANSWERED = "answered"
    CALL_BUDGET = "call_budget"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    STALLED = "stalled"
    """Turn after turn without an action."""
    ABANDONED = "abandoned"
    """The driver stopped it: an infrastructure failure, a time-out, a shutdown."""


class Trajectory(Frozen):
    """One attempt at one question, from prompt to ending."""

    version: Annotated[int, Field(ge=TRAJECTORY_VERSION, le=TRAJECTORY_VERSION)] = TRAJECTORY_VERSION
    question: Text
    answer_format: AnswerFormat = AnswerFormat.LONG
    segments: tuple[Segment, ...]
    ending: Ending | None = None
    """None while the episode runs, or in a file that does not say."""
    seed: int | None = None

    @property
    def query_key(self) -> str:
        return query_key(self.question)

    @property
    def policy_text(self) -> str:
        """All that the policy wrote, joined: the text that stage spans count in."""
        return "".join(segment.text for segment in self.segments if segment.origin is Origin.POLICY)
