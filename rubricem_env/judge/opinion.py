"""What a judge says of one rubric: a mark that may be a mean of several, and the reason."""

from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.judgement import Mark, Verdict

FULL_MARK = 2
MAX_JUSTIFICATION_CHARS = 1_000


class Opinion(Frozen):
    """One rubric, marked. A single judge gives whole marks; an ensemble's mean may lie between them."""

    rubric_id: Text
    mark: Annotated[float, Field(ge=0.0, le=FULL_MARK)]
    justification: Text = ""
    marks: tuple[Mark, ...] = ()
    """Each member's own mark, where an ensemble gave this opinion."""

    @classmethod
    def whole(cls, rubric_id: str, mark: int, justification: str) -> "Opinion":
        """A single judge's mark; the justification is cut to a length that can be kept."""
        return cls(rubric_id=rubric_id, mark=float(mark), justification=shorten(justification))

    @property
    def spread(self) -> int:
        """How far the members of an ensemble lie apart, in marks."""
        return max(self.marks) - min(self.marks) if self.marks else 0

    def verdict(self) -> Verdict:
        """As a verdict, whose mark is whole: halves round up, and the justification tells the mean."""
        rounded = int(self.mark + 0.5)
        told = self.justification
        if rounded != self.mark:
            told = f"mean {self.mark:.2f} of the marks {', '.join(map(str, self.marks))}: {told}"
        return Verdict(rubric_id=self.rubric_id, score=rounded, justification=told)


def shorten(text: str) -> str:
    """At most `MAX_JUSTIFICATION_CHARS`, with a sign where something is left out."""
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_JUSTIFICATION_CHARS else stripped[: MAX_JUSTIFICATION_CHARS - 1] + "…"
