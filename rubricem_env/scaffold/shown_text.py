"""What tools have shown to a policy, word for word: neither a rubric nor a lesson may repeat it at length."""

import re
from collections.abc import Iterable

from rubricem_env.domain.trajectory import Origin, Trajectory

COPIED_WORDS = 12
"""So many words in a row are a copy. Fewer may be a name or a turn of phrase."""
_WORD = re.compile(r"\w+")


class ShownText:
    """The words of what was shown, without case and punctuation."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        # A blank at either end: a run of words is found at whole words only.
        self._texts = tuple({f" {' '.join(_words(text))} " for text in texts})

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
        words = _words(text)
        runs = (" ".join(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1))
        return next((run for run in runs if any(f" {run} " in shown for shown in self._texts)), None)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
