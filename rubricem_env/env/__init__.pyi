from rubricem_env.concurrency import LoopThread as LoopThread
from rubricem_env.env.context import ContextLimits as ContextLimits
from rubricem_env.env.episode import (
    Continue as Continue,
    Episode as Episode,
    EpisodeLimits as EpisodeLimits,
    Finished as Finished,
)
from rubricem_env.env.research_env import DeepResearchEnv as DeepResearchEnv
from rubricem_env.env.rewards import (
    GatheringScorer as GatheringScorer,
    RewardMode as RewardMode,
    ScoreEach as ScoreEach,
    Scorer as Scorer,
)
from rubricem_env.env.step import advance as advance, take_step as take_step
from rubricem_env.env.vector import DeepResearchVectorEnv as DeepResearchVectorEnv
from rubricem_env.env.view import View as View, views_of as views_of
from rubricem_env.env.wrappers import (
    CharacterLimit as CharacterLimit,
    EmissionChecker as EmissionChecker,
    EmissionWarning as EmissionWarning,
    RecordTrajectories as RecordTrajectories,
)
from rubricem_env.world.offline import (
    offline_queries as offline_queries,
    query_of as query_of,
    shipped_toolbox as shipped_toolbox,
)
