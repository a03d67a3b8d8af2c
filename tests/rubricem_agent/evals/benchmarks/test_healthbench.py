from rubricem_agent.data.chatml import ChatTurn
from rubricem_agent.evals.benchmarks.healthbench import BENCHMARK, HealthBenchGold, RubricItem, question_of, render
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, replay
from rubricem_agent.evals.suite import rules_for
from rubricem_env.domain.trajectory import AnswerFormat

MET = '{"criteria_met": true}'


def item(points: float, *tags: str) -> RubricItem:
    return RubricItem(criterion="c", points=points, tags=tags)


def test_strict_mode_counts_a_missing_verdict_as_the_worst_case() -> None:
    gold = HealthBenchGold(
        id="1", prompt=(ChatTurn(role="user", content="q"),), rubrics=(item(3), item(-3), item(3)), example_tags=()
    )
    case = Case(Example(id="1", prompt_text="q"), gold, Extracted("Take a.", "given answer"))
    replies = iter([("?",), ("?",), ("5", MET)])

    grade = replay(BENCHMARK.grader(rules_for("healthbench", "strict")).grade(case), lambda question: next(replies))

    # Of 3 - 3 + 3 points the first is not met, the second is, and the third was asked twice: (-3 + 3) / 6.
    assert (grade.score, grade.unreadable) == (0.0, 3)
    assert grade.labels == {"item-2": "True"}


def test_the_judge_sees_the_points_of_an_item() -> None:
    assert item(-4).for_judge() == "[-4] c"


def a_case_of(*turns: tuple[str, str]) -> Case:
    talk = tuple(ChatTurn(role=role, content=content) for role, content in turns)
    gold = HealthBenchGold(id="1", prompt=talk, rubrics=(RubricItem(criterion="States a", points=5),), example_tags=())
    example = Example(id="1", prompt_text=render(talk) if len(talk) > 1 else talk[0].content, turns=talk)
    return Case(example, gold, Extracted("Take a.", "given answer"))


TALK = (("user", "My foot hurts."), ("assistant", "Since when?"), ("user", "A week. What now?"))


def test_dr_tulus_agent_reads_patient_and_physician_before_the_last_question():
    case = a_case_of(*TALK)

    asked = question_of(case.example, BENCHMARK.grader(BENCHMARK.drtulu))

    assert "Patient: My foot hurts.\n\nPhysician: Since when?\n\n" in asked
    assert asked.endswith("question: A week. What now?")
    assert question_of(case.example, BENCHMARK.grader(BENCHMARK.official)) == case.example.prompt_text


def test_dr_tulus_judge_sees_what_its_agent_was_asked_as_one_user_turn():
    case = a_case_of(*TALK)
    grader = BENCHMARK.grader(BENCHMARK.drtulu)

    (question,) = next(grader.grade(case))

    assert f"user: {question_of(case.example, grader)}\n\nassistant: Take a." in question.prompt


def test_a_single_turn_has_no_physician_in_it():
    asked = question_of(a_case_of(("user", "Is it bad?")).example, BENCHMARK.grader(BENCHMARK.drtulu))

    assert "Physician" not in asked
    assert asked.endswith(": Is it bad?")


def test_dr_tulu_asks_for_a_short_paragraph_where_the_benchmark_takes_any_length():
    assert BENCHMARK.answer_format is AnswerFormat.LONG
    assert BENCHMARK.drtulu.answer_format is AnswerFormat.SHORT
