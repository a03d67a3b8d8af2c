"""What `gymnasium.make` and `gymnasium.make_vec` give: the environment, judged by rules where no scorer is given."""

from inspect import signature
from typing import Any

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import suggest_name
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.spec import read_queries
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.env.wrappers import EmissionChecker
from rubricem_env.judge.rules.rules_scorer import RulesScorer
from rubricem_env.world.offline import offline_queries


def make_checked_env(**arguments: Any) -> EmissionChecker:
    """The environment with the checker around it.

    An additional wrapper in the registration would do the same and rule out `make_vec`.
    """
    return EmissionChecker(DeepResearchEnv(**_completed(DeepResearchEnv, arguments)))


def make_vector_env(num_envs: int = 1, **arguments: Any) -> DeepResearchVectorEnv:
    """Many episodes at once."""
    return DeepResearchVectorEnv(num_envs, **_completed(DeepResearchVectorEnv, arguments))


def _completed(kind: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments; where the reward mode needs a scorer and none is given, with the rules judge.

    Raises:
        UsageError: an argument is unknown.
    """
    known = [name for name in signature(kind).parameters if name != "num_envs"]
    for name in arguments:
        if name == "max_episode_steps":
            raise UsageError("make_vec has no max_episode_steps; write limits=EpisodeLimits(max_calls=3, max_turns=4).")
        if name not in known:
            raise UsageError(f"the environment has no argument {name!r}; {suggest_name(name, known)}")
    if arguments.get("reward", "none") == "none" or arguments.get("scorer") is not None:
        return arguments
    queries = arguments.get("queries")
    return {**arguments, "scorer": RulesScorer(offline_queries() if queries is None else read_queries(queries))}
