"""What pages have said, remembered as runs of words: guidance must not repeat it."""

import re
from collections.abc import Iterable, Iterator

from rubricem_env.domain.trajectory import Origin, Trajectory

COPIED_WORDS = 12
"""So many words in a row are a copy. Fewer may be a name or a turn of phrase."""
_WORD = re.compile(r"\w+")


class PageText:
    """The runs of words that were shown to a policy."""

    def __init__(self, runs: frozenset[tuple[str, ...]] = frozenset()) -> None:
        self._runs = runs

    @classmethod
    def shown_in(cls, trajectories: Iterable[Trajectory]) -> "PageText":
        """All tool text of these attempts."""
        texts = {
            segment.text
            for trajectory in trajectories
            for segment in trajectory.segments
            if segment.origin is Origin.TOOL
        }
        return cls(frozenset(run for text in texts for run in _runs(text)))

    def find_copy(self, text: str) -> str | None:
        """The first run of the text that a page has as well; None where there is none."""
        found = next((run for run in _runs(text) if run in self._runs), None)
        return " ".join(found) if found else None


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return (tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1))
