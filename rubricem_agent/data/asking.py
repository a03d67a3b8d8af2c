"""What a chat model is shown for a turn: the first-round prompt, or the later-rounds prompt with all work so far."""

import hashlib
from typing import NamedTuple

from rubricem_agent.data.generation import MAX_ROUNDS
from rubricem_agent.data.turns import PendingTurn
from rubricem_agent.prompting.library import Prompt, fill, read_prompt
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory import Origin
from rubricem_env.llm.base import ChatRequest

PURPOSE = "teacher"


def asked(query: Query) -> str:
    """The question with the instruction of its format."""
    return f"{query.question.strip()}\n\n{read_prompt(f'format_{query.answer_format}').text.strip()}"


class TeacherPrompts(NamedTuple):
    """The two prompts of a teacher, and what it may write."""

    first: Prompt
    later: Prompt
    temperature: float = 1.0
    max_output_tokens: int = 8192
    max_rounds: int = MAX_ROUNDS

    @classmethod
    def ours(cls, *, max_rounds: int = MAX_ROUNDS) -> "TeacherPrompts":
        return cls(read_prompt("teacher_first"), read_prompt("teacher_later"), max_rounds=max_rounds)

    @property
    def hash(self) -> str:
        """Of both prompts together; kept with every sample."""
        return hashlib.sha256(f"{self.first.hash}{self.later.hash}".encode()).hexdigest()[:16]

    def request(self, turn: PendingTurn) -> ChatRequest:
        """The request for a pending turn."""
        prompt = self.first if turn.round == 1 else self.later
        parts = {"question": asked(turn.task.query)}
        if turn.round > 1:
            parts["history"] = _history(turn)
            parts["rounds_left"] = str(self.max_rounds - turn.round + 1)
        return ChatRequest(
            prompt=fill(prompt.section("user"), parts),
            system=prompt.section("system"),
            purpose=PURPOSE,
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
        )


def _history(turn: PendingTurn) -> str:
    return "\n".join(segment.text for segment in turn.trajectory.segments if segment.origin is not Origin.PROMPT)
