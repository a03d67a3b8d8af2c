"""Who answers: the almanac from end to end, repeated attempts, memory, and files of answers."""

import asyncio
from functools import partial

import pytest

from rubricem_agent.evals.answers import answer_in_episodes, seed_of
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.given_answers import GivenAnswers
from rubricem_agent.evals.records import AnswerRecord, CaseKey
from rubricem_agent.evals.references import cross_references, within_references
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.judgement import Reflection
from rubricem_env.domain.trajectory import AnswerFormat, Query, query_key
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.limits import LimiterProtocol, Rates, own_limiter
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.render import estimate_tokens
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
            benchmark="almanac", policy="expert", limit=1, tools=tools, out=tmp_path / "run", probe=False
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


QUESTION = "How wide is the river Tall Fox?"
INJECTOR = Injector(count_tokens=estimate_tokens)


def empty_bank() -> RubricBank:
    return RubricBank.in_memory(HashingEmbedder())


def lesson(question: str) -> Reflection:
    return Reflection(
        query_key=query_key(question),
        question=question,
        rubrics="States the width with its unit and the season in which it was measured.",
        takeaways="Look for the convention of the domain before the figures, since the figures depend on it.",
    )


class Researcher:
    """Answers as an agent, and reflects where it is asked to."""

    def emission(self, observation: str) -> str:
        if "# The attempt" in observation:
            given = lesson(QUESTION)
            return (
                f"<reflection_rubrics>{given.rubrics}</reflection_rubrics>\n"
                f"<reflection_takeaways>{given.takeaways}</reflection_takeaways>"
            )
        return "<answer>60 m</answer>"


POLICY = ScriptedPolicy(lambda opening, seed: Researcher())


def first_attempt():
    opening = agent_prompt(("google_search",)).opening(Query(question=QUESTION))
    return asyncio.run(
        run_episode(Attempt(Query(question=QUESTION), opening), RolloutContext(POLICY, shipped_toolbox()))
    )


def test_cross_shows_a_similar_questions_lesson_and_writes_nothing():
    bank = empty_bank()
    bank.write(lesson("How wide is the river Calm Otter at its mouth in summer?"))

    block = asyncio.run(cross_references(QUESTION, (), bank=bank, injector=INJECTOR))

    assert "Look for the convention of the domain" in block
    assert len(bank) == 1


def test_cross_shows_nothing_where_the_bank_is_empty():
    assert asyncio.run(cross_references(QUESTION, (), bank=empty_bank(), injector=INJECTOR)) == ""


def within(*attempts) -> str:
    open_reflector = partial(Reflector, POLICY, RulesJudge())
    return asyncio.run(
        within_references(QUESTION, attempts, open_bank=empty_bank, open_reflector=open_reflector, injector=INJECTOR)
    )


def test_within_shows_nothing_before_the_first_attempt():
    assert within() == ""


def test_within_shows_the_reflection_on_the_last_attempt():
    block = within(first_attempt())

    assert block.startswith("<reference_examples>")
    assert "States the width with its unit" in block


IDS = "row numbers from 0"


def given(**answers: str) -> GivenAnswers:
    return GivenAnswers("file:a.jsonl", {name.lstrip("n"): answer for name, answer in answers.items()})


def record(example_id: str, answer: str, **fields: object) -> AnswerRecord:
    return AnswerRecord(benchmark="simpleqa", mode="official", id=example_id, epoch=0, given=answer, **fields)


def test_ids_that_count_from_one_are_refused_by_the_last_of_them():
    with pytest.raises(FileFormatError) as refusal:
        given(n1="a", n2="b").refuse_unknown(["0", "1"], ids=IDS)

    assert str(refusal.value) == (
        "file:a.jsonl has 1 of 2 answers to no example, the first to '2'; the ids of this benchmark are: row numbers "
        "from 0, here '0' to '1'. Correct the ids, or leave these lines out."
    )


def test_an_answer_that_is_gone_has_changed_as_well():
    with pytest.raises(UsageError, match="example 1 was b and is now not there"):
        given(n0="a").refuse_changed([record("0", "a"), record("1", "b")])


def test_a_failed_attempt_holds_nobody_to_its_answer():
    given(n0="a").refuse_changed([record("0", "", failure="no answer")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("yes", "line 1 is not JSON"),
        ('{"id": 1, "text": "yes"}', "at answer: field required"),
        ('{"id": 1, "answer": 5}', "at answer: .*got 5"),
    ],
)
def test_a_file_that_is_no_answers_file_is_refused_with_the_form_of_one(tmp_path, text, said):
    path = tmp_path / "a.jsonl"
    path.write_text(text)

    with pytest.raises(FileFormatError, match=said) as refusal:
        GivenAnswers.read(path)

    assert str(refusal.value).endswith('Write one line for each example: {"id": ..., "answer": ...}.')
