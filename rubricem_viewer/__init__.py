"""Shows recorded runs as pages in a browser, or as one HTML file."""

from rubricem_env.exports import lazy_exports

__getattr__ = lazy_exports(__name__, __file__)
