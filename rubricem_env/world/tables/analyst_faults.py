"""The faults of the scripted analyst, and which of them one trace has."""

from typing import NamedTuple

from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.world.draws import draw_index, open_trace, pick
from rubricem_env.world.tables.questions import MISTAKES, TableMistake, TableQuestion


class AnalystFaults(Frozen):
    """The probability of each fault in a trace, drawn independently; the default is an analyst without faults."""

    frame_mistake: UnitScore = 0.0
    """Frames one of the question's mistakes, such as an outdated table; the query and the report follow the frame."""
    query_mistake: UnitScore = 0.0
    """Frames rightly, and then makes one of the mistakes in the query."""
    repeat_query: UnitScore = 0.0
    """Runs its query a second time."""
    invent_number: UnitScore = 0.0
    """Reports another number than the result has."""
    forget_unit: UnitScore = 0.0
    """Reports the number without its unit; nothing where the question has none."""
    forget_citation: UnitScore = 0.0
    """Reports the number without the result that it stands in."""


class AnalystSlips(NamedTuple):
    """The faults of one trace; the default is none."""

    framed: TableMistake | None = None
    queried: TableMistake | None = None
    invented: str = ""
    """The number that is reported in place of the result's."""
    repeats_query: bool = False
    forgets_unit: bool = False
    forgets_citation: bool = False

    @property
    def mistake(self) -> TableMistake | None:
        """The mistake of the query, whoever made it."""
        return self.framed or self.queried


NO_ANALYST_SLIPS = AnalystSlips()
_FRAMED = frozenset(MISTAKES) - {"wrong_join"}
"""What shows in a frame."""


def draw_analyst_slips(question: TableQuestion, faults: AnalystFaults, *, seed: int, world: str = "") -> AnalystSlips:
    """The faults of the trace for this question, world and seed: the same on every machine."""
    rng = open_trace(seed, question=question.id, world=world)
    # Everything is drawn, so that turning one knob leaves the other faults as they were.
    frames, queries, repeats, invents, forgets_unit, forgets_citation = (
        rng.random() < chance for chance in faults.model_dump().values()
    )
    framed = pick(rng, [mistake for mistake in question.mistakes if mistake.kind in _FRAMED])
    queried = pick(rng, question.mistakes)
    invented = str(3 + draw_index(rng, 900))
    if invented in {question.value, *(mistake.value for mistake in question.mistakes)}:
        invented = str(int(invented) + 1_000)
    return AnalystSlips(
        framed=framed if frames else None,
        queried=queried if queries else None,
        invented=invented if invents else "",
        repeats_query=repeats,
        forgets_unit=forgets_unit,
        forgets_citation=forgets_citation,
    )
