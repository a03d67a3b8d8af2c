"""Registers the environment with Gymnasium, which reads no entry points: importing `rubricem_env` is enough."""

import gymnasium

ENV_ID = "rubricem/DeepResearch-v0"


def register_environments() -> None:
    """Register the environment once; a second import changes nothing."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            id=ENV_ID,
            entry_point="rubricem_env.adapters.gymnasium_make:make_checked_env",
            vector_entry_point="rubricem_env.adapters.gymnasium_make:make_vector_env",
        )
