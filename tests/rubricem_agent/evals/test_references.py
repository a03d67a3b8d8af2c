import asyncio
from functools import partial

from rubricem_agent.evals.references import cross_references, within_references
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import Query, query_key
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.offline import shipped_toolbox

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
