"""The almanac: graded by its truth, without a judge."""

from collections.abc import Sequence

from rubricem_agent.evals.base import Gold
from rubricem_agent.evals.benchmarks.researchrubrics import compliance
from rubricem_agent.evals.grading import Case, Grade, GradedExample, Grading, Totals, mean_metrics, mean_of, scores_of
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.questions import Need, Truth

NEED, CONVENTION, TRAP = 1.0, 0.5, -1.0
"""The weights of the world's own answer rubrics."""


class AlmanacGold(Gold):
    """The truth of a question, and where it belongs."""

    truth: Truth
    domain: Text
    answer_format: Text


class AlmanacGrader:
    """The weighted share of what the truth asks of the answer: needs, conventions, and traps that were fallen into."""

    is_binary = False
    prompt_hash = ""

    def grade(self, case: Case) -> Grading:
        """Asks nothing."""
        gold = case.gold_as(AlmanacGold)
        yield ()
        truth, text = gold.truth, case.answer.text
        needs = [need.is_met_by(text) for need in _answer_needs(gold)]
        conventions = [need.is_met_by(text) for need in truth.implicit_needs]
        traps = [trap.has_caught(text) for trap in truth.traps]
        weights = [NEED] * len(needs) + [CONVENTION] * len(conventions) + [TRAP] * len(traps)
        score = compliance([float(met) for met in (*needs, *conventions, *traps)], weights)
        shares = {"needs": needs, "conventions": conventions, "traps": traps}
        metrics = {name: sum(met) / len(met) for name, met in shares.items() if met}
        return Grade(score, score, metrics={**metrics, f"format:{gold.answer_format}": score})

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """Plain means; traps is the share of wrong values that were repeated: there, less is better."""
        return Totals("truth", {"truth": mean_of(scores_of(graded)), **mean_metrics(graded)})


def _answer_needs(gold: AlmanacGold) -> Sequence[Need]:
    """An exact answer is the last value of its chain; the others state every need."""
    return gold.truth.needs[-1:] if gold.answer_format == AnswerFormat.EXACT.value else gold.truth.needs
