"""How the command line writes a field of some settings, where its text or its flag differs from the field's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PRICE_HELP = "[MODEL=]IN,OUT: dollars for a million tokens; without MODEL, for each that has no list price."
MAX_CALLS_HELP = "The most tool calls."
MAX_TURNS_HELP = "The most turns; more than the calls."
MAX_TOKENS_HELP = "The most tokens of turns and results together."
FOLD_AT_HELP = "Fold what the policy reads where it has more tokens than this; by default it reads everything."
FOLD_TO_HELP = "The tokens that a fold leaves."
KEEP_HELP = "The last results that a fold leaves whole."
NO_PROBE_HELP = "Do not ask the models and the search engine for one token first."


@dataclass(frozen=True)
class CommandOption:
    """An option, as metadata of the field that it sets: `prices: Annotated[..., CommandOption("price", help="...")]`.

    A list becomes the field's tuple, and a flag of a field that is true by default turns it off.
    """

    name: str
    """The option is written --NAME, with hyphens."""
    help: str
    kind: Any
    """The type that the command line reads."""
    default: object = None
    """Shown in the help text."""
    parse: Callable[[Any], Any] = lambda value: value
    """The field's value, given the option's."""
    lowest: float | None = None
    highest: float | None = None
    part: str = ""
    """The field of the field's own model that the option sets; empty where it sets the whole field."""
