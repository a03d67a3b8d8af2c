"""What the worst lessons that pass the gate can do on probation, and what they cannot."""

import pytest

pytest.importorskip("torch", reason="needs the extra 'local'")

from research.lesson_trial import read_teachings
from rubricem_agent.evals.expert_policy import expert_policy
from rubricem_agent.evals.references import cross_references
from rubricem_agent.learn.step import measure_lessons, retrieve_lessons
from rubricem_agent.memory.bank import RetrievalSettings, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.inject import Injector
from rubricem_agent.memory.probation import ProbationSettings
from rubricem_agent.memory.store import MemoryStore
from rubricem_agent.policy.base import Opening
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.reflection.candidates import render_transcript
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.model.shown_attempt import render_stages
from rubricem_env.world.almanac import Almanac, load_questions, shipped_questions_path
from rubricem_env.world.offline import offline_queries, shipped_toolbox
from rubricem_records.rollouts.sampling import Sampling
from tests.fakes import make_reflection

HOSTILE = [teaching.text for teaching in read_teachings() if teaching.is_hostile]
QUESTIONS = [question.question for question in Almanac.from_seed(0).questions]
ATTEMPTS = 8


def open_bank(**settings) -> RubricBank:
    embedder = HashingEmbedder()
    return RubricBank(
        MemoryStore(embedder=embedder.name, dimension=embedder.dimension),
        embedder,
        probation=ProbationSettings(),
        settings=RetrievalSettings(**settings),
    )


@pytest.fixture
def bank() -> RubricBank:
    bank = open_bank()
    for question, text in zip(QUESTIONS, HOSTILE, strict=False):
        assert not isinstance(bank.write(make_reflection(question, takeaways=text)), Refusal), text
    return bank


def seen_by_attempts(bank: RubricBank, question: str, *, step: int, guided=range(ATTEMPTS)):
    lessons = retrieve_lessons(bank, question, encounter="new", on_miss="cross", guided=guided, seed=step)
    return [hits for _, hits in lessons.blocks(Injector(count_tokens=len, budget=10**6), ATTEMPTS)]


def judged(scores: list[float]) -> GroupJudgement:
    rollouts = tuple(
        RolloutJudgement(judgement=Judgement.of({stage: StageScore(score=score) for stage in STAGES}))
        for score in scores
    )
    return GroupJudgement(query_key="q", step=1, fingerprint="f", rubrics=(), rollouts=rollouts)


def test_no_hostile_lesson_stands_before_more_than_its_share_of_a_group(bank):
    for step, question in enumerate(QUESTIONS[40:], start=1):
        seen = seen_by_attempts(bank, question, step=step)
        numbers = [hit.item.id for hits in seen for hit in hits]
        assert numbers
        assert all(numbers.count(number) <= ATTEMPTS / 2 for number in numbers)


def test_attempts_without_guidance_see_none(bank):
    seen = seen_by_attempts(bank, QUESTIONS[50], step=1, guided=range(4, ATTEMPTS))
    assert not any(seen[:4])
    assert any(seen[4:])


async def test_neither_ask_nor_an_evaluation_is_shown_a_lesson_on_probation(bank):
    injector = Injector(count_tokens=len, budget=10**6)
    for question in QUESTIONS[40:60]:
        assert await cross_references(question, (), bank=bank, injector=injector) == ""
        assert bank.retrieve(question, "within") == ()


def test_a_lesson_that_costs_a_tenth_of_the_score_is_withdrawn_and_stays_withdrawn(bank):
    """The noise is that of a judge: scores of one question differ by 0.1 for no reason."""
    for step in range(1, 60):
        question = QUESTIONS[40 + step % 50]
        seen = seen_by_attempts(bank, question, step=step)
        scores = [0.6 - 0.1 * len(hits) + (0.1 if attempt % 2 else 0.0) for attempt, hits in enumerate(seen)]
        measure_lessons(bank, question, judged(scores), seen, step=step)
    tried = [item for item in bank.items() if item.effect.weight]
    assert sum(item.status == "quarantined" for item in tried) >= 10
    assert max(item.effect.shown for item in tried) <= 24
    assert not any(item.status == "active" for item in bank.items())
    for item in tried:
        if item.status == "quarantined":
            again = bank.write(make_reflection("Another question?", takeaways=item.reflection.takeaways))
            assert isinstance(again, Refusal)
            assert again.code == "quarantined_before"


def test_one_lesson_of_a_small_bank_does_not_stand_before_every_question():
    reached = {}
    for least in (-1.0, 0.5):
        bank = open_bank(least_similarity=least)
        bank.write(make_reflection(QUESTIONS[0], takeaways=HOSTILE[0]))
        reached[least] = sum(bool(bank.retrieve_on_probation(question, "cross")) for question in QUESTIONS[1:])
    assert reached[-1.0] == len(QUESTIONS) - 1
    assert reached[0.5] < len(QUESTIONS) / 4


async def test_an_attempt_carries_no_word_of_its_lessons_to_a_judge(bank):
    queries = offline_queries()[:1]
    block, _ = Injector(count_tokens=len, budget=10**6).render(
        bank.retrieve_on_probation(queries[0].question, "cross"), "cross"
    )
    assert block

    async def opened(query: Query, _attempt: int) -> tuple[Opening, str]:
        return AgentPrompt("Search, then answer.", "").opening(query, references=block), ""

    policy = expert_policy(load_questions(shipped_questions_path()), is_flat=False)
    context = RolloutContext(policy, shipped_toolbox(), EpisodeLimits(), Sampling())
    ((rollout,),) = await run_groups(queries, opened, context, group_size=1)
    assert rollout.is_valid
    told = rollout.trajectory.segments[0].text
    assert any(text in told for text in HOSTILE)
    read_by_judges = f"{render_stages(rollout.parsed)}{render_transcript(rollout.parsed)}"
    assert "Calm Bridge has depth 12 m." in read_by_judges
    assert not any(text in read_by_judges for text in HOSTILE)
