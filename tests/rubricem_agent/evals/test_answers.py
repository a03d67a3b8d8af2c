"""Who answers: the almanac from end to end, and repeated attempts."""

import asyncio
from functools import partial

import pytest

from rubricem_agent.evals.answers import answer_in_episodes, seed_of
from rubricem_agent.evals.dataset import Example
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.rollout.run import RolloutContext
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.llm.limits.limiter import LimiterProtocol, Rates, own_limiter
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.world.offline import shipped_toolbox
from rubricem_records.evaluations.logs import CaseKey
from tests.search_server import SearchReply, SearchServer

EXAMPLE = Example(id="1", prompt_text="How wide is the Tall Fox?")


def run(**settings: object):
    return asyncio.run(run_evaluation(plan_run(EvalConfig(benchmark="almanac", **settings))))


def test_the_searches_of_a_part_wait_at_the_limiters_that_it_was_given(tmp_path, monkeypatch):
    monkeypatch.setenv("SERPER_API_KEY", "k" * 20)
    plain = SearchServer(SearchReply({"organic": [{"title": "T", "link": "https://a.example", "snippet": "s"}]}))
    asked: list[str] = []

    def limiter_of(server: str, rates: Rates) -> LimiterProtocol:
        asked.append(server)
        return own_limiter(server, rates)

    with serve_loopback(plain.app) as url:
        tools = tmp_path / "tools.toml"
        tools.write_text(f'[tools]\nbackend = "web"\ngoogle_search = {{engine = "plain", url = "{url}/search"}}\n')
        config = EvalConfig(
            benchmark="almanac", policy="expert", limit=1, tools=str(tools), out=tmp_path / "run", probe=False
        )
        asyncio.run(run_evaluation(plan_run(config), limiter_of=limiter_of))
    assert set(asked) == {"google_search", "snippet_search"}
    assert plain.requests


@pytest.mark.parametrize("style", ["scaffold", "react"])
def test_the_expert_is_perfect_on_the_almanac_with_the_scaffold_and_without(tmp_path, style):
    finished = run(policy="expert", style=style, out=tmp_path)

    assert finished.scores.is_complete
    assert finished.scores.headline.score == 1.0
    assert finished.scores.endings == {"answered": 24}


def test_the_scripted_policy_quotes_and_is_caught_by_traps(tmp_path):
    scores = run(policy="scripted", out=tmp_path, limit=6).scores

    assert scores.expected == scores.headline.graded == 6
    assert scores.headline.score < 1.0
    assert scores.dollars == 0.0


def test_the_log_keeps_the_prompt_as_it_was_sent_and_no_truth(tmp_path):
    run(policy="expert", out=tmp_path, limit=1)

    line = (tmp_path / "answers.jsonl").read_text()

    assert '"origin":"prompt"' in line
    assert "implicit_needs" not in line


class Answers:
    """Answers with the number of references blocks that it has been shown."""

    def emission(self, observation: str) -> str:
        return f"<answer>\\boxed{{{observation.count('A LESSON')}}}</answer>"


async def one_lesson_for_each_attempt(question, attempts):
    return "A LESSON " * len(attempts)


@pytest.mark.parametrize(("attempts", "shown"), [(1, "0"), (2, "1"), (3, "2")])
def test_the_last_of_several_attempts_counts_and_each_sees_what_the_earlier_ones_taught(attempts, shown):
    context = RolloutContext(ScriptedPolicy(lambda opening, seed: Answers()), shipped_toolbox())
    prompt = agent_prompt(("google_search",))
    agent = partial(answer_in_episodes, context=context, prompt=prompt, references=one_lesson_for_each_attempt)

    answered = asyncio.run(agent(EXAMPLE, answer_format=AnswerFormat.EXACT, guidance="Be brief.", attempts=attempts))

    assert answered.trajectory.policy_text == f"<answer>\\boxed{{{shown}}}</answer>"
    assert answered.usage.calls == attempts


def test_seeds_differ_by_example_epoch_and_attempt_and_by_nothing_else():
    seeds = {seed_of(0, CaseKey("1", epoch), attempt=attempt) for epoch in (0, 1) for attempt in (0, 1)}

    assert len(seeds) == 4
    assert seed_of(0, CaseKey("1", 0), attempt=0) in seeds


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"reuse": "cross"}, "--bank"), ({"reuse": "within"}, "--attempts 2"), ({"shard": (3, 2)}, "--shard is 3/2")],
)
def test_settings_that_do_not_go_together_are_refused(settings, named):
    with pytest.raises(ConfigError, match=named):
        plan_run(EvalConfig(benchmark="almanac", **settings))


def test_a_run_takes_over_what_its_parts_have_done(tmp_path):
    for number in (1, 2):
        run(policy="expert", out=tmp_path, limit=5, shard=(number, 2))

    whole = run(policy="expert", out=tmp_path, limit=5)

    assert (whole.runner.answered, whole.scores.answered) == (0, 5)
    assert whole.scores.is_complete
