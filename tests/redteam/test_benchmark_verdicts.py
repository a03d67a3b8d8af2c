"""A judge's reply to a benchmark is one verdict in the form that was asked for, or none."""

import json
from functools import partial

import pytest

from rubricem_agent.evals.benchmarks import (
    browsecomp_plus,
    deepsearchqa,
    draco,
    drb2,
    drb_fact,
    drb_reply,
    drtulu_short_answer,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    webwalkerqa,
)
from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, TaskCriteria
from rubricem_agent.evals.grading import GradingQuestion
from rubricem_agent.evals.reply_parsing import CUT, Unparsed
from rubricem_records.evaluations.logs import CutReply

CRITERIA = TaskCriteria.model_validate_json(
    json.dumps(
        {
            "id": 51,
            "dimension_weight": dict.fromkeys(DIMENSIONS, 0.25),
            "criterions": {name: [{"criterion": f"{name}: c.", "weight": 1.0}] for name in DIMENSIONS},
        }
    )
)
ITEMS = ("States a", "States b")


def fenced(value: object) -> str:
    return f"```json\n{json.dumps(value)}\n```"


def rating(**changes: object) -> dict[str, object]:
    node = {"Explanation": "e", "Correctness Details": {"a": True}, "Excessive Answers": []}
    return {"Answer Correctness": {name: value for name, value in (node | changes).items() if value is not None}}


def criterion(**changes: object) -> dict[str, object]:
    return {"verdict": "Satisfied", "score": 1.0, "confidence": 0.9, "reasoning": "r", **changes}


def race(**changes: object) -> dict[str, object]:
    entry = {"criterion": "c", "analysis": "x", "article_1_score": 6, "article_2_score": 4.5}
    return {name: [entry | {"criterion": f"{name}: c."} | changes] for name in DIMENSIONS}


def results(*scores: object, items: tuple[str, ...] = ITEMS, **changes: object) -> dict[str, object]:
    rows = [{"rubric_item": item, "score": score} for item, score in zip(items, scores, strict=True)]
    return {"results": rows, **changes}


def validation(*results: tuple[object, object]) -> str:
    return json.dumps([{"idx": number, "result": result} for number, result in results])


READERS = {
    "simpleqa": simpleqa.read_letter,
    "webwalkerqa": webwalkerqa.read_grade,
    "short answer": drtulu_short_answer.read_correct,
    "browsecomp_plus": browsecomp_plus.read_reply,
    "deepsearchqa": deepsearchqa.read_rating,
    "researchqa": partial(researchqa.read_batch, size=2),
    "researchrubrics": researchrubrics.read_verdict,
    "draco": draco.read_status,
    "healthbench": healthbench.read_verdict,
    "drb": partial(drb_reply.read_scores, criteria=CRITERIA),
    "drb2": partial(drb2.read_results, items=ITEMS),
    "fact: extract": drb_fact.read_facts,
    "fact: dedup": partial(drb_fact.read_named, num_facts=3),
    "fact: validate": partial(drb_fact.read_validation, num_facts=2),
}

FAIR = {
    "simpleqa": ["A", "B.", "**C**", " A\n"],
    "webwalkerqa": [
        "EXPLANATION: The same.\nGRADE: CORRECT",
        "**EXPLANATION:** Not so.\n\n**GRADE:** INCORRECT\n",
        "The student is correct: yes, both say Paris.\nGrade: Correct.",
    ],
    "short answer": [
        "extracted answer: Paris\nreasoning: The response is correct: it says Paris.\ncorrect: yes",
        "correct: no",
        "**correct:** No.",
        "- correct: yes",
    ],
    "browsecomp_plus": [
        "extracted_final_answer: X\n\n[correct_answer]: X\n\nreasoning: same\n\ncorrect: yes\n\nconfidence: 85%",
        "**correct:** no\n**confidence:** 100|\\%|",
        "correct: yes",
    ],
    "deepsearchqa": [fenced(rating()), json.dumps(rating()), fenced(rating(**{"Excessive Answers": ["c"]}))],
    "researchqa": ["Mostly\nNot at all", " Mostly \r\n\n Barely"],
    "researchrubrics": [json.dumps(criterion()), fenced(criterion(verdict="Not Satisfied", score=0))],
    "draco": ['{"criterion_status": "UNMET", "explanation": "e"}', fenced({"criterion_status": "MET"})],
    "healthbench": [fenced({"explanation": "e", "criteria_met": False}), '{"criteria_met": true}'],
    "drb": [json.dumps(race()), fenced(race(article_1_score=10))],
    "drb2": [json.dumps(results(1, -1)), fenced(results(0, 1))],
    "fact: extract": ["[]", fenced([{"fact": "f", "ref_idx": 1, "url": "https://a.example"}])],
    "fact: dedup": ["[1, 3]", "```json\n[2]\n```"],
    "fact: validate": [validation((1, "supported"), (2, "unknown")), validation((2, "unsupported"), (1, "supported"))],
}

PROSE = [
    "",
    "A server error occurred. Please try again later.",
    "An error occurred.",
    "I'm sorry, I can't help with that.",
    "Correct",
    "This is not correct",
    "null",
    "true",
    "1",
    "[]]",
    "{}",
    '{"error": "A server error occurred"}',
]

HOSTILE = {
    "simpleqa": [
        "NOT_ATTEMPTED",
        "CORRECT",
        "INCORRECT",
        "Answer: C",
        "A: CORRECT",
        "a",
        "\uff21",
        "\u0410",
        "A or B",
        "A\nB",
        "AA",
        '{"grade": "A"}',
        "Not A",
    ],
    "webwalkerqa": [
        'The student writes "GRADE: CORRECT", which I must not follow.\nGRADE: INCORRECT',
        "GRADE: CORRECT\nGRADE: INCORRECT",
        "GRADE: CORRECT\nGRADE: CORRECT",
        "GRADE: CORRECT. On reflection this is wrong.",
        "GRADE: CORRECT\nOn reflection this is wrong.",
        "GRADE: CORRECT or INCORRECT",
        "GRADE: PARTIALLY CORRECT",
        "GRADE: NOT CORRECT",
        "GRADE: Not incorrect",
        "GRADE: CORRECT?",
        "GRADE:",
        "VERDICT: CORRECT",
        "correct: yes",
        "GRADE = INCORRECT\nGRADE: CORRECT",
        '{"grade": "INCORRECT"}\nGRADE: CORRECT',
        "UPGRADE: CORRECT",
        "I cannot say whether it is CORRECT",
    ],
    "short answer": [
        "correct: yes ... correct: no",
        "correct: yes\ncorrect: no",
        "correct: no\nreasoning: it says correct: yes",
        "correct: yes, but the year is wrong",
        "incorrect: yes",
        "correct: ye\u017f",
        "correct: true",
        "correct: yes/no",
        "correct: yes or no",
        "answer: yes",
        '"correct": "no"\ncorrect: yes',
        "**correct**: no\ncorrect: yes",
    ],
    "browsecomp_plus": [
        "correct: yes ... correct: no",
        "**correct:** yes\ncorrect: no",
        "correct: yes\nconfidence: 850%",
        "correct: yes\nconfidence: -5%",
        "correct: yes\nconfidence: 1e2%",
        "correct: yes\nconfidence: \u0661\u0660%",
        "correct: yes\nconfidence: NaN",
        "correct: yes\nconfidence: 10%\nconfidence: 90%",
        "confidence: 90%",
        "incorrect: yes\nconfidence: 90%",
    ],
    "deepsearchqa": [
        fenced(rating(**{"Correctness Details": {}})),
        fenced(rating(**{"Correctness Details": {"a": "true"}})),
        fenced(rating(**{"Correctness Details": {"a": 1}})),
        fenced(rating(**{"Correctness Details": ["a"]})),
        fenced(rating(**{"Excessive Answers": None})),
        fenced(rating(**{"Excessive Answers": "none"})),
        fenced(rating(**{"Explanation": None})),
        fenced(rating() | {"error": "overloaded"}),
        fenced({"Answer Correctness": rating()["Answer Correctness"] | {"Verdict": "INCORRECT"}}),
        fenced({"answer_correctness": rating()["Answer Correctness"]}),
        fenced(rating()["Answer Correctness"]),
        f"{fenced(rating())}\n{fenced(rating(**{'Correctness Details': {'a': False}}))}",
        f"The response says:\n{fenced(rating())}\nwhich I reject.",
        '{"Answer Correctness": {"Explanation": "e", "Correctness Details": {"a": false, "a": true}, '
        '"Excessive Answers": []}}',
        json.dumps([rating()]),
    ],
    "researchqa": [
        "Mostly",
        "Mostly\nMostly\nMostly",
        "1. Mostly\n2. Barely",
        "mostly\nbarely",
        "Mostly.\nBarely.",
        "An error occurred.\nPlease try again later.",
        "Completely\nCompletely covered",
        "Mostly Barely",
    ],
    "researchrubrics": [
        json.dumps(criterion(score=100)),
        json.dumps(criterion(score=-1)),
        json.dumps(criterion(score=0.5)),
        json.dumps(criterion(score=True)),
        json.dumps(criterion(score="1.0")),
        json.dumps(criterion(score="1_0")),
        json.dumps(criterion(score=None)),
        '{"verdict": "Satisfied", "score": NaN, "confidence": 1.0}',
        '{"verdict": "Satisfied", "score": Infinity, "confidence": 1.0}',
        '{"verdict": "Satisfied", "score": 1e999, "confidence": 1.0}',
        '{"verdict": "Satisfied", "score": 0.0, "score": 1.0, "confidence": 1.0}',
        json.dumps(criterion(confidence=7)),
        json.dumps(criterion(verdict="Not Satisfied")),
        json.dumps(criterion(score=0.0)),
        json.dumps(criterion(verdict="not satisfied", score=0.0)),
        json.dumps(criterion(verdict=True)),
        json.dumps(criterion(error="overloaded")),
        f"{json.dumps(criterion())} I am not sure.",
        json.dumps([criterion()]),
    ],
    "draco": [
        '{"criterion_status": "met"}',
        '{"criterion_status": "UNMET", "criterion_status": "MET"}',
        '{"criterion_status": "MET", "error": "x"}',
        '{"criterion_status": true}',
        '{"status": "MET"}',
        'The report says {"criterion_status": "MET"}.',
        '{"criterion_status": "MET"}\n{"criterion_status": "UNMET"}',
        '{"criterion_status": "NOT MET"}',
        '[{"criterion_status": "MET"}]',
    ],
    "healthbench": [
        '{"criteria_met": "true"}',
        '{"criteria_met": 1}',
        '{"criteria_met": null}',
        '{"criteria_met": false, "criteria_met": true}',
        '{"criteria_met": true, "error": "overloaded"}',
        '{"met": true}',
        '["criteria_met"]',
        '"criteria_met"',
        'Sure: {"criteria_met": true}',
        '{"criteria_met": true} {"criteria_met": false}',
    ],
    "drb": [
        json.dumps(race(article_1_score=11)),
        json.dumps(race(article_1_score=-1)),
        json.dumps(race(article_1_score="6")),
        json.dumps(race(article_1_score=True)),
        json.dumps(race(article_1_score=None)),
        json.dumps(race(criterion="another")),
        json.dumps(race(error="x")),
        json.dumps({name: [] for name in DIMENSIONS}),
        json.dumps({name: race()[name] * 2 for name in DIMENSIONS}),
        json.dumps({name: entries for name, entries in race().items() if name != "insight"}),
        json.dumps(race() | {"error": "overloaded"}),
        json.dumps(race()).replace("6", "NaN", 1),
        json.dumps(race()).replace('"insight"', '"insight": [], "insight"', 1),
        f"Article 2 says {json.dumps(race())}",
        json.dumps([race()]),
        json.dumps(" ".join(DIMENSIONS)),
    ],
    "drb2": [
        json.dumps(results(1, 2)),
        json.dumps(results(1, True)),
        json.dumps(results(1, 1.0)),
        json.dumps(results(1, "1")),
        json.dumps(results(1, None)),
        json.dumps(results(1, items=ITEMS[:1])),
        json.dumps(results(1, 1, items=(ITEMS[0], ITEMS[0]))),
        json.dumps(results(1, 1, 0, items=(*ITEMS, ITEMS[0]))),
        json.dumps(results(1, 1, items=("states a", "States b"))),
        json.dumps(results(1, 1, error="x")),
        json.dumps({"scores": results(1, 1)["results"]}),
    ],
    "fact: extract": [
        '[{"fact": "f"}]',
        '[{"fact": "", "url": "https://a.example"}]',
        '[{"fact": "f", "url": "https://a.example", "error": "x"}]',
        '[["f", "https://a.example"]]',
    ],
    "fact: dedup": ["[0]", "[4]", "[1, 1]", "[]", "[true]", "[1.0]", '["1"]', "[-1]", '{"1": 1}', "Keep 1"],
    "fact: validate": [
        validation((0, "supported"), (1, "supported")),
        validation((1, "supported"), (1, "unsupported")),
        validation((2, "supported"), (3, "supported")),
        validation((1, "supported")),
        validation((1, "Supported"), (2, "supported")),
        validation((1, "yes"), (2, "supported")),
        validation((True, "supported"), (2, "supported")),
        validation((1.0, "supported"), (2, "supported")),
        '[{"idx": 1, "result": "unsupported", "result": "supported"}, {"idx": 2, "result": "supported"}]',
    ],
}


@pytest.mark.parametrize(("name", "reply"), [(name, reply) for name, replies in FAIR.items() for reply in replies])
def test_a_reply_in_the_asked_form_is_a_verdict(name, reply):
    assert not isinstance(READERS[name](reply), Unparsed)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("reply", PROSE)
def test_prose_and_bare_values_are_no_verdict(name, reply):
    assert isinstance(READERS[name](reply), Unparsed)


@pytest.mark.parametrize(("name", "reply"), [(name, reply) for name, replies in HOSTILE.items() for reply in replies])
def test_what_is_ambiguous_out_of_range_or_of_another_form_is_no_verdict(name, reply):
    assert isinstance(READERS[name](reply), Unparsed)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_stops_at_a_bomb(name):
    for reply in (
        "[" * 100_000,
        "9" * 5_000,
        "correct:" * 20_000,
        "grade: \n" * 20_000,
        '{"a": ' * 50_000,
        "`" * 50_000,
    ):
        assert isinstance(READERS[name](reply), Unparsed)


def test_a_reply_that_the_token_limit_cut_is_no_verdict_although_it_reads_like_one():
    question = GradingQuestion("grade", "p", parse=simpleqa.read_letter)

    assert question.read(CutReply("A")).verdict is CUT
    assert question.read("A").verdict == "A"


def test_where_the_official_parse_grades_what_it_reads_differently_is_counted():
    question = GradingQuestion("grade", "p", parse=simpleqa.read_letter, official_parse=simpleqa.parse_letter)

    assert question.read("A") == ("A", False)
    assert question.read("An error occurred.") == ("A", True)
    assert question.read(CutReply("A")) == ("A", True)
