"""Deep research in four stages as a verifiers environment: a taskset, a harness and a function that loads both.

The questions and pages are the almanac's, a small world that is in the package; rules judge the attempts of a group.
"""

import os

import verifiers.v1 as vf

from rubricem_agent.prompting import agent_prompt
from rubricem_env.adapters import offline_env_spec, research_plugin
from rubricem_env.env import shipped_toolbox

NAME = "rubricem-deep-research"
GROUP_SIZE = int(os.environ.get("RUBRICEM_GROUP_SIZE", "4"))
"""The same as the number of rollouts that the run asks for (-r): the judge contrasts the attempts of a group."""

RULES = agent_prompt(shipped_toolbox().names)

DeepResearchTaskset, DeepResearchHarness = research_plugin(
    offline_env_spec(
        group_size=GROUP_SIZE, patience=120.0, prompt=lambda query: RULES.opening(query).user, system=RULES.system
    )
)
__all__ = ["DeepResearchHarness", "DeepResearchTaskset"]


def load_environment() -> vf.Env:
    """The environment with its own harness, which plays in this process, for use from Python."""
    agent = {"harness": {"id": NAME}, "runtime": {"type": "subprocess"}}
    return vf.load_environment(vf.resolve_env_config({"taskset": {"id": NAME}, "agent": agent}))
