"""FACT, question by question, without a judge."""

import json

from rubricem_agent.evals.benchmarks.drb import BENCHMARK
from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, DrbGold, TaskCriteria
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, Grader, replay
from rubricem_agent.evals.suite import rules_for
from rubricem_env.domain.trajectory import Observation, Origin, Segment, Source, Trajectory
from rubricem_records.evaluations.rules import EvaluationMode

ARTICLE = "An article with a claim. " * 10
A, B = "https://a.example", "https://b.example"
CRITERIA = TaskCriteria.model_validate_json(
    json.dumps(
        {
            "id": 51,
            "dimension_weight": dict.fromkeys(DIMENSIONS, 0.25),
            "criterions": {name: [{"criterion": "c", "weight": 1.0}] for name in DIMENSIONS},
        }
    )
)


def case(text: str = ARTICLE) -> Case:
    gold = DrbGold(id="51", prompt="t", language="en", criteria=CRITERIA, reference=ARTICLE)
    return Case(Example(id="51", prompt_text="Write it."), gold, Extracted(text, "given answer"))


def answer(question):
    """Three facts from two pages: one is a repetition, one supported, one not."""
    facts = [{"fact": "f1", "url": A}, {"fact": "f1 again", "url": A}, {"fact": "f2", "url": B}]
    replies = {
        "clean": ARTICLE,
        "race": json.dumps(
            {name: [{"criterion": "c", "article_1_score": 8, "article_2_score": 2}] for name in DIMENSIONS}
        ),
        "extract": json.dumps(facts),
        f"dedup {A}": "[1]",
        f"page {A}": "The page says f1.",
        f"page {B}": "",
        f"validate {A}": '[{"idx": 1, "result": "supported"}]',
        f"validate {B}": '[{"idx": 1, "result": "unsupported"}]',
    }
    return (replies[question.key],)


def grader(*, with_fact: bool = True, mode: EvaluationMode = "official") -> Grader:
    make = BENCHMARK.fact_grader if with_fact else BENCHMARK.grader
    return make(rules_for("drb", mode))


def test_race_and_fact_stand_beside_each_other():
    grade = replay(grader().grade(case()), answer)

    totals = grader().total([grade])

    # RACE 8 / (8 + 2); of two facts that were kept one is supported; one task cites.
    assert totals["overall_score"] == 0.8
    assert totals["fact:citation_accuracy"] == 0.5
    assert totals["fact:effective_citations"] == 1.0


def test_a_page_that_cannot_be_read_is_judged_as_such():
    asked = []

    def note(question):
        asked.append(question)
        return answer(question)

    replay(grader().grade(case()), note)

    validated = next(question for question in asked if question.key == f"validate {B}")
    assert "scrape failed" in validated.prompt


def test_weights_never_reach_the_judge():
    asked = []

    def note(question):
        asked.append(question)
        return answer(question)

    replay(grader(with_fact=False).grade(case()), note)

    assert [question.key for question in asked] == ["clean", "race"]
    assert "0.25" not in asked[1].prompt


def test_an_article_too_short_after_cleaning_has_no_score_and_strictly_a_zero():
    official = replay(grader(with_fact=False).grade(case()), lambda question: ("gone",))
    strict = replay(grader(with_fact=False, mode="strict").grade(case()), lambda question: ("gone",))

    assert (official.score, strict.score) == (None, 0.0)
    assert "fewer than 100 characters" in official.excluded


def test_dr_tulu_checks_citations_against_the_snippets_that_its_tools_showed():
    shown = '<tool_output>\n<snippet id="S_1">Fox | https://a.example\nf1 holds.</snippet>\n</tool_output>'
    seen = Observation(snippet_ids=("S_1",), sources=(Source(title="Fox", url=A),))
    cited = f'<answer>{ARTICLE}<cite id="S_1">f1</cite> and <cite id="S_9">never shown</cite></answer>'
    segments = (
        Segment(origin=Origin.PROMPT, text="Write it."),
        Segment(origin=Origin.TOOL, text=shown, observation=seen),
        Segment(origin=Origin.POLICY, text=cited),
    )
    asked = []

    def note(question):
        asked.append(question)
        return answer(question)

    attempt = case()._replace(trajectory=Trajectory(question="Write it.", segments=segments))
    grade = replay(grader(mode="drtulu").grade(attempt), note)

    # No extraction and no page is read: the one snippet that was shown is the page.
    assert [question.key for question in asked] == ["clean", "race", f"validate {A}"]
    assert "f1 holds." in asked[-1].prompt
    assert list(grade.record["citations_deduped"]) == [A]


def test_a_report_that_cites_nothing_has_no_fact_numbers():
    replies = {"clean": ARTICLE, "extract": "[]"}
    grade = replay(grader().grade(case()), lambda question: (replies.get(question.key) or answer(question)[0],))

    totals = grader().total([grade])

    assert totals["fact:citation_accuracy"] is None
    assert totals["overall_score"] == 0.8


def test_prose_in_place_of_facts_or_verdicts_on_a_page_is_counted_as_unreadable():
    prose = {"extract": "Service overloaded", f"validate {A}": "Service overloaded"}

    def replies(*keys: str):
        return lambda question: (prose[question.key] if question.key in keys else answer(question)[0],)

    assert replay(grader().grade(case()), answer).unreadable == 0
    assert replay(grader().grade(case()), replies("extract")).unreadable == 1
    assert replay(grader().grade(case()), replies(f"validate {A}")).unreadable == 1
