"""The prices of models: what is listed, and what the command line gives."""

from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache

from pydantic import TypeAdapter, ValidationError

from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import PRICES, Dollars, Price

_DOLLARS = TypeAdapter(tuple[Dollars, Dollars])


@cache
def list_prices() -> Mapping[str, Price]:
    """The list prices of today: those of genai-prices where it is installed, and ours of models that it lacks.

    A run keeps the prices of the day on which its process first asked.
    """
    try:
        from rubricem_env.llm.library_prices import library_prices
    except ModuleNotFoundError:
        return PRICES
    return {**PRICES, **library_prices(date.today())}


def parse_prices(given: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Dollars for a million tokens read and written, by model, of texts such as MODEL=IN,OUT.

    Raises ConfigError on another text.
    """
    parts = {model: dollars for model, _, dollars in (text.rpartition("=") for text in given)}
    try:
        return {model: _DOLLARS.validate_python(dollars.split(","), strict=False) for model, dollars in parts.items()}
    except ValidationError as cause:
        wrong = ", ".join(parts.values())
        raise ConfigError(
            f"--price is {wrong!r}; write dollars for a million tokens read and written, such as 2,12."
        ) from cause
