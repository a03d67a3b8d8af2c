"""A server of the almanac's episodes: uvicorn --factory docs.adapters.openenv_server:make_app."""

import os

from docs.adapters.prompt import SYSTEM, prompt_of
from docs.adapters.tutor import ATTEMPTS
from rubricem_env.adapters import offline_env_spec, research_app

TOKEN = "almanac"


def make_app():
    """Groups of four, judged by rules when the fourth attempt is over."""
    patience = float(os.environ.get("RUBRICEM_PATIENCE", "120"))
    env_spec = offline_env_spec(group_size=len(ATTEMPTS), patience=patience, prompt=prompt_of, system=SYSTEM)
    return research_app(env_spec, max_sessions=80, token=TOKEN)
