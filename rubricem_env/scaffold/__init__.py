"""The scaffold of four stages: parser, stage boundaries, citations, validator, untrusted text."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
