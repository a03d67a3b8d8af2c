"""Finds text in an attempt that speaks to the judge."""

import json
import re

from rubricem_env.domain.inputs import package_text

_INJECTIONS = {
    kind: re.compile("|".join(patterns), re.I)
    for kind, patterns in json.loads(package_text("rubricem_env.judge", "injections.json")).items()
}
"""Narrow on purpose: "the interest rate was 2 %" and "the top score of the match" are ordinary sentences."""


def find_injections(text: str) -> tuple[str, ...]:
    """The kinds of text that address the judge instead of the reader, in a fixed order. They change no score."""
    return tuple(kind for kind, pattern in _INJECTIONS.items() if pattern.search(text))
