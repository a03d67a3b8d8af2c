"""2WikiMultihopQA: exact match and token F1, or DR Tulu's judge.

Data files are the official JSON array or DR Tulu's JSON Lines.
"""

from pydantic import Field

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.benchmarks.answer_overlap import score_answer
from rubricem_agent.evals.benchmarks.drtulu_short_answer import yes_no_grader
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import assemble, json_array, load_short_form, read_row, read_utf8
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, mean_metrics
from rubricem_agent.evals.rules import GPT, SHORT_GUIDANCE, drtulu_rules, official_rules, paper_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

EvidenceTriple = tuple[Text, Text, Text]
"""Subject, relation and object, as texts or as Wikidata ids."""
SupportingFact = tuple[Text, int | Text]
"""The title of an article and the number of the sentence in it."""


class TwoWikiGold(Gold):
    """A row of the official file; a recorded case has the gold side alone."""

    id: Text = Field(validation_alias="_id", min_length=1)
    question: Text | None = Field(default=None, min_length=1)
    answer: Text = Field(min_length=1)
    answer_id: Text | None = None
    supporting_facts: tuple[SupportingFact, ...]
    evidences: tuple[EvidenceTriple, ...]
    evidences_id: tuple[EvidenceTriple, ...] = ()

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.answer,)


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """The official array, or DR Tulu's lines, identified by the first character.

    No official row count or hash is known of the array.
    """
    path = required(paths.path, "the benchmark twowiki")
    if not read_utf8(path).lstrip().startswith("["):
        return load_short_form(path, any_version=any_version, num_rows=1000)
    elements = json_array(path)
    rows = [read_row(element, TwoWikiGold) for element in elements]
    examples = [Example(id=row.id, prompt_text=row.question) for row in rows if row.question]
    for element, row in zip(elements, rows, strict=True):
        if row.question is None:
            raise FileFormatError(f"{element.where}: the field question is missing. Download the official file.")
    return assemble(path, examples, gold=rows)


def exact_match_grade(case: Case, grader: Grader) -> Asking[Grade]:
    """2WikiMultihopQA's own scorer: exact match (the headline) and token F1, no judge."""
    score = score_answer(case.answer.text, case.gold.accepted_answers())
    yield ()
    return Grade(score.em, score.em, metrics=score._asdict())


def make_grader(rules: Rules) -> Grader:
    """The official strings, or DR Tulu's judge."""
    if rules.is_drtulu:
        return yes_no_grader(rules)
    return Grader(
        rules, exact_match_grade, "em", lambda grades, rules: mean_metrics(grades) or {"em": None}, is_binary=True
    )


DRTULU = drtulu_rules(official_rules(GPT, tries=1), max_output_tokens=1000)
BENCHMARK = Benchmark(
    name="twowiki",
    title="2Wiki",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=make_grader,
    official=official_rules(""),
    drtulu=DRTULU,
    # The paper judges by a model; the official score is exact match.
    paper=paper_rules(DRTULU, size=1000),
    hub="github.com/Alab-NII/2wikimultihop",
    guidance=SHORT_GUIDANCE,
    ids="_id of the official file; row numbers from 0 of DR Tulu's",
)
