"""Recorded runs as pages."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
