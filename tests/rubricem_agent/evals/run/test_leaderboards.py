"""The judges of today's leaderboards, how much judges and policies think, and judges that are gone."""

import json

import pytest

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.evals.suite import SUITE, rules_for
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.models import build_judge, build_policy
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.gemini import thinking_of
from rubricem_env.llm.wires.chat_wire import ChatWire
from rubricem_env.llm.wires.messages_wire import MessagesWire
from rubricem_env.llm.wires.responses_wire import ResponsesWire
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer


def test_the_judges_of_autumn_2026_stand_beside_the_old_ones_with_day_source_and_shift():
    race = rules_for("drb", "leaderboard")
    assert (race.judge, race.effort, race.fact_judge, race.fact_effort) == ("gpt-5.5", "medium", "gpt-5.4-mini", "low")
    assert race.since == "2026-05-11"
    second = rules_for("drb2", "leaderboard")
    assert (second.judge, second.effort, second.leaves_out) == ("gpt-5.5", "medium", ("112", "114"))
    assert rules_for("drb2", "official").judge == "gemini-2.5-pro"
    for benchmark in SUITE.values():
        if benchmark.leaderboard is not None:
            assert benchmark.leaderboard.since
            assert "github.com" in benchmark.leaderboard.source
            assert "agreement with people" in benchmark.leaderboard.shift
    with pytest.raises(ConfigError, match=r"no other judge than the official one is known of .* simpleqa"):
        rules_for("simpleqa", "leaderboard")


def test_a_judge_that_is_gone_is_told_before_the_first_call_with_the_one_of_today(make_config):
    (note,) = plan_run(make_config("drb", judges=())).notes()
    assert "gemini-2.5-pro-preview-06-05 was shut down on 2025-12-02" in note
    assert "or take --mode leaderboard, judged by gpt-5.5 since 2026-05-11" in note
    assert plan_run(make_config("drb", "leaderboard", judges=())).notes() == []


@pytest.mark.parametrize("role", ["policy", "judge"])
def test_the_effort_is_sent_by_the_side_that_it_was_set_for(run, make_config, role):
    answer = "<think>So.</think><answer>\\boxed{A}</answer>"
    policy, judge = ModelServer(lambda _: answer), ModelServer(lambda _: "A")
    with serve_loopback(policy) as at, serve_loopback(judge) as by:
        effort = {"effort": "high"} if role == "policy" else {"judge_effort": "low"}
        given = {"policy": f"openai:p@{at}/v1", "judges": (f"openai:j@{by}/v1",), "tools": "none", "limit": 1}
        manifest = run(make_config("simpleqa", **given, **effort)).scores.manifest
    sent = [asked.body.get("reasoning_effort") for asked in (*policy.asked, *judge.asked)]
    assert sent == (["high", None] if role == "policy" else [None, "low"])
    assert (manifest.agent.effort, manifest.judge_effort) == (("high", "") if role == "policy" else ("", "low"))
    for other in ("", "minimal"):
        changed = make_config("simpleqa", **given, **dict.fromkeys(effort, other))
        with pytest.raises(UsageError, match="effort"):
            run(changed)


def test_another_effort_than_the_modes_is_a_star(make_config):
    plain = plan_run(make_config("drb", "leaderboard", judges=(), policy="scripted"))
    assert plain.manifest.judge_effort == "medium"
    assert plain.manifest.label == "leaderboard, own prompts, almanac"
    other = plan_run(make_config("drb", "leaderboard", judges=(), policy="scripted", judge_effort="high"))
    assert other.manifest.label == "leaderboard*, own prompts, almanac"


def test_each_wire_says_the_effort_in_its_own_words_and_the_others_refuse_it():
    request = ChatRequest("Q", effort="low")
    assert ChatWire().body(request, [("user", "Q")])["reasoning_effort"] == "low"
    assert ResponsesWire().body(request, [("user", "Q")])["reasoning"] == {"effort": "low"}
    assert "reasoning_effort" not in ChatWire().body(ChatRequest("Q"), [("user", "Q")])
    assert "effort" not in json.dumps(MessagesWire().body(request, [("user", "Q")]))
    assert thinking_of("high").thinking_level.value == "HIGH"
    assert thinking_of("") is None
    with pytest.raises(ConfigError, match="effort is none, and Gemini's levels are minimal"):
        thinking_of("none")
    for policy in ("scripted", "anthropic:claude", "local:runs/sft"):
        with pytest.raises(ConfigError, match=r"the effort of the policy is low, and \w+ has no such setting"):
            build_policy(PolicyConfig(policy=policy, effort="low"), {"RUBRICEM_POLICY_KEY": "k"})
    with pytest.raises(ConfigError, match="the effort of the judge is low, and anthropic has no such setting"):
        build_judge(JudgeConfig(judge="anthropic:claude", effort="low"), {"RUBRICEM_JUDGE_KEY": "k"})


async def test_citations_are_checked_by_the_model_that_the_protocol_names_for_them(make_config):
    from rubricem_agent.evals.case_judge import CaseJudge
    from rubricem_agent.evals.grading import GradingQuestion

    main, fact = object(), object()
    judge = object.__new__(CaseJudge)
    judge.model, judge.fact_model = main, fact
    assert judge._model_of(GradingQuestion("race", "p")) is main
    assert judge._model_of(GradingQuestion("extract", "p", is_fact=True)) is fact
