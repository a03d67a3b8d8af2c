"""The environment inside other RL libraries. Each needs its library; `offline_env_spec` and sessions need none."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
