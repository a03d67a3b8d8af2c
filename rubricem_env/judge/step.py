"""Judges a step: all groups at once, each group's scoring starting the moment its own proposal is in."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rubricem_env.domain.judgement import StageScore
from rubricem_env.domain.rubric import Rubric
from rubricem_env.judge.bait import find_bait
from rubricem_env.judge.base import Contrast, Examination, Findings, Judge, Proposal, present_stages
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.dropout import drop_rubrics
from rubricem_env.judge.group import Group, merge_groups
from rubricem_env.judge.ledger import StepLedger
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubric_set import RubricSet
from rubricem_env.judge.scoring import broadcast_answer, score_trajectory
from rubricem_env.judge.seeds import derive_seed, open_generator
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.judge.together import run_together
from rubricem_env.judge.watch import JudgeOutageError, Progress, StepWatch
from rubricem_env.scaffold.reading import Reading


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
        on_progress: Callable[[Progress], None] | None = None,
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
            findings = await self.judge.score(Examination(group.query.question, reading, asked, seed))
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
