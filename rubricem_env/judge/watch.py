"""Counts the failures of a step, and stops it as soon as the limit is passed for certain."""

from typing import NamedTuple

from rubricem_env.domain.errors import JudgeError
from rubricem_env.judge.group import Merged
from rubricem_env.judge.outcomes import GroupJudgement


class JudgeOutageError(JudgeError):
    """Too many rollouts of a step have no score. Groups without a failure stay in the ledger, so the step can be resumed."""


class Progress(NamedTuple):
    """How far a step is; given to the callback whenever a group is finished, with everything consistent to be saved."""

    groups_done: int
    groups_total: int
    rollouts_failed: int
    rollouts_total: int


class StepWatch:
    """One step's count."""

    def __init__(self, merged: Merged, limit: float) -> None:
        self._groups = len(merged.groups)
        self._rollouts = sum(len(group.readings) for group in merged.groups)
        self._limit = limit
        self._done = 0
        self._failed = 0
        self._example = ""

    def count(self, judged: GroupJudgement) -> Progress:
        self._done += 1
        self._failed += judged.failures
        self._example = self._example or next((r.failure for r in judged.rollouts if not r.is_valid), "")
        if self._failed > self._limit * self._rollouts:
            raise JudgeOutageError(
                f"the judge gave no score for {self._failed} of the step's {self._rollouts} rollouts; more than "
                f"{self._limit:.0%} stop the step, because a policy must not learn from what is left. First failure: "
                f"{self._example or 'no detail'}. Groups without a failure are kept; run the step again when the judge answers."
            )
        return Progress(self._done, self._groups, self._failed, self._rollouts)
