"""A verifiers plugin: the almanac, judged offline by rules within groups. Put its folder on PYTHONPATH."""

import os

from docs.adapters.prompt import SYSTEM, prompt_of
from rubricem_env.adapters import offline_env_spec, research_plugin

GROUP_SIZE = int(os.environ.get("RUBRICEM_GROUP_SIZE", "4"))
"""The same as the number of rollouts that the run asks for."""

AlmanacTaskset, AlmanacHarness = research_plugin(
    offline_env_spec(group_size=GROUP_SIZE, patience=120.0, prompt=prompt_of, system=SYSTEM)
)
__all__ = ["AlmanacHarness", "AlmanacTaskset"]
