"""Episodes for other RL libraries: what every adapter shares.

- `EpisodeSession`: one episode as a library steps it, text in and text out, scored at the end; rewards by turn.
- The check of a library's version.
- `offline_env_spec`: the shipped almanac judged by rules, without model or network.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from typing import Any

from packaging.specifiers import SpecifierSet

from rubricem_env.domain.base import Span
from rubricem_env.domain.errors import MissingExtraError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Finished
from rubricem_env.env.rewards import GatheringScorer, RewardMode, score_info, score_step, stages_to_score, step_reward
from rubricem_env.env.spec import EnvSpec, Prompt, make_env_spec, question_prompt
from rubricem_env.env.step import StepOutcome, advance, reset_info, step_outcome
from rubricem_env.judge.group_scorer import GroupScorer
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_env.tools.render import TokenCount, estimate_tokens
from rubricem_env.world.offline import offline_queries


class EpisodeSession:
    """One episode. Asynchronous; for a library that blocks, run it in a `LoopThread`."""

    def __init__(self, env_spec: EnvSpec, query: Query, *, seed: int | None = None) -> None:
        self.env_spec = env_spec
        self.query = query
        self.prompt = env_spec.prompt(query)
        self.judgement: Judgement | None = None
        self._is_first = True
        self._episode = env_spec.open_episode(query, self.prompt, seed=seed)

    @property
    def trajectory(self) -> Trajectory:
        """The record so far."""
        return self._episode.trajectory

    @property
    def is_over(self) -> bool:
        return self._episode.is_over

    @property
    def info(self) -> dict[str, Any]:
        """The facts before the first step."""
        return reset_info(self._episode)

    async def step(self, text: str) -> StepOutcome:
        """Take the policy's next turn. At the end the whole trajectory is scored once, whatever the mode pays.

        The `info` of the last step also has `score_<stage>` and `unscored_<stage>` for every stage.

        Raises:
            UsageError: the episode is over.
        """
        env_spec = self.env_spec
        episode = self._episode
        if episode.is_over:
            raise UsageError("the episode is over; start another one instead of stepping again.")
        if self._is_first and not text.strip():
            warnings.warn(
                "the policy's first turn is empty. If all are, the prompt may not fit into the model's context, or the "
                "trainer allows no new tokens.",
                stacklevel=2,
            )
        self._is_first = False
        reply = await advance(episode, env_spec.toolbox, text)
        if not isinstance(reply, Finished):
            payout = await score_step(episode, env_spec.reward, env_spec.scorer)
            return step_outcome(episode, reply, reward=step_reward(*payout), scores={})
        if env_spec.scorer is not None:
            self.judgement = (await env_spec.scorer.score([episode.trajectory]))[0]
        reward = step_reward(self.judgement, stages_to_score(episode, env_spec.reward, env_spec.scorer))
        return step_outcome(episode, reply, reward=reward, scores=score_info(self.judgement, episode.scaffold.names))

    def abandon(self) -> None:
        """End the episode because the library stops it; safe to call twice."""
        self._episode.abandon()


def turn_rewards(trajectory: Trajectory, judgement: Judgement) -> list[float | None]:
    """For each turn, the sum of the scores of the stages that end in it; None if no scored stage does.

    A stage without text adds nothing. Review and answer usually end in the same turn.
    """
    parsed = parse_trajectory(trajectory)
    ends = _ends(parsed)
    rewards: list[float | None] = [None] * len(ends)
    for stage in judgement.stages:
        span = parsed.spans.get(stage)
        score = judgement.score(stage)
        if span and score is not None:
            turn = next(number for number, end in enumerate(ends) if span.end <= end)
            rewards[turn] = (rewards[turn] or 0.0) + score
    return rewards


def turns_of_stage(trajectory: Trajectory, stage: str) -> set[int]:
    """The turns in which the stage has text, counted from 0; a turn may belong to several stages."""
    parsed = parse_trajectory(trajectory)
    ends = _ends(parsed)
    span = parsed.spans.get(stage, Span(0, 0))
    turns = enumerate(zip([0, *ends], ends, strict=False))
    return {number for number, (start, end) in turns if span.start < end and start < span.end}


def _ends(parsed: ParsedTrajectory) -> list[int]:
    """Where each turn ends in the policy's joined text."""
    return list(accumulate(len(turn.text) for turn in parsed.turns))


def require_tested(package: str, tested: str, *, extra: str) -> None:
    """Check the installed version, and warn if it is outside the tested range.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        installed = version(package)
    except PackageNotFoundError as cause:
        raise MissingExtraError(package, extra, f"the {extra} adapter") from cause
    warn_if_untested(package, installed, tested)


def warn_if_untested(package: str, installed: str, tested: str) -> None:
    """Warn if `installed` is not among the versions `tested`, a specifier such as ">=1.16,<1.17"."""
    if not SpecifierSet(tested).contains(installed, prereleases=True):
        warnings.warn(
            f"{package} {installed} is installed; the adapter was tested with {package} {tested}. "
            f"If something fails, install a tested version: pip install '{package}{tested}'",
            stacklevel=4,
        )


def offline_scorer(queries: Sequence[Query] | None = None, stage_set: StageSet = DEEP_RESEARCH) -> GroupScorer:
    """The judge of the stage-aware rubrics, by rules instead of a model, with the persistent rubrics of `queries`."""
    chosen = offline_queries() if queries is None else queries
    judge = StepJudge(RulesJudge(), RubricBuffer(), stage_set=stage_set)
    return GroupScorer(judge, {query.key: query for query in chosen})


def offline_env_spec(
    *,
    queries: Sequence[Query] | None = None,
    reward: RewardMode = "answer",
    group_size: int = 1,
    patience: float = 600.0,
    prompt: Prompt = question_prompt,
    count_tokens: TokenCount = estimate_tokens,
    system: str = "",
    context: ContextLimits | None = None,
    scaffold: StageSet | str = DEEP_RESEARCH,
) -> EnvSpec:
    """A spec over the shipped tools. `group_size` attempts at a question are judged together.

    The questions are the almanac's, which is searched; for a scaffold without a search give your own.

    A model that was not trained on the scaffold needs its rules: `system=agent_prompt(shipped_toolbox().names).system`.

    Raises:
        ConfigError: the reward mode is unknown, or there is no such stage set.
        UsageError: the group size is below 1, or the patience is not positive.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    stage_set = scaffold if isinstance(scaffold, StageSet) else read_stage_set(scaffold)
    scorer = GatheringScorer(offline_scorer(chosen, stage_set), group_size, patience=patience)
    return make_env_spec(
        queries=chosen,
        reward=reward,
        scorer=scorer,
        prompt=prompt,
        count_tokens=count_tokens,
        system=system,
        context=context,
        scaffold=stage_set,
    )
