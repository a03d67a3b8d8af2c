"""Search tools: engines, cache, limits, MCP client and server, record and replay."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
