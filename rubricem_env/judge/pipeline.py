"""Judges the groups of a step at once: proposes rubrics, scores every rollout, retires rubrics.

`StepJudge` owns the rubric buffer and the finished groups of the step, so that a stopped step resumes where it was.
`GroupScorer` offers it as an environment's scorer. `describe_group` gives the JSON of `rubricem judge`.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import StrictInt, TypeAdapter

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import JudgeError, UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.judge.base import (
    Contrast,
    Group,
    Judge,
    JudgeSettings,
    Proposal,
    ScoringRequest,
    ScoringResult,
    present_stages,
)
from rubricem_env.judge.prompting import find_injections
from rubricem_env.judge.rubrics import RubricBuffer, RubricSet, drop_rubrics
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement, score_trajectory
from rubricem_env.llm.tracing import note_scores, span


def describe_group(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet) -> dict[str, Any]:
    """Trajectories by name with stages and criteria, and the question's present rubrics, as JSON values."""
    return {
        "trajectories": [
            {"file": name, **describe_rollout(judged, rollout)}
            for name, rollout in zip(names, judged.rollouts, strict=True)
        ],
        "buffer": {
            "persistent": [rubric.model_dump(mode="json") for rubric in rubrics.persistent],
            "active": [
                {**entry.rubric.model_dump(mode="json"), "variance": entry.variance, "created_step": entry.created_step}
                for entry in rubrics.active
            ],
            "archive": [
                {**gone.last.rubric.model_dump(mode="json"), "reason": gone.reason, "retired_step": gone.retired_step}
                for gone in rubrics.archive
            ],
        },
        "judge": judged.judge,
        "proposal": {"failure": judged.proposal_failure or None, "refused": list(judged.refused)},
    }


def describe_rollout(judged: GroupJudgement, rollout: RolloutJudgement) -> dict[str, Any]:
    """Each stage with its score or why it has none, and one row for each scored rubric."""
    rubric_scores = {score.rubric_id: score for score in rollout.rubric_scores}
    criteria = [
        {
            **rubric.model_dump(mode="json", exclude={"provenance"}),
            "score": rubric_scores[rubric.id].rounded,
            "justification": rubric_scores[rubric.id].justification,
            **({"scores": list(rubric_scores[rubric.id].scores)} if rubric_scores[rubric.id].scores else {}),
        }
        for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage))
        if rubric.id in rubric_scores
    ]
    return {
        "stages": {stage.value: _describe_stage(rollout.judgement.outcome(stage)) for stage in STAGES},
        "criteria": criteria,
        "answer_only": rollout.is_answer_only,
        "failure": rollout.failure or None,
        "prompt_hash": rollout.prompt_hash or None,
        "injections": list(rollout.injections),
    }


def _describe_stage(outcome: StageScore | Unscored) -> dict[str, Any]:
    if isinstance(outcome, Unscored):
        return {"unscored": outcome.reason, **({"detail": outcome.detail} if outcome.detail else {})}
    return {"score": outcome.score, **({"missing": True} if outcome.missing else {})}


_LEDGER = TypeAdapter(tuple[Literal[1], StrictInt, tuple[GroupJudgement, ...]])
"""A step in a checkpoint: the version of the format, the step, and its finished groups."""


class StepJudge:
    """A judge with a rubric buffer. One step at a time; the groups of a step run at once.

    The finished groups of the step are kept by query key: `judge_step` of the same step does not judge them again.
    """

    def __init__(self, judge: Judge, buffer: RubricBuffer, *, settings: JudgeSettings | None = None) -> None:
        self.judge = judge
        self.buffer = buffer
        self.settings = settings or JudgeSettings()
        self._step = 0
        self._finished: dict[str, GroupJudgement] = {}

    async def judge_step(self, groups: Sequence[Group], *, step: int) -> tuple[GroupJudgement, ...]:
        """One judgement for each group, in order. Groups of the same question are contrasted as one (choice B17).

        Raises:
            JudgeError: more rollouts than `failure_limit` are invalid; the rest of the step is cancelled, and its groups
                without a failure are kept, so that the step can be resumed.
            SpendLimitReached: the limit in calls, tokens or money.
        """
        if step != self._step:
            self._step, self._finished = step, {}
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
            lost = [one.failure for judged in finished for one in judged.rollouts if not one.is_valid]
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
                limit = settings.archive_limit
                self.buffer.replace(
                    group.key, rubrics.pruned(scores, caps=settings.caps, step=step, archive_limit=limit)
                )
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
        self._step, self._finished = step, {judged.query_key: judged for judged in finished}

    async def _judge_once(self, group: Group, *, step: int) -> GroupJudgement:
        judged = self._finished.get(group.key)
        if judged is None or judged.fingerprint != group.fingerprint:
            judged = await self.judge_group(group, step=step)
            # No await between the buffer's change and this line: a saved state never has one without the other.
            self._finished[group.key] = judged
        return judged

    async def _propose(self, group: Group, known: RubricSet, *, step: int) -> tuple[RubricSet, Proposal]:
        """The group's rubrics with new ones. Only intact attempts that differ are contrasted."""
        rubrics = known.with_persistent(group.query.rubrics)
        if not group.has_contrast:
            return rubrics, Proposal()
        seed = derive_seed(self.settings.seed, step, group.key, "propose")
        intact = tuple(group.trajectories[index] for index in group.intact)
        proposal = await self.judge.propose(Contrast(group.query.question, intact, known=rubrics, step=step, seed=seed))
        return rubrics.with_proposed(proposal.rubrics, step=step), proposal

    async def _score(self, request: ScoringRequest, proposal_failure: str) -> RolloutJudgement:
        present = present_stages(request.parsed)
        asked = tuple(rubric for rubric in request.rubrics if rubric.stage in present)
        with span("evaluate", self.judge.name, of=request.parsed.trajectory) as judged:
            result = await self.judge.score(request._replace(rubrics=asked)) if asked else ScoringResult()
            note_scores(judged, asked, result.rubric_scores)
        judgement = score_trajectory(
            present,
            request.rubrics,
            rubric_scores=result.rubric_scores,
            failure=result.failure,
            proposal_failure=proposal_failure,
        )
        failed = next((one for one in map(judgement.outcome, STAGES) if isinstance(one, Unscored) and one.detail), None)
        return RolloutJudgement(
            judgement=judgement,
            rubric_scores=tuple(result.rubric_scores.values()),
            is_answer_only=result.is_answer_only,
            failure=result.failure or (failed.detail if failed else ""),
            prompt_hash=result.prompt_hash,
            injections=find_injections(request.parsed.policy_text),
        )


def refuse_outage(lost: Sequence[str], total: int, *, limit: float, way_out: str) -> None:
    """Stop a step of `total` rollouts that lost more than the share `limit` (choice B7); `lost` has the reasons.

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    if len(lost) > limit * total:
        raise JudgeError(
            f"{len(lost)} of the step's {total} rollouts were lost; more than {limit:.0%} stop the run, because a policy "
            f"must not learn from the rest. First failure: {next(filter(None, lost), 'no detail')}. {way_out}"
        )


class GroupScorer:
    """Scores a group with rubrics by contrast, and a single trajectory by the persistent and active rubrics alone."""

    def __init__(
        self, judge: StepJudge, queries: Mapping[str, Query] | None = None, *, step: Callable[[], int] = lambda: 0
    ) -> None:
        """`queries`, by key, bring the persistent rubrics; `step` returns the training step."""
        self._judge = judge
        self._queries = dict(queries or {})
        self._step = step

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order. A failure of the judge is an unscored stage with its reason.

        Raises:
            UsageError: the trajectories are of more than one question.
        """
        if not trajectories:
            return []
        keys = {trajectory.query_key for trajectory in trajectories}
        if len(keys) > 1:
            raise UsageError(
                f"the group has {len(keys)} questions; trajectories are contrasted within one. Score each separately."
            )
        first = trajectories[0]
        query = self._queries.get(first.query_key) or Query(question=first.question, answer_format=first.answer_format)
        return (await self._judge.judge_group(Group.of(query, trajectories), step=self._step())).judgements
