"""One attempt with everything that a run or an evaluation has recorded of it."""

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_records.evaluations.logs import AnswerRecord, VerdictRecord
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry


class RecordedAttempt(Frozen):
    """One attempt with everything that a run has recorded of it."""

    entry: RolloutEntry
    group: GroupEntry | None = None
    """Its question with the rubrics, where a training run recorded it."""
    answer: AnswerRecord | None = None
    """Its line of an evaluation, without the trajectory."""
    verdicts: tuple[VerdictRecord, ...] = ()

    @property
    def name(self) -> str:
        """Its name within the run."""
        return f"{self.entry.step}-{self.entry.place}-{self.entry.attempt}"

    @property
    def trajectory(self) -> Trajectory:
        return self.entry.rollout.trajectory


def unjudged(rollout: Rollout, *, place: int = 0, attempt: int = 0) -> RolloutEntry:
    """An attempt that nobody has judged, as a record holds it."""
    judged = RolloutJudgement(judgement=Judgement.of({}, rollout.trajectory.scaffold.names))
    return RolloutEntry(step=0, place=place, attempt=attempt, rollout=rollout, judged=judged)
