from rubricem_env.adapters.gem import ResearchGemEnv as ResearchGemEnv
from rubricem_env.adapters.openenv import (
    ResearchAction as ResearchAction,
    ResearchClient as ResearchClient,
    ResearchObservation as ResearchObservation,
    research_app as research_app,
)
from rubricem_env.adapters.session import (
    EpisodeSession as EpisodeSession,
    offline_scorer as offline_scorer,
    offline_setup as offline_setup,
    turns_of_stage as turns_of_stage,
)
from rubricem_env.adapters.skyrl import ResearchTextEnv as ResearchTextEnv
from rubricem_env.adapters.verifiers import research_plugin as research_plugin
from rubricem_env.env.research_env import Setup as Setup, make_setup as make_setup
