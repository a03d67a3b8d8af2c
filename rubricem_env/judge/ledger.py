"""The ledger of a step: the groups that are judged already, so that a killed step goes on where it was."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.judge.outcomes import GroupJudgement

LEDGER_VERSION = 1


class StepLedger:
    """Finished groups of one step, by query key."""

    def __init__(self) -> None:
        self.step = 0
        self._finished: dict[str, GroupJudgement] = {}

    def __len__(self) -> int:
        return len(self._finished)

    def open(self, step: int) -> None:
        """Begin a step, or go on with it: another step's groups are forgotten."""
        if step != self.step:
            self.step = step
            self._finished = {}

    def find(self, query_key: str, fingerprint: str) -> GroupJudgement | None:
        """The judgement of exactly these trajectories, if there is one."""
        judged = self._finished.get(query_key)
        return judged if judged is not None and judged.fingerprint == fingerprint else None

    def enter(self, judged: GroupJudgement) -> None:
        self._finished[judged.query_key] = judged

    def forget_failures(self) -> None:
        """Drop the groups in which the judge failed, so that they are judged again."""
        self._finished = {key: judged for key, judged in self._finished.items() if not judged.failures}

    def state_dict(self) -> dict[str, Any]:
        """The step and its finished groups, as JSON values."""
        finished = [self._finished[key].model_dump(mode="json") for key in sorted(self._finished)]
        return {"version": LEDGER_VERSION, "step": self.step, "finished": finished}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; nothing changes when it is refused.

        Raises:
            FileFormatError: of another version, or malformed.
        """
        if state.get("version") != LEDGER_VERSION or type(state.get("step")) is not int:
            raise FileFormatError(
                f"the judge's ledger has the version {state.get('version')!r}; {LEDGER_VERSION} is read."
            )
        try:
            # Not strict: JSON has lists for tuples and strings for enums. Marks stay strict by their own type.
            finished = [GroupJudgement.model_validate(row, strict=False) for row in state.get("finished", ())]
        except ValidationError as cause:
            raise FileFormatError(f"the judge's ledger is malformed: {first_problem(cause)}") from cause
        self.step = int(state["step"])
        self._finished = {judged.query_key: judged for judged in finished}
