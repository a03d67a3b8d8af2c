"""The settings of the engines behind the search tools."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.prices import FLASH, Dollars
from rubricem_env.tools.engines import ENGINES


class RateConfig(Rates):
    """Rate limits of one engine, for all processes of a run together."""

    concurrency: PositiveCount = 64


class EngineConfig(Frozen):
    """The engine of a search tool, and those that stand in: settings, a name, or a list of either."""

    engine: str
    fee: Dollars | None = None
    """Dollars per call in addition to tokens, for the budget; None takes the engine's usual fee."""
    rates: RateConfig | None = None
    """None takes the engine's usual ones."""
    then: tuple[Self, ...] = ()
    """The engines that stand in, in their order, where this one is out of money, down or too busy."""

    @model_validator(mode="before")
    @classmethod
    def _read_order(cls, given: object) -> object:
        listed = given if isinstance(given, list | tuple) else [given]
        engines = [{"engine": engine} if isinstance(engine, str) else engine for engine in listed]
        first, *others = engines or [{"engine": ""}]
        if others and isinstance(first, Mapping):
            return {**first, "then": [*first.get("then", ()), *others]}
        return first

    @property
    def in_order(self) -> tuple[Self, ...]:
        return (self, *(engine for other in self.then for engine in other.in_order))

    @property
    def limits(self) -> Rates:
        return self.rates or ENGINES[self.engine].rates

    @property
    def dollars(self) -> float:
        """For one call, besides tokens."""
        return ENGINES[self.engine].price / 1_000 if self.fee is None else self.fee


class GoogleSearchConfig(EngineConfig):
    """The engine behind google_search; `google_search = ["serper", "brave"]` is an order."""

    engine: Literal["gemini", "serper", "tavily", "exa", "brave", "searxng", "plain"] = "gemini"
    """gemini: grounded generation. searxng: a server of your own, at url. plain: serper's API at another url."""
    model: str = FLASH
    url: str | None = None
    """Another address of the engine; None for its own."""
    key_header: str = "X-API-KEY"
    """plain: the header that carries the key."""
    system: str = ""
    """gemini: the instruction beside each query; empty takes the built-in one, which asks for at most 200 words."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """gemini: 0 gives a query the same answer more often; the provider advises 1.0 for grounding."""
    max_output_tokens: PositiveCount = 2_048
    """gemini: of one answer, with the thoughts that the model hides."""
    results: PositiveCount = 5
    """The number of results requested; not for gemini."""

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.engine == "searxng" and not self.url:
            raise ValueError(
                'google_search.engine = "searxng" needs google_search.url, such as "http://127.0.0.1:8080"'
            )
        return self


SCHOLAR: Final = "semantic_scholar"


class SnippetSearchConfig(EngineConfig):
    """The engine behind snippet_search; `snippet_search = ["semantic_scholar", "openalex"]` is an order."""

    engine: Literal["semantic_scholar", "openalex", "arxiv"] = SCHOLAR
    url: str = ENGINES[SCHOLAR].url
    """Another address of the engine; the one of Semantic Scholar stands for each engine's own."""


SearchConfig = GoogleSearchConfig | SnippetSearchConfig
