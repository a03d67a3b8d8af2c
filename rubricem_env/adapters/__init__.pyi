from rubricem_env.adapters.gem import ResearchGemEnv as ResearchGemEnv
from rubricem_env.adapters.openenv import (
    ResearchAction as ResearchAction,
    ResearchClient as ResearchClient,
    ResearchObservation as ResearchObservation,
    research_app as research_app,
)
from rubricem_env.adapters.session import (
    EpisodeSession as EpisodeSession,
    Played as Played,
    Setup as Setup,
    completion_of as completion_of,
    make_setup as make_setup,
    offline_scorer as offline_scorer,
    offline_setup as offline_setup,
    policy_runs as policy_runs,
    tokens_of as tokens_of,
    turns_of_stage as turns_of_stage,
)
from rubricem_env.adapters.skyrl import ResearchTextEnv as ResearchTextEnv
from rubricem_env.adapters.trl import TrlSpec as TrlSpec
from rubricem_env.adapters.verifiers import research_plugin as research_plugin
