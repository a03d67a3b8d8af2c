"""The almanac: an invented world whose questions are graded by their truth, without a judge."""

from rubricem_agent.evals.benchmark import OR_FROM_MEMORY, Benchmark
from rubricem_agent.evals.benchmarks.researchrubrics import compliance
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.rules import official_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.needs import Truth
from rubricem_records.files.file_hash import sha256

# The weights of the world's own answer rubrics.
NEED = 1.0
CONVENTION = 0.5
TRAP = -1.0


class AlmanacGold(Gold):
    """The truth of a question and its answer format."""

    truth: Truth
    answer_format: Text


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """The test questions of the shipped world, or those of another world's file. There is no other version."""
    path = paths.path or shipped_questions_path()
    questions = [question for question in load_questions(path) if question.split == "test"]
    gold = {
        question.id: AlmanacGold(id=question.id, truth=question.truth, answer_format=question.answer_format.value)
        for question in questions
    }
    examples = tuple(Example(id=question.id, prompt_text=question.question) for question in questions)
    return Dataset(examples, gold, path, sha256(path), {question.id: question.answer_format for question in questions})


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """The weighted share of what the truth requires: needs, conventions, and avoided traps.

    A trap that the answer fell into subtracts. An exact answer is the last value of its chain; the other formats state
    every need.
    """
    yield ()
    gold = case.gold_as(AlmanacGold)
    text = case.answer.text
    truth = gold.truth
    required = truth.needs[-1:] if gold.answer_format == AnswerFormat.EXACT.value else truth.needs
    needs = [need.is_met_by(text) for need in required]
    conventions = [need.is_met_by(text) for need in truth.implicit_needs]
    traps = [trap.has_caught(text) for trap in truth.traps]
    weights = [NEED] * len(needs) + [CONVENTION] * len(conventions) + [TRAP] * len(traps)
    score = compliance([float(met) for met in (*needs, *conventions, *traps)], weights)
    shares = {"needs": needs, "conventions": conventions, "traps": traps}
    metrics = {name: sum(met) / len(met) for name, met in shares.items() if met}
    return Grade(score, score, metrics={**metrics, f"format:{gold.answer_format}": score})


BENCHMARK = Benchmark(
    name="almanac",
    title="Almanac",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "truth"),
    official=official_rules(""),
    searches=(*OR_FROM_MEMORY, "almanac"),
    is_almanac=True,
    hub="shipped with rubricem",
    ids="id of the test questions",
)
