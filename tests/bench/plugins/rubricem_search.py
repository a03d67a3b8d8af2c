"""The same question through this project's plugin; no judge, as in the environment beside it."""

from rubricem_env.adapters.verifiers import research_plugin
from rubricem_env.env.spec import make_env_spec
from tests.bench.adapter_attempts import QUERY

ResearchSet, ResearchLoop = research_plugin(make_env_spec(queries=[QUERY]))
__all__ = ["ResearchLoop", "ResearchSet"]
