import json

import pytest

from rubricem_agent.evals.benchmarks.own import BENCHMARK, contains, load
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.extraction import extract
from rubricem_agent.evals.grading import Case, replay
from rubricem_agent.evals.suite import rules_for
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import (
    AnswerFormat,
    Ending,
    Observation,
    Origin,
    Segment,
    Source,
    ToolStatus,
    Trajectory,
)

RULES = rules_for("own", "official")
ROW = {"question": "Which version added it?", "answer": ["3.10", "Python 3.10"], "source": "pep-0634"}


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DataPaths(path)


def attempt(answer, *, url="https://peps.example/pep-0634.rst", answer_format=AnswerFormat.EXACT):
    """An attempt that was shown one snippet, and answered."""
    shown = Observation(status=ToolStatus.OK, snippet_ids=("S_1",), sources=(Source(title="PEP 634", url=url),))
    text = '<tool_output><snippet id="S_1">PEP 634\nPython-Version: 3.10</snippet></tool_output>'
    return Trajectory(
        question=ROW["question"],
        answer_format=answer_format,
        segments=(
            Segment(origin=Origin.PROMPT, text=ROW["question"]),
            Segment(origin=Origin.POLICY, text='<call_tool name="google_search">PEP 634</call_tool>'),
            Segment(origin=Origin.TOOL, text=text, observation=shown),
            Segment(origin=Origin.POLICY, text=f"<answer>{answer}</answer>"),
        ),
        ending=Ending.ANSWERED,
    )


def graded(tmp_path, trajectory, **changes):
    data = load(written(tmp_path / "own.jsonl", {**ROW, **changes}))
    case = Case(data.examples[0], data.gold["0"], extract(trajectory, RULES), trajectory)
    return replay(BENCHMARK.grader(RULES).grade(case), lambda question: None)


def test_an_exact_answer_is_one_of_those_that_are_right(tmp_path):
    assert graded(tmp_path, attempt("\\boxed{python 3.10}")).score == 1.0
    assert graded(tmp_path, attempt("\\boxed{3.1}")).score == 0.0

    in_a_sentence = graded(tmp_path, attempt("It came with 3.10."))
    assert (in_a_sentence.score, in_a_sentence.metrics["found"]) == (0.0, 1.0)


def test_a_longer_answer_contains_one(tmp_path):
    long = {"answer_format": "long"}

    assert graded(tmp_path, attempt("It came with 3.10.", answer_format=AnswerFormat.LONG), **long).score == 1.0
    assert graded(tmp_path, attempt("It came with 3.11.", answer_format=AnswerFormat.LONG), **long).score == 0.0


def test_words_are_found_whole():
    assert contains("the answer is Guido van Rossum.", "guido van rossum")
    assert not contains("version 3.101", "3.10")
    assert not contains("van Guido Rossum", "Guido van Rossum")


def test_a_citation_counts_where_its_snippet_comes_from_the_source(tmp_path):
    cited = '<cite id="S_1">3.10</cite>'

    assert graded(tmp_path, attempt(cited)).metrics["cited"] == 1.0
    assert graded(tmp_path, attempt(cited), source=["pep-0635", "PEP-0634"]).metrics["cited"] == 1.0
    assert graded(tmp_path, attempt(cited, url="https://elsewhere.example")).metrics["cited"] == 0.0
    assert graded(tmp_path, attempt('<cite id="S_2">3.10</cite>')).metrics["cited"] == 0.0
    assert graded(tmp_path, attempt("3.10")).metrics["cited"] == 0.0
    assert "cited" not in graded(tmp_path, attempt(cited), source=None).metrics


def test_a_line_without_an_id_is_identified_by_its_number(tmp_path):
    rows = ({"query": "A?", "answers": "a"}, {"id": 7, "question": "B?", "answer": "b", "answer_format": "short"})

    data = load(written(tmp_path / "own.jsonl", *rows))

    assert [(example.id, example.prompt_text) for example in data.examples] == [("0", "A?"), ("7", "B?")]
    assert data.formats == {"0": AnswerFormat.EXACT, "7": AnswerFormat.SHORT}
    assert data.gold["0"].accepted_answers() == ("a",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "A?"}, "line 1 is malformed: at answer: field required"),
        ({"question": "A?", "answer": []}, "at least 1 item"),
        ({"question": "A?", "answer": [5]}, r"at answer\.0: input should be a valid string"),
        ({"question": "", "answer": "a"}, "at question"),
        ({"question": "A?", "answer": "a", "answer_format": "tall"}, "'exact', 'short' or 'long'"),
        ([], "should be an object"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, row, message):
    with pytest.raises(FileFormatError, match=message):
        load(written(tmp_path / "own.jsonl", row))
