"""The true quality of each stage of an attempt at an almanac question. No trainer may read it: it audits judges and runs."""

from typing import NamedTuple

from rubricem_env.domain.stage import STAGES
from rubricem_env.scaffold.reading import Reading
from rubricem_env.world.criteria import criteria_of
from rubricem_env.world.evidence import Evidence
from rubricem_env.world.questions import Question


class TrueQuality(NamedTuple):
    """One number in [0, 1] a stage; 0 for a stage that never happened."""

    plan: float
    research: float
    review: float
    answer: float


def true_quality(question: Question, reading: Reading) -> TrueQuality:
    """The weighted share of the question's true criteria that the attempt fulfils, stage by stage."""
    evidence = Evidence.of(reading)
    earned = dict.fromkeys(STAGES, 0.0)
    possible = dict.fromkeys(STAGES, 0.0)
    for criterion in criteria_of(question):
        rubric = criterion.rubric
        possible[rubric.stage] += rubric.weight
        earned[rubric.stage] += rubric.weight * criterion.share(evidence)
    shares = (earned[stage] / possible[stage] if reading.happened(stage) else 0.0 for stage in STAGES)
    return TrueQuality(*shares)
