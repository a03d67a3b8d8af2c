"""The held-out judge of a run on veRL, which scores rollouts while the run goes on."""

import asyncio
from typing import Any

from rubricem_env.domain.errors import JudgeError, RubricEMError
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement
from rubricem_env.judge.trust.audit import Audit, HeldOutAudit


class BackgroundAudit:
    """Collects the groups of an audited step, and examines them beside the steps that follow."""

    def __init__(self, audit: HeldOutAudit, *, every: int) -> None:
        """Audit the groups of every Nth step of the curriculum."""
        self.audit = audit
        self._every = every
        self._due: list[tuple[Group, GroupJudgement]] = []
        self._running: list[asyncio.Task[Audit]] = []
        """From the first that began to the last."""

    def add(self, group: Group, judged: GroupJudgement) -> None:
        """Keep a judged group, if its step is audited."""
        if judged.step % self._every == 0:
            self._due.append((group, judged))

    def collect(self) -> dict[str, Any]:
        """The audit that has ended since the last call, if any; begins the one that is due. Never waits.

        Raises:
            JudgeError: the held-out judge cannot continue.
        """
        if self._due:
            groups, judged = zip(*self._due, strict=True)
            self._due = []
            self._running.append(asyncio.ensure_future(self.audit.examine(groups, judged)))
        if not self._running or not self._running[0].done():
            return {}
        try:
            return {"audit": self._running.pop(0).result().model_dump()}
        except RubricEMError as fault:
            raise JudgeError(f"the held-out judge stopped: {fault}") from fault
