"""The rubric bank: reflections kept, retrieved and written into prompts."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
