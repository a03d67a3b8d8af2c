"""The deeper almanac: what ten calls and an unfolded context cannot answer, and a folded one can."""

import asyncio

import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.episodes import play_turns
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import to_jsonl
from rubricem_env.world.deep import DEEP_HOPS, deep_almanac
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.judge import true_quality
from rubricem_env.world.offline import query_of

CONTEXT = ContextLimits(fold_at=1_600, fold_to=1_000, keep=1)
LONG = EpisodeLimits(max_calls=100, max_turns=110, max_tokens=100_000)


@pytest.fixture(scope="module")
def world():
    return deep_almanac(0)


@pytest.fixture(scope="module")
def toolbox(world):
    return offline_toolbox(Corpus(world.documents))


def play(toolbox, question, limits, context=ContextLimits()):  # noqa: B008
    """The expert's attempt."""
    episode = Episode(query_of(question), prompt=question.question, limits=limits, context=context)
    return asyncio.run(play_turns(episode, toolbox, AlmanacTeacher(question, max_searches=99).turn))


def test_the_same_seed_gives_the_same_world_and_another_one_another(world):
    again, other = deep_almanac(0), deep_almanac(1)
    assert to_jsonl(again.documents) == to_jsonl(world.documents)
    assert to_jsonl(again.questions) == to_jsonl(world.questions)
    assert to_jsonl(other.documents) != to_jsonl(world.documents)


def test_a_chain_has_six_to_ten_hops_of_two_searches_and_meets_no_entity_twice(world):
    assert len(world.questions) == 320
    for question in world.questions:
        links = question.question.count(" of the ") - 1
        assert links + 1 in DEEP_HOPS
        # A number and a name for each link, and what is asked for at the end.
        assert len(question.truth.needs) == 2 * links + 1
        assert len(question.truth.entity_ids) == links + 1
        assert all(need.document_ids for need in question.truth.needs)


def test_chains_stay_within_their_split_so_that_held_out_ones_are_not_learnt(world):
    split = {entity.id: entity.split for entity in world.entities}
    for question in world.questions:
        assert {split[name] for name in question.truth.entity_ids} == {question.split}


def test_most_entities_have_another_that_looks_alike(world):
    alike = [entity for entity in world.entities if entity.lookalike_ids]
    assert len(alike) > len(world.entities) / 2


def test_the_score_of_an_answer_says_whether_it_is_right(world, toolbox):
    question = world.questions_of("test")[0]
    parsed = play(toolbox, question, LONG, CONTEXT).read()
    segments = parsed.trajectory.segments
    wrong = segments[-1].model_copy(update={"text": segments[-1].text.replace("boxed{", "boxed{not ")})
    wrong = wrong.model_copy(update={"text": wrong.text.replace(f"not {question.truth.reference}", "7 stones")})
    changed = parse_trajectory(parsed.trajectory.model_copy(update={"segments": (*segments[:-1], wrong)}))
    assert (true_quality(question, parsed)[-1], true_quality(question, changed)[-1]) == (1.0, 0.0)


def test_with_a_folded_context_the_expert_answers_every_held_out_chain(world, toolbox):
    for question in world.questions_of("test"):
        episode = play(toolbox, question, LONG, CONTEXT)
        parsed = episode.read()
        assert question.truth.reference in parsed.answer, question.question
        assert sum(turn.call is not None for turn in parsed.turns) >= 11
        assert len(episode.trajectory.folds) >= 1
        assert true_quality(question, parsed)[-1] == 1.0


def test_ten_calls_are_too_few_for_every_chain(world, toolbox):
    endings = {
        play(toolbox, question, LONG.model_copy(update={"max_calls": 10})).trajectory.ending
        for question in world.questions_of("test")
    }
    assert endings == {Ending.CALL_BUDGET}


def test_an_unfolded_context_of_the_same_size_runs_out(world, toolbox):
    endings = {
        play(toolbox, question, LONG.model_copy(update={"max_tokens": CONTEXT.fold_at})).trajectory.ending
        for question in world.questions_of("test")
    }
    assert endings == {Ending.TOKEN_BUDGET}


def test_more_entities_than_numbers_are_refused():
    with pytest.raises(UsageError, match="entities_per_domain is 113; the numbers of a deep almanac last for 112"):
        deep_almanac(0, entities_per_domain=113)
