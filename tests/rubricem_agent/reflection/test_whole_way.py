"""A real episode, the rules judge, a scripted policy: from an attempt to the prompt of the next one."""

import asyncio

import pytest

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.reflection.reflector import Reflector, judged_attempts
from rubricem_agent.wiring.memory import build_bank, build_injector
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.testing.episodes import DEMO_QUERY, run_scripted_episode
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.offline import shipped_toolbox

LESSONS = (
    "Be thorough.",
    "<reflection_rubrics>Critical Requirements: gives the width of Amber Badger and of Tall Fox from the current "
    "edition. Pitfalls: a figure from a stale edition.</reflection_rubrics><reflection_takeaways>Search for the "
    "reporting convention before comparing two figures.</reflection_takeaways>",
    "<reflection_rubrics>Be good.</reflection_rubrics><reflection_takeaways>Be careful.</reflection_takeaways>",
)
CONFIG = BankConfig(embedder="hashing")


class Author:
    def __init__(self, seed):
        self._text = LESSONS[seed % len(LESSONS)]

    def emission(self, observation):
        return self._text


@pytest.fixture
async def group():
    episode = await run_scripted_episode(shipped_toolbox(), query=DEMO_QUERY)
    attempts = Group.of(DEMO_QUERY, [episode.trajectory])
    judged = await StepJudge(RulesJudge(), RubricBuffer()).judge_group(attempts, step=1)
    return judged_attempts(attempts, judged)


async def test_the_lesson_of_one_attempt_stands_before_the_question_of_the_next(group):
    bank = build_bank(CONFIG)
    source = ScriptedPolicy(lambda opening, seed: Author(seed))
    outcome = await Reflector(source, RulesJudge(), bank).reflect(group, step=1)
    assert len(outcome.scored) == 8
    assert outcome.item is not None
    assert outcome.item.reflection.takeaways.startswith("Search for the reporting convention")
    found = bank.retrieve(DEMO_QUERY.question, "within")
    block, shown = build_injector(CONFIG, estimate_tokens).render(found, "within")
    assert "Search for the reporting convention" in block
    assert shown == found


async def test_work_launched_again_after_a_kill_leaves_the_same_bank(group, tmp_path):
    source = ScriptedPolicy(lambda opening, seed: Author(seed))
    unbroken, resumed = build_bank(CONFIG), build_bank(CONFIG)
    for bank in (unbroken, resumed):
        await Reflector(source, RulesJudge(), bank).reflect(group, step=1)
    save_snapshot(resumed, tmp_path / "bank.npz", step=1)
    # Killed in step 2, after its reflection was written; resumed from step 1, where it is launched again.
    await Reflector(source, RulesJudge(), resumed).reflect(group, step=2)
    load_snapshot(resumed, tmp_path / "bank.npz", step=1)
    for bank in (unbroken, resumed):
        await Reflector(source, RulesJudge(), bank).reflect(group, step=2)
    assert resumed.items() == unbroken.items()


async def test_questions_reflected_on_at_once_do_not_disturb_each_other(group):
    bank = build_bank(CONFIG)
    source = ScriptedPolicy(lambda opening, seed: Author(seed))
    reflector = Reflector(source, RulesJudge(), bank)
    outcomes = await asyncio.gather(*(reflector.reflect(group, step=step) for step in range(1, 9)))
    assert all(outcome.item is not None for outcome in outcomes)
    assert len(bank) == 1
    assert [item.id for item in bank.items()] == list(range(1, 9))
