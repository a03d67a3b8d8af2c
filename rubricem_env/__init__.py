"""The environment of RubricEM: scaffold, tools, judge and episodes of deep research.

import gymnasium, rubricem_env
env = gymnasium.make("rubricem/DeepResearch-v0")
"""

from rubricem_env.registration import register_environments

__version__ = "0.1.0"

register_environments()
