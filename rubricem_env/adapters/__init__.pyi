from rubricem_env.adapters.gem import ResearchGemEnv as ResearchGemEnv
from rubricem_env.adapters.openenv import (
    ResearchAction as ResearchAction,
    ResearchClient as ResearchClient,
    ResearchObservation as ResearchObservation,
    research_app as research_app,
)
from rubricem_env.adapters.session import (
    EpisodeSession as EpisodeSession,
    offline_env_spec as offline_env_spec,
    offline_scorer as offline_scorer,
    turns_of_stage as turns_of_stage,
)
from rubricem_env.adapters.skyrl import ResearchTextEnv as ResearchTextEnv
from rubricem_env.adapters.verifiers import research_plugin as research_plugin
from rubricem_env.env.spec import EnvSpec as EnvSpec, make_env_spec as make_env_spec
