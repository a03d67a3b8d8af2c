"""How good a policy is on held-out questions: by truth in the almanac, by a judge on others.

The bank is off, as in the paper's main results.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rubricem_agent.policy.base import Opening, Policy
from rubricem_agent.progress import counted
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.base import Judge
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.judge import WorldQuestion, true_quality
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.runs.log_lines import ScoredBy
from rubricem_records.runs.run_log import append_line


async def answer_held_out(
    policy: Policy,
    queries: Sequence[Query],
    *,
    prompt: AgentPrompt,
    toolbox: Toolbox,
    limits: EpisodeLimits,
    context: ContextLimits | None = None,
    max_turn_tokens: int,
    seed: int,
    temperature: float = 0.0,
    step: int | None = None,
) -> list[Rollout]:
    """One attempt at each question, greedily by default; every ten seconds a line of progress, with the run's step."""

    async def open_query(query: Query, _attempt: int) -> tuple[Opening, str]:
        return prompt.opening(query), prompt.hash

    sampling = Sampling(temperature=temperature, max_turn_tokens=max_turn_tokens)
    played = RolloutContext(policy, toolbox, limits, sampling, context or ContextLimits())
    what = "held-out questions answered" if step is None else f"step {step}: held-out questions answered"
    with counted(what, len(queries)) as count:
        groups = await run_groups(queries, open_query, played, group_size=1, seed=seed, on_rollout=count)
    return [rollout for (rollout,) in groups]


def mean_quality(questions: Sequence[WorldQuestion], trajectories: Sequence[ParsedTrajectory]) -> dict[str, float]:
    """Mean true quality by stage, of one episode for each question."""
    qualities = [true_quality(question, parsed) for question, parsed in zip(questions, trajectories, strict=True)]
    return dict(zip(trajectories[0].stages, np.mean(qualities, axis=0).tolist(), strict=True))


async def mean_judged(
    judge: Judge,
    queries: Sequence[Query],
    trajectories: Sequence[ParsedTrajectory],
    *,
    settings: JudgeSettings,
    step: int,
    stage_set: StageSet = DEEP_RESEARCH,
) -> dict[str, float]:
    """Mean score of each stage that the questions have rubrics for, of one episode for each question.

    Only the questions' own rubrics count, so that scores of different steps can be compared.

    Raises:
        JudgeError: the judge lost more episodes than the settings allow; the others' mean would be of other questions.
        SpendLimitReached: the judge's limit in calls, tokens or money.
    """
    exact = settings.model_copy(update={"dropout": 0.0})
    groups = [Group(query, (parsed,)) for query, parsed in zip(queries, trajectories, strict=True)]
    judged = await StepJudge(judge, RubricBuffer(), settings=exact, stage_set=stage_set).judge_step(groups, step=step)
    scores: dict[str, list[float]] = {stage: [] for stage in stage_set.scaffold.names}
    for query, group in zip(queries, judged, strict=True):
        for stage in {rubric.stage for rubric in query.rubrics}:
            score = group.judgements[0].score(stage)
            if score is not None:
                scores[stage].append(score)
    return {stage: float(np.mean(given)) for stage, given in scores.items() if given}


def record_evaluation(
    log: Path,
    step: int,
    scores: Mapping[str, float],
    trajectories: Sequence[ParsedTrajectory],
    *,
    by: ScoredBy = "truth",
) -> None:
    """Write and print the scores of a step's policy, and the share of episodes that strict mode accepts."""
    valid = float(np.mean([not parsed.rejections for parsed in trajectories]))
    append_line(log, {"step": step, "held_out": dict(scores), "valid": valid, "by": by})
    last = trajectories[0].stages[-1] if trajectories else ""
    answer = f"{scores[last]:.3f}" if last in scores else "without a score"
    sys.stdout.write(
        f"step {step}: held-out answers {answer} by {'truth' if by == 'truth' else 'the judge'}, {valid:.0%} valid\n"
    )
