"""Judges the groups of a step at once: proposes rubrics, scores every rollout, retires rubrics.

`StepJudge` owns the rubric buffer and the finished groups of the step, so that a stopped step resumes where it was.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import StrictInt, TypeAdapter

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError, JudgeError, UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Rubric, Unscored
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.base import Contrast, Judge, Proposal, ScoringRequest, ScoringResult, present_stages
from rubricem_env.judge.group import Group
from rubricem_env.judge.injections import find_injections
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.outage import refuse_outage
from rubricem_env.judge.rubrics.dropout import drop_rubrics
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.llm.tracing import note_scores, span

_LEDGER = TypeAdapter(tuple[Literal[1], StrictInt, tuple[GroupJudgement, ...]])
"""A step in a checkpoint: the version of the format, the step, and its finished groups."""


class StepJudge:
    """A judge with a rubric buffer. One step at a time; the groups of a step run at once.

    The finished groups of the step are kept by query key: `judge_step` of the same step does not judge them again.
    """

    def __init__(
        self,
        judge: Judge,
        buffer: RubricBuffer,
        *,
        settings: JudgeSettings | None = None,
        stage_set: StageSet = DEEP_RESEARCH,
    ) -> None:
        if isinstance(judge, type) or not hasattr(judge, "propose"):
            kind = judge.__name__ if isinstance(judge, type) else type(judge).__name__
            raise UsageError(
                f"StepJudge got {kind}; a judge is an object with `propose(contrast)` and `score(request)`. "
                "Write StepJudge(RulesJudge(), RubricBuffer())."
            )
        if not isinstance(buffer, RubricBuffer):
            raise UsageError(
                f"the buffer of StepJudge is a {type(buffer).__name__}; write StepJudge(judge, RubricBuffer())."
            )
        self.judge = judge
        self.buffer = buffer
        self.settings = settings or JudgeSettings()
        self.stage_set = stage_set
        self._caps = {**stage_set.caps, **self.settings.caps}
        if len(self._caps) > len(stage_set.caps):
            unknown = next(stage for stage in self._caps if stage not in stage_set.caps)
            raise ConfigError(
                f"JudgeSettings has a cap of the stage {unknown!r}; the stages are {', '.join(stage_set.caps)}."
            )
        self._step = 0
        self._finished: dict[str, GroupJudgement] = {}

    async def judge_step(self, groups: Sequence[Group], *, step: int) -> tuple[GroupJudgement, ...]:
        """One judgement for each group, in order.

        Groups of the same question are contrasted as one: each would otherwise change the rubrics under the other.

        Raises:
            JudgeError: more rollouts than `failure_limit` are invalid. The rest of the step is cancelled. Its groups
                without a failure are kept, so that the step can be resumed.
            SpendLimitReached: the limit in calls, tokens or money.
        """
        if step != self._step:
            self._step = step
            self._finished = {}
        merged: dict[str, Group] = {}
        slices = []
        for group in groups:
            first = merged.get(group.key, group._replace(trajectories=()))
            merged[group.key] = first._replace(trajectories=first.trajectories + group.trajectories)
            slices.append(
                (group.key, slice(len(first.trajectories), len(first.trajectories) + len(group.trajectories)))
            )
        finished: list[GroupJudgement] = []
        num_rollouts = sum(len(group.trajectories) for group in merged.values())

        async def judge(group: Group) -> None:
            finished.append(await self._judge_once(group, step=step))
            lost = [rollout.failure for judged in finished for rollout in judged.rollouts if not rollout.is_valid]
            way_out = "Groups without a failure are kept; run the step again when the judge answers."
            refuse_outage(lost, num_rollouts, limit=self.settings.failure_limit, way_out=way_out)

        try:
            await run_together(judge(group) for group in merged.values())
        except JudgeError:
            self._finished = {key: judged for key, judged in self._finished.items() if not judged.failures}
            raise
        by_key = {judged.query_key: judged for judged in finished}
        return tuple(
            by_key[key].model_copy(update={"rollouts": by_key[key].rollouts[rollouts]}) for key, rollouts in slices
        )

    async def judge_group(self, group: Group, *, step: int) -> GroupJudgement:
        """Propose, score, retire. The buffer changes once, after all calls."""
        settings = self.settings
        self._refuse_other_stages(group)
        async with self.buffer.editing(group.key) as known:
            rubrics, proposal = await self._propose(group, known, step=step)
            rng = open_generator(settings.seed, step, group.key, "dropout")
            used = drop_rubrics(rubrics.rubrics, settings.dropout, rng=rng)
            rollouts = tuple(
                await run_together(
                    self._score(
                        ScoringRequest(
                            group.query.question, parsed, used, derive_seed(settings.seed, step, group.key, "score", i)
                        ),
                        proposal.failure,
                    )
                    for i, parsed in enumerate(group.trajectories)
                )
            )
            # A group without one valid intact attempt says nothing about its rubrics.
            intact = [rollouts[index] for index in group.intact]
            if any(rollout.is_valid for rollout in intact):
                scores: dict[str, list[float]] = defaultdict(list)
                for rollout in intact:
                    if rollout.is_valid and not rollout.is_answer_only:
                        for score in rollout.rubric_scores:
                            scores[score.rubric_id].append(score.score)
                pruned = rubrics.pruned(
                    scores,
                    caps=self._caps,
                    step=step,
                    archive_limit=settings.archive_limit,
                    retires_flat=settings.retires_flat,
                )
                self.buffer.replace(group.key, pruned)
        return GroupJudgement(
            query_key=group.key,
            step=step,
            fingerprint=group.fingerprint,
            judge=self.judge.name,
            rubrics=used,
            rollouts=rollouts,
            proposal_failure=proposal.failure,
            refused=proposal.refused,
        )

    def _refuse_other_stages(self, group: Group) -> None:
        """A judge knows the stages of one set; an attempt in others would be scored by questions that are not its."""
        scaffold = self.stage_set.scaffold
        for parsed in group.trajectories:
            if parsed.scaffold != scaffold:
                raise UsageError(
                    f"the attempt was written in the stages {', '.join(parsed.stages)} of {parsed.scaffold.name!r}; "
                    f"this judge knows those of {scaffold.name!r}. Give the judge the stage set of the attempt "
                    "(`scaffold:`, or --scaffold)."
                )

    def state_dict(self) -> dict[str, Any]:
        """The buffer and the finished groups of the step. They agree at any time, also while a step is judged."""
        finished = [self._finished[key].model_dump(mode="json") for key in sorted(self._finished)]
        return {"buffer": self.buffer.state_dict(), "ledger": {"version": 1, "step": self._step, "finished": finished}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; nothing changes when it is refused.

        Raises:
            FileFormatError: of another version, or malformed.
        """
        with validating("the judge's ledger is malformed, or of another version"):
            # Not strict: JSON has lists for tuples and strings for enums. Rubric scores stay strict by their own type.
            ledger = state.get("ledger")
            given = isinstance(ledger, Mapping) and [ledger.get(name, ()) for name in ("version", "step", "finished")]
            _, step, finished = _LEDGER.validate_python(given, strict=False)
        self.buffer.load_state_dict(state.get("buffer", {}))
        self._step = step
        self._finished = {judged.query_key: judged for judged in finished}

    async def _judge_once(self, group: Group, *, step: int) -> GroupJudgement:
        judged = self._finished.get(group.key)
        if judged is None or judged.fingerprint != group.fingerprint:
            judged = await self.judge_group(group, step=step)
            # No await between the buffer's change and this line: a saved state never has one without the other.
            self._finished[group.key] = judged
        return judged

    async def _propose(self, group: Group, known: RubricSet, *, step: int) -> tuple[RubricSet, Proposal]:
        """The group's rubrics with new ones. Only intact attempts that differ are contrasted."""
        rubrics = known.with_persistent(self._persistent(group.query))
        if not group.has_contrast:
            return rubrics, Proposal()
        seed = derive_seed(self.settings.seed, step, group.key, "propose")
        intact = tuple(group.trajectories[index] for index in group.intact)
        proposal = await self.judge.propose(Contrast(group.query.question, intact, known=rubrics, step=step, seed=seed))
        return rubrics.with_proposed(proposal.rubrics, step=step), proposal

    def _persistent(self, query: Query) -> tuple[Rubric, ...]:
        """The rubrics of the data set; those of the answer judge the last stage, however it is called."""
        names = self.stage_set.scaffold.names
        if Stage.ANSWER in names:
            return query.rubrics
        return tuple(
            rubric.model_copy(update={"stage": names[-1]}) if rubric.stage == Stage.ANSWER else rubric
            for rubric in query.rubrics
        )

    async def _score(self, request: ScoringRequest, proposal_failure: str) -> RolloutJudgement:
        present = present_stages(request.parsed)
        rubrics = tuple(rubric for rubric in request.rubrics if rubric.stage in present)
        with span("evaluate", self.judge.name, of=request.parsed.trajectory) as judged:
            result = await self.judge.score(request._replace(rubrics=rubrics)) if rubrics else ScoringResult()
            note_scores(judged, rubrics, result.rubric_scores)
        judgement = score_trajectory(
            present,
            request.rubrics,
            rubric_scores=result.rubric_scores,
            failure=result.failure,
            proposal_failure=proposal_failure,
            stages=self.stage_set.scaffold.names,
        )
        failed = next(
            (
                outcome
                for outcome in map(judgement.outcome, judgement.stages)
                if isinstance(outcome, Unscored) and outcome.detail
            ),
            None,
        )
        return RolloutJudgement(
            judgement=judgement,
            rubric_scores=tuple(result.rubric_scores.values()),
            is_answer_only=result.is_answer_only,
            failure=result.failure or (failed.detail if failed else ""),
            prompt_hash=result.prompt_hash,
            injections=find_injections(request.parsed.policy_text),
        )
