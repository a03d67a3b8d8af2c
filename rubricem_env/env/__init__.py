"""Episodes and the environments that step them."""

from rubricem_env.env.episode import CallTool, Continue, Episode, EpisodeLimits, Finished
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.rewards import RewardMode, ScoreEach, Scorer
from rubricem_env.env.step import advance, take_step
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.env.wrappers import CharacterLimit, EmissionChecker, EmissionWarning, RecordTrajectories

__all__ = [
    "CallTool",
    "CharacterLimit",
    "Continue",
    "DeepResearchEnv",
    "DeepResearchVectorEnv",
    "EmissionChecker",
    "EmissionWarning",
    "Episode",
    "EpisodeLimits",
    "Finished",
    "RecordTrajectories",
    "RewardMode",
    "ScoreEach",
    "Scorer",
    "advance",
    "take_step",
]
