"""A judged group as plain values: what `rubricem judge --json` prints and the viewer shows.

Counts the failures of a step, and stops it as soon as the limit is passed for certain.

The ledger of a step: the groups that are judged already, so that a killed step goes on where it was.

Judges a step: all groups at once, each group's scoring starting the moment its own proposal is in.

A step judge as what an environment asks for: trajectories of one question in, their judgements out.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError, JudgeError, UsageError
from rubricem_env.domain.judgement import Judgement, Rubric, StageScore, Unscored
from rubricem_env.domain.trajectory import Query, Trajectory, first_problem
from rubricem_env.judge.base import (
    Contrast,
    Findings,
    Group,
    Judge,
    JudgeSettings,
    Merged,
    Proposal,
    ScoringRequest,
    merge_groups,
    present_stages,
)
from rubricem_env.judge.prompting import find_bait
from rubricem_env.judge.rubrics import RubricBuffer, RubricSet, drop_rubrics
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement, broadcast_answer, score_trajectory
from rubricem_env.scaffold.reading import Reading


def describe_group(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet) -> dict[str, Any]:
    """Trajectories by name with stages and criteria, and the question's rubrics as they are now."""
    return {
        "trajectories": [
            {"file": name, **describe_rollout(judged, rollout)}
            for name, rollout in zip(names, judged.rollouts, strict=True)
        ],
        "buffer": describe_buffer(rubrics),
        "judge": judged.judge,
        "proposal": {"failure": judged.proposal_failure or None, "refused": list(judged.refused)},
    }


def describe_rollout(judged: GroupJudgement, rollout: RolloutJudgement) -> dict[str, Any]:
    """Stages with a score or the reason why there is none, and one row for each criterion that was marked."""
    opinions = {opinion.rubric_id: opinion for opinion in rollout.opinions}
    criteria = [
        {
            "stage": rubric.stage.value,
            "title": rubric.title,
            "description": rubric.description,
            "polarity": rubric.polarity.value,
            "weight": rubric.weight,
            "score": opinions[rubric.id].verdict().score,
            "justification": opinions[rubric.id].justification,
            "persistent": rubric.persistent,
            **({"marks": list(opinions[rubric.id].marks)} if opinions[rubric.id].marks else {}),
        }
        for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage))
        if rubric.id in opinions
    ]
    stages = {stage.value: _describe_stage(rollout.judgement.outcome(stage)) for stage in STAGES}
    notes = {
        "answer_only": rollout.is_answer_only,
        "failure": rollout.failure or None,
        "prompt_hash": rollout.prompt_hash or None,
        "bait": list(rollout.bait),
    }
    return {"stages": stages, "criteria": criteria, **notes}


def describe_buffer(rubrics: RubricSet) -> dict[str, Any]:
    """Persistent, active and retired rubrics, the last with the reason."""
    return {
        "persistent": [rubric.model_dump(mode="json") for rubric in rubrics.persistent],
        "active": [
            {**entry.rubric.model_dump(mode="json"), "variance": entry.variance, "created_step": entry.created_step}
            for entry in rubrics.active
        ],
        "archive": [
            {**gone.last.rubric.model_dump(mode="json"), "reason": gone.reason.value, "retired_step": gone.retired_step}
            for gone in rubrics.archive
        ],
    }


def _describe_stage(outcome: StageScore | Unscored) -> dict[str, Any]:
    if isinstance(outcome, Unscored):
        detail = {"detail": outcome.detail} if outcome.detail else {}
        return {"unscored": outcome.reason.value, **detail}
    return {"score": outcome.score, **({"missing": True} if outcome.missing else {})}


class JudgeOutageError(JudgeError):
    """Too many rollouts of a step have no score. Groups without a failure stay in the ledger, so the step can be resumed."""


class JudgeProgress(NamedTuple):
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

    def count(self, judged: GroupJudgement) -> JudgeProgress:
        self._done += 1
        self._failed += judged.failures
        self._example = self._example or next((r.failure for r in judged.rollouts if not r.is_valid), "")
        if self._failed > self._limit * self._rollouts:
            raise JudgeOutageError(
                f"the judge gave no score for {self._failed} of the step's {self._rollouts} rollouts; more than "
                f"{self._limit:.0%} stop the step, because a policy must not learn from what is left. First failure: "
                f"{self._example or 'no detail'}. Groups without a failure are kept; run the step again when the judge answers."
            )
        return JudgeProgress(self._done, self._groups, self._failed, self._rollouts)


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


class Proposed(NamedTuple):
    """A group with what it will be marked by."""

    rubrics: RubricSet
    used: tuple[Rubric, ...]
    """Persistent and active ones, less those that sit out."""
    proposal: Proposal


class StepJudge:
    """A judge with a buffer. One step at a time; the groups of a step run together."""

    def __init__(
        self,
        judge: Judge,
        buffer: RubricBuffer,
        *,
        settings: JudgeSettings | None = None,
        on_progress: Callable[[JudgeProgress], None] | None = None,
    ) -> None:
        self.judge = judge
        self.buffer = buffer
        self.settings = settings or JudgeSettings()
        self.ledger = StepLedger()
        self._on_progress = on_progress

    async def judge_step(self, groups: Sequence[Group], *, step: int) -> tuple[GroupJudgement, ...]:
        """One judgement for each group, in their order; the same question twice is judged as one group and split.

        Groups that the ledger holds for this step are not asked about again.

        Raises:
            JudgeOutageError: more rollouts than the limit have no score; the rest of the step is cancelled.
            CeilingReached: a ceiling in calls, tokens or money.
        """
        self.ledger.open(step)
        merged = merge_groups(groups)
        watch = StepWatch(merged, self.settings.failure_limit)
        try:
            judged = await run_together(self._judge_watched(group, step, watch=watch) for group in merged.groups)
        except JudgeOutageError:
            self.ledger.forget_failures()
            raise
        by_key = {found.query_key: found for found in judged}
        return tuple(_part(by_key[key], start, end=end) for key, start, end in merged.places)

    async def judge_group(self, group: Group, *, step: int) -> GroupJudgement:
        """Propose, score, retire; the buffer changes once, when all of it is done."""
        async with self.buffer.editing(group.key) as known:
            proposed = await self.propose(group, known, step=step)
            rollouts = await self.score(group, proposed, step=step)
            # A group of which no intact attempt could be scored has taught nothing about its rubrics.
            intact = [rollouts[place] for place in group.intact]
            if any(rollout.is_valid for rollout in intact):
                self.buffer.replace(group.key, self._pruned(proposed, intact, step=step))
        return GroupJudgement(
            query_key=group.key,
            step=step,
            fingerprint=group.fingerprint,
            judge=self.judge.name,
            rubrics=proposed.used,
            rollouts=rollouts,
            proposal_failure=proposed.proposal.failure,
            refused=proposed.proposal.refused,
        )

    async def propose(self, group: Group, known: RubricSet, *, step: int) -> Proposed:
        """The first phase: what the group will be marked by.

        Attempts that do not differ are not contrasted, nor is one that the infrastructure broke off.
        """
        settings = self.settings
        rubrics = known.with_persistent(group.query.rubrics)
        proposal = Proposal()
        if group.has_contrast:
            seed = derive_seed(settings.seed, step, group.key, "propose")
            intact = tuple(group.readings[place] for place in group.intact)
            contrast = Contrast(group.query.question, intact, known=rubrics, step=step, seed=seed)
            proposal = await self.judge.propose(contrast)
        rubrics = rubrics.with_proposed(proposal.rubrics, step=step)
        rng = open_generator(settings.seed, step, group.key, "dropout")
        return Proposed(rubrics, drop_rubrics(rubrics.rubrics, settings.dropout, rng=rng), proposal)

    async def score(self, group: Group, proposed: Proposed, *, step: int) -> tuple[RolloutJudgement, ...]:
        """The second phase: every attempt by itself."""
        seeds = [
            derive_seed(self.settings.seed, step, group.key, "score", place) for place in range(len(group.readings))
        ]
        pairs = zip(group.readings, seeds, strict=True)
        return tuple(
            await run_together(
                self._score_one(group, reading, rubrics=proposed.used, seed=seed) for reading, seed in pairs
            )
        )

    def state_dict(self) -> dict[str, Any]:
        """Buffer and ledger, which belong together: saved in the progress callback, they resume the step mid-way."""
        return {"buffer": self.buffer.state_dict(), "ledger": self.ledger.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both.

        Raises:
            FileFormatError: either is of another version, or malformed.
        """
        ledger = StepLedger()
        ledger.load_state_dict(state.get("ledger", {}))
        self.buffer.load_state_dict(state.get("buffer", {}))
        self.ledger = ledger

    async def _judge_watched(self, group: Group, step: int, *, watch: "StepWatch") -> GroupJudgement:
        judged = self.ledger.find(group.key, group.fingerprint)
        if judged is None:
            judged = await self.judge_group(group, step=step)
            # No await between the buffer's change and this line: a saved state never holds one without the other.
            self.ledger.enter(judged)
        progress = watch.count(judged)
        if self._on_progress is not None:
            self._on_progress(progress)
        return judged

    async def _score_one(
        self, group: Group, reading: Reading, *, rubrics: Sequence[Rubric], seed: int
    ) -> RolloutJudgement:
        present = present_stages(reading)
        asked = tuple(rubric for rubric in rubrics if rubric.stage in present)
        findings = Findings()
        if asked:
            findings = await self.judge.score(ScoringRequest(group.query.question, reading, asked, seed))
        judgement = score_trajectory(present, rubrics, opinions=findings.opinions, failure=findings.failure)
        if findings.is_answer_only and isinstance(judgement.answer, StageScore):
            judgement = broadcast_answer(judgement, judgement.answer)
        return RolloutJudgement(
            judgement=judgement,
            opinions=tuple(findings.opinions.values()),
            is_answer_only=findings.is_answer_only,
            failure=findings.failure,
            prompt_hash=findings.prompt_hash,
            bait=find_bait(reading.policy_text),
        )

    def _pruned(self, proposed: Proposed, rollouts: Sequence[RolloutJudgement], *, step: int) -> RubricSet:
        marks: dict[str, list[float]] = defaultdict(list)
        for rollout in rollouts:
            if rollout.is_valid and not rollout.is_answer_only:
                for opinion in rollout.opinions:
                    marks[opinion.rubric_id].append(opinion.mark)
        settings = self.settings
        return proposed.rubrics.pruned(marks, caps=settings.caps, step=step, archive_limit=settings.archive_limit)


def _part(judged: GroupJudgement, start: int, *, end: int) -> GroupJudgement:
    if (start, end) == (0, len(judged.rollouts)):
        return judged
    return judged.model_copy(update={"rollouts": judged.rollouts[start:end]})


class GroupScorer:
    """Scores a group with rubrics by contrast, and a single trajectory by the persistent and active rubrics alone."""

    def __init__(
        self, judge: StepJudge, queries: Mapping[str, Query] | None = None, *, step: Callable[[], int] = lambda: 0
    ) -> None:
        """`queries`, by key, bring the persistent rubrics; `step` tells the training step."""
        self._judge = judge
        self._queries = dict(queries or {})
        self._step = step

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order. A failure to judge is an outcome with its reason.

        Raises:
            UsageError: the trajectories are of more than one question.
        """
        if not trajectories:
            return []
        keys = {trajectory.query_key for trajectory in trajectories}
        if len(keys) > 1:
            raise UsageError(
                f"the group holds {len(keys)} questions; trajectories are contrasted within one. Score each apart."
            )
        first = trajectories[0]
        query = self._queries.get(first.query_key) or Query(question=first.question, answer_format=first.answer_format)
        return (await self._judge.judge_group(Group.of(query, trajectories), step=self._step())).judgements
