"""The prices of models: what the command line gives, and what a run with a budget needs."""

from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import Dollars

_DOLLARS = TypeAdapter(tuple[Dollars, Dollars])


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
