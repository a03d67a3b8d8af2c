"""verifiers' own command line, offline, with a model server on this machine."""

import pytest

pytest.importorskip("verifiers", reason="verifiers is not installed; run make adapter-verifiers")

from docs.adapters.prompt import prompt_of
from docs.adapters.tutor import tutored_query
from docs.adapters.verifiers_eval import evaluate
from docs.adapters.writer_server import writer_server
from docs.adapters.writers import Tutors
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Ending, Trajectory
from rubricem_env.env.view import views_of
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from tests.adapters import snippets
from tests.adapters.golden_group import GOLDEN, assert_golden_judgements
from tests.letters import LETTER
from tests.scaffolds import WRITING

LETTERS = """
from rubricem_env.adapters.session import offline_env_spec
from rubricem_env.adapters.verifiers import research_plugin
from tests.letters import BRIEF

Letters, Writer = research_plugin(offline_env_spec(queries=[BRIEF], scaffold="writing"))
__all__ = ["Letters", "Writer"]
"""
STAGES = ("plan", "research", "review", "answer")


def in_golden_order(traces):
    """The attempts come in any order; the plan, research and answer scores tell them apart."""
    order = {tuple(round(value, 6) for value in row): place for place, row in enumerate(GOLDEN["scores"])}
    return sorted(traces, key=lambda trace: order[scores_of(trace)])


def scores_of(trace):
    return tuple(round(trace["rewards"][stage]["score"], 6) for stage in STAGES)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    with serve_loopback(writer_server(Tutors())) as url:
        return in_golden_order(evaluate(url, tmp_path_factory.mktemp("eval")))


def test_the_command_line_gives_the_golden_group(traces):
    judgements = [Judgement.model_validate(trace["info"]["stage_outcomes"], strict=False) for trace in traces]
    assert_golden_judgements(judgements)


def test_stage_scores_are_named_rewards_and_their_sum_is_the_reward(traces):
    for trace, row in zip(traces, GOLDEN["scores"], strict=True):
        assert trace["ok"]
        assert sum(reward["score"] * reward["weight"] for reward in trace["rewards"].values()) == pytest.approx(
            sum(row)
        )


def test_every_turn_has_its_reward_or_none(traces):
    # The first attempt plans in turn 1, ends its research in turn 3, reviews and answers in turn 4.
    assert traces[0]["info"]["turn_rewards"] == [1.0, None, 1.0, 2.0]
    for trace, row in zip(traces, GOLDEN["scores"], strict=True):
        assert len(trace["info"]["turn_rewards"]) == sum(
            "sampled" in node and node["sampled"] for node in trace["nodes"]
        )
        assert sum(filter(None, trace["info"]["turn_rewards"])) == pytest.approx(sum(row))


def test_a_policy_that_never_ends_is_ended_by_the_limits(tmp_path):
    server = ModelServer(lambda asked: "and on")
    with serve_loopback(server) as url:
        (trace,) = evaluate(url, tmp_path, group_size=1)
    assert trace["info"]["rubricem_trajectory"]["ending"] == Ending.STALLED
    assert len(server.asked) == 2
    told, asked = server.asked[0].body["messages"]
    assert (told["role"], asked["role"]) == ("system", "user")
    assert '<call_tool name="google_search">' in told["content"]
    assert asked["content"] == prompt_of(tutored_query())
    assert scores_of(trace) == (0.0, 0.0, 0.0, 0.0)


def test_a_model_that_fails_is_an_error_on_the_trace_and_no_reward(tmp_path):
    with serve_loopback(ModelServer(lambda asked: ModelReply(status=400, text="no"))) as url:
        (trace,) = evaluate(url, tmp_path, group_size=1)
    assert not trace["ok"]
    assert trace["rewards"] == {}


def test_the_three_lines_of_the_docs_are_a_plugin(tmp_path):
    lines = snippets.snippet("verifiers")
    assert len(snippets.statements(lines)) <= 3
    (tmp_path / "my_module.py").write_text(lines, encoding="utf-8")
    with serve_loopback(writer_server(Tutors())) as url:
        traces = evaluate(url, tmp_path, plugin="my-module", path=tmp_path)
    judgements = [Judgement.model_validate(trace["info"]["stage_outcomes"], strict=False) for trace in traces]
    assert sorted(map(scores_of, traces)) == sorted(tuple(round(score, 6) for score in row) for row in GOLDEN["scores"])
    assert len(judgements) == len(GOLDEN["scores"])


def test_a_letter_is_rewarded_in_the_stages_of_writing(tmp_path):
    (tmp_path / "letters.py").write_text(LETTERS, encoding="utf-8")
    with serve_loopback(ModelServer(lambda asked: LETTER)) as url:
        (trace, *_) = evaluate(url, tmp_path, plugin="letters", path=tmp_path, group_size=1, task=0)
    assert trace["ok"]
    assert {*trace["rewards"]} <= {*WRITING.scaffold.names}
    assert trace["rewards"]["final"]["score"] > 0
    assert tuple(trace["info"]["stage_outcomes"]) == WRITING.scaffold.names


FOLDED_PLUGIN = """
from rubricem_env.adapters import offline_env_spec, research_plugin
from rubricem_env.env import ContextLimits

Taskset, Harness = research_plugin(
    offline_env_spec(system="Search.", context=ContextLimits(fold_at=1_200, fold_to=900, keep=1))
)
__all__ = ["Harness", "Taskset"]
"""


def test_a_folded_episode_is_sent_as_its_views_and_each_fold_is_a_branch_of_the_trace(tmp_path):
    (tmp_path / "folded_plugin.py").write_text(FOLDED_PLUGIN, encoding="utf-8")
    call = '<state_evaluation>s</state_evaluation><call_tool name="google_search">Tall Fox</call_tool>'
    server = ModelServer(lambda asked: call)
    with serve_loopback(server) as url:
        (trace,) = evaluate(url, tmp_path, group_size=1, plugin="folded-plugin", path=tmp_path)
    trajectory = Trajectory.model_validate(trace["info"]["rubricem_trajectory"], strict=False)
    assert trajectory.folds
    for asked, view in zip(server.asked, views_of(trajectory), strict=True):
        assert asked.body["messages"] == [{"role": "system", "content": "Search."}, *view.messages]
    parents = [node.get("parent") for node in trace["nodes"]]
    leaves = set(range(len(parents))) - set(parents)
    assert len(leaves) == len(trajectory.folds) + 1
