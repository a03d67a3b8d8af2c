"""What was shown to a policy, word for word: neither a rubric nor a lesson may repeat a page of it at length."""

import re
from collections.abc import Iterable, Iterator

from rubricem_env.domain.span import Span
from rubricem_env.domain.trajectory import Origin, Trajectory

COPIED_WORDS = 12
"""So many words in a row are a copy. Fewer may be a name or a turn of phrase."""
_WORD = re.compile(r"\w+")


class ShownText:
    """The words of what was shown, without case and punctuation."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        # Runs of words in a set: looked for in the texts themselves, a group's rubrics would take a second.
        self._runs = frozenset(run for text in set(texts) for run in _runs(text))

    @classmethod
    def in_trajectories(cls, trajectories: Iterable[Trajectory]) -> "ShownText":
        """All tool text of these attempts."""
        return cls(
            segment.text
            for trajectory in trajectories
            for segment in trajectory.segments
            if segment.origin is Origin.TOOL
        )

    def find_copy(self, text: str) -> str | None:
        """The first words of the text that were shown in a row as well; None where there are none."""
        found = next((run for run in _runs(text) if run in self._runs), None)
        return " ".join(found) if found else None

    def find_copies(self, text: str) -> tuple[Span, ...]:
        """Where the text repeats what was shown; copies that overlap are one."""
        words = [(word, *found.span()) for found in _WORD.finditer(text) for word in _WORD.findall(found[0].casefold())]
        copies: list[Span] = []
        for at in range(len(words) - COPIED_WORDS + 1):
            run = words[at : at + COPIED_WORDS]
            if tuple(word for word, _, _ in run) in self._runs:
                start, end = run[0][1], run[-1][2]
                if copies and start < copies[-1].end:
                    start = copies.pop().start
                copies.append(Span(start, end))
        return tuple(copies)


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return (tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1))
