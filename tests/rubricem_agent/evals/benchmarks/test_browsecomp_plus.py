import json

import pytest

from rubricem_agent.evals.benchmarks.browsecomp_plus import BENCHMARK, load
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, replay
from rubricem_agent.evals.suite import rules_for
from rubricem_env.domain.trajectory import Observation, Origin, Segment, Source, Trajectory


@pytest.fixture
def case(tmp_path):
    path = tmp_path / "decrypted.jsonl"
    evidence = [{"docid": "11", "text": "t", "url": "https://one.example"}, {"docid": "12", "text": "t", "url": ""}]
    row = {"query_id": "769", "query": "Who?", "answer": "Ada", "gold_docs": [], "evidence_docs": evidence}
    path.write_text(json.dumps(row) + "\n")
    data = load(DataPaths(path), any_version=True)
    return Case(data.examples[0], data.gold["769"], Extracted("Ada L.", "given answer"))


def grader(mode="official"):
    return BENCHMARK.grader(rules_for("browsecomp_plus", mode))


@pytest.mark.parametrize(("reply", "score"), [("correct: yes\nconfidence: 90%", 1.0), ("**correct:** no", 0.0)])
def test_the_judges_verdict_is_the_score(case, reply, score):
    assert replay(grader().grade(case), lambda question: (reply,)).score == score


def test_a_missing_answer_is_wrong_and_an_unreadable_verdict_leaves_the_mean(case):
    assert replay(grader().grade(case._replace(answer=Extracted("", "no answer"))), lambda _: None).score == 0.0
    assert replay(grader().grade(case), lambda question: ("I am not sure.",)).score is None
    assert replay(grader("strict").grade(case), lambda question: ("I am not sure.",)).score == 0.0


def test_recall_counts_the_evidence_that_tools_showed_by_docid_or_url(case):
    shown = '<tool_output><snippet id="12">t</snippet><snippet id="S9">Title: https://one.example\nhttps://one.example</snippet></tool_output>'
    seen = Observation(snippet_ids=("12", "S9"), sources=(Source(), Source(title="Title: https://one.example")))
    trajectory = Trajectory(question="Who?", segments=(Segment(origin=Origin.TOOL, text=shown, observation=seen),))

    grade = replay(grader().grade(case._replace(trajectory=trajectory)), lambda question: ("correct: yes",))

    # Of the two documents 12 was shown; the address of the other stands in a page's title and text alone.
    assert grade.metrics["evidence_recall"] == 0.5
    assert "evidence_recall" not in replay(grader().grade(case), lambda question: ("correct: yes",)).metrics


def test_the_agent_sees_the_query_alone(case):
    assert case.example.prompt_text == "Who?"
    assert "Ada" not in case.example.model_dump_json()
