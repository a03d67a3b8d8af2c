"""A judge whose replies were recorded, asked as an official scorer asks its judge."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.errors import FileFormatError

ValueT = TypeVar("ValueT")

API_ERROR = "<<API_ERROR>>"
"""Recorded in place of a reply where the request itself failed."""


class CountedScoringError(ScoringError):
    """The official scorer raises after it has asked its judge for `judge_calls` replies."""

    def __init__(self, official: str, reason: str, *, judge_calls: int) -> None:
        super().__init__(official, reason)
        self.judge_calls = judge_calls


class RecordedJudge:
    """Returns recorded replies one by one and counts the calls; after the last reply it repeats the last.

    A recording contains a refusing judge once; an official scorer that asks three times gets that reply three times.
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

    def first_parsed(
        self, parse: Callable[[str], ValueT | Unparsed], *, tries: int, ends_at_failure: bool = False
    ) -> ValueT | Unparsed:
        """The first reply that can be parsed, out of `tries`; otherwise why the last one could not."""
        parsed: ValueT | Unparsed = Unparsed("not asked")
        for _ in range(tries):
            reply = self.ask()
            parsed = Unparsed("the request failed") if reply is None else parse(reply)
            if not isinstance(parsed, Unparsed) or (reply is None and ends_at_failure):
                break
        return parsed


def judges_of(replies: Sequence[Sequence[str]], items: Sequence[object]) -> list[RecordedJudge]:
    """The recorded judge of each rubric item.

    Raises FileFormatError where there is not one list of replies for each item.
    """
    if len(replies) != len(items):
        raise FileFormatError(f"judge_replies: {len(replies)} lists of replies for {len(items)} rubric items")
    return list(map(RecordedJudge, replies))
