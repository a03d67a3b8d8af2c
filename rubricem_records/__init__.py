"""The files that runs leave: their formats, and how they are read, written and followed."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
