"""What the snippets of the adapters begin with: the almanac, judged by rules, with no model and no network."""

from collections.abc import Callable, Sequence

from rubricem_env.adapters.gathering import GatheringScorer
from rubricem_env.adapters.session import Setup, make_setup
from rubricem_env.domain.query import Query
from rubricem_env.env.offline import offline_queries
from rubricem_env.env.research_env import question_prompt
from rubricem_env.env.scoring import RewardMode
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.scorer import GroupScorer
from rubricem_env.judge.step import StepJudge


def offline_scorer(queries: Sequence[Query] | None = None) -> GroupScorer:
    """The judge of the stage-aware rubrics with rules in place of a model; `queries` bring their persistent rubrics."""
    chosen = offline_queries() if queries is None else queries
    return GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {query.key: query for query in chosen})


def offline_setup(
    *,
    queries: Sequence[Query] | None = None,
    reward: RewardMode | str = RewardMode.ANSWER,
    group_size: int = 1,
    patience: float = 600.0,
    prompt: Callable[[Query], str] = question_prompt,
) -> Setup:
    """A setup over the shipped tools. With a `group_size` above 1 so many attempts at a question are judged together.

    Raises:
        ConfigError: the reward mode is unknown.
        UsageError: group size or patience make no sense.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    scorer = GatheringScorer(offline_scorer(chosen), group_size, patience=patience)
    return make_setup(queries=chosen, reward=reward, scorer=scorer, prompt=prompt)
