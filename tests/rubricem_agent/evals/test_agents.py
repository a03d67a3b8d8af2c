"""Who answers: the almanac from end to end, memory, repeated attempts, the guidance after the question."""

import asyncio

import pytest

from rubricem_agent.build.eval_plan import plan_run
from rubricem_agent.build.evals import run_evaluation
from rubricem_agent.config import EvalConfig, Style
from rubricem_agent.evals.answers import AgentOptions, EpisodeAnswerer, Reuse, Task, seed_of, with_guidance
from rubricem_agent.evals.base import Example
from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.env.research_env import shipped_toolbox

TASK = Task(Example(id="1", prompt_text="How wide is the Tall Fox?"), AnswerFormat.EXACT, "Be brief.")


def run(**settings: object):
    return asyncio.run(run_evaluation(plan_run(EvalConfig(benchmark="almanac", **settings))))


@pytest.mark.parametrize("style", list(Style))
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


class OneLessonForEachAttempt:
    async def before(self, question, *, attempts):
        return "A LESSON " * len(attempts)


@pytest.mark.parametrize(("attempts", "shown"), [(1, "0"), (2, "1"), (3, "2")])
def test_the_last_of_several_attempts_counts_and_each_sees_what_the_earlier_ones_taught(attempts, shown):
    setting = Setting(ScriptedPolicy(lambda opening, seed: Answers()), shipped_toolbox())
    habits = AgentOptions(agent_prompt(("google_search",)), OneLessonForEachAttempt(), attempts=attempts)

    answered = asyncio.run(EpisodeAnswerer(setting, habits).answer(TASK))

    assert answered.trajectory.policy_text == f"<answer>\\boxed{{{shown}}}</answer>"
    assert answered.usage.calls == attempts


def test_guidance_follows_the_form_of_the_answer():
    assert with_guidance(Opening("rules", "question\n\nform"), "Be brief.").user == "question\n\nform\nBe brief."


def test_seeds_differ_by_example_epoch_and_attempt_and_by_nothing_else():
    seeds = {seed_of(0, TASK._replace(epoch=epoch), attempt=attempt) for epoch in (0, 1) for attempt in (0, 1)}

    assert len(seeds) == 4
    assert seed_of(0, TASK, attempt=0) in seeds


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"reuse": Reuse.CROSS}, "--bank"),
        ({"reuse": Reuse.WITHIN}, "--attempts 2"),
        ({"shard": (3, 2)}, "--shard is 3/2"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, named):
    with pytest.raises(ConfigError, match=named):
        plan_run(EvalConfig(benchmark="almanac", **settings))


def test_a_run_takes_over_what_its_parts_have_done(tmp_path):
    for number in (1, 2):
        run(policy="expert", out=tmp_path, limit=5, shard=(number, 2))

    whole = run(policy="expert", out=tmp_path, limit=5)

    assert (whole.outcome.answered, whole.scores.answered) == (0, 5)
    assert whole.scores.is_complete
