"""The settings of judges, rubric banks, policies, teachers and search tools."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
