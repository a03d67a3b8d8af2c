"""The desk: whole groups are judged, lessons are lent, reflections wait for the next step, and all of it is kept."""

import asyncio

import pytest

from rubricem_agent.learn.credit import CheckpointError
from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.memory.bank import Retrieval
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.research_env import offline_queries, shipped_toolbox
from rubricem_env.env.step import advance
from tests.trainers.verl.fakes import BrokenClient, FakeClient
from trainers.verl_backend.checkpoint import Shape, run_identity
from trainers.verl_backend.judge_service import JudgeService, make_desk_parts
from trainers.verl_backend.rows import Handed, Meeting
from trainers.verl_backend.settings import read_section

REFLECTION = (
    "<reflection_rubrics>Look for the convention.</reflection_rubrics>"
    "<reflection_takeaways>Give figures as the field does.</reflection_takeaways>"
)
SECTION = {
    "almanac": {},
    "window": 1,
    "bank": {"embedder": "hashing", "reference_tokens": 4_096},
    "reflection": {"num_candidates": 2, "total_tokens": 4_000, "new_tokens": 200},
    "time_limits": {"lesson": 5.0},
}
QUERY = offline_queries()[0]
NEW = Meeting(QUERY, 1, Encounter.NEW)
REPEAT = Meeting(QUERY, 2, Encounter.REPEAT)
ATTEMPTS = (
    "<think>t</think><answer>I do not know.</answer>",
    "<think>t</think><answer>The width is 60 m at low water.</answer>",
)


def make_desk(model_folder, **changes) -> JudgeService:
    settings = read_section(SECTION | changes)
    return JudgeService(make_desk_parts(settings, model=model_folder, group_size=2))


async def attempt(text: str) -> Rollout:
    episode = Episode(QUERY)
    reply = await advance(episode, shipped_toolbox(), text)
    assert isinstance(reply, Finished)
    return Rollout(trajectory=episode.trajectory, policy="verl")


async def hand_in_group(desk: JudgeService, meeting: Meeting = NEW, *, group: str = "g"):
    rollouts = [await attempt(text) for text in ATTEMPTS]
    handed = [Handed(group, place, meeting, one) for place, one in enumerate(rollouts)]
    return await asyncio.gather(*(desk.hand_in(one) for one in reversed(handed)))


async def reflected(desk: JudgeService, tokenizer) -> None:
    await desk.open(FakeClient(tokenizer, [REFLECTION], versions=(7,)))
    await hand_in_group(desk)
    await desk.drain()


def identity(desk: JudgeService):
    return run_identity(desk._parts.settings, Shape(batch_size=1, group_size=2, ranks=1))


async def test_a_rollout_waits_for_its_group_and_gets_its_own_marks(model_folder, tokenizer):
    desk = make_desk(model_folder, meta_policy=False)
    first = asyncio.create_task(desk.hand_in(Handed("g", 0, NEW, await attempt(ATTEMPTS[0]))))
    await asyncio.sleep(0.05)
    assert not first.done()
    second = await desk.hand_in(Handed("g", 1, NEW, await attempt(ATTEMPTS[1])))
    marks = await first
    assert marks.is_valid
    assert second.is_valid
    assert marks.true is not None
    assert second.true is not None


async def test_a_waiting_group_does_not_hold_up_another(model_folder):
    desk = make_desk(model_folder, meta_policy=False)
    waiting = asyncio.create_task(desk.hand_in(Handed("slow", 0, NEW, await attempt(ATTEMPTS[0]))))
    assert len(await hand_in_group(desk, group="other")) == 2
    waiting.cancel()


async def test_a_rollout_that_the_world_broke_is_judged_with_its_group_and_is_not_valid(model_folder):
    desk = make_desk(model_folder, meta_policy=False)
    episode = Episode(QUERY)
    episode.abandon()
    lost = Rollout(trajectory=episode.trajectory, policy="verl", failure="the engine is gone")
    whole = asyncio.create_task(desk.hand_in(Handed("g", 1, NEW, await attempt(ATTEMPTS[1]))))
    marks = await desk.hand_in(Handed("g", 0, NEW, lost))
    assert lost.trajectory.ending is Ending.ABANDONED
    assert (marks.is_valid, marks.failure) == (False, "the engine is gone")
    assert (await whole).is_valid


async def test_reflections_are_handed_out_one_step_later_and_the_best_is_lent_at_the_repeat(model_folder, tokenizer):
    desk = make_desk(model_folder)
    await reflected(desk, tokenizer)
    assert (await desk.collect(step=1)).outcomes == ()
    late = await desk.collect(step=2)
    assert (len(late.outcomes), late.staleness, late.bank) == (1, (1,), 1)
    # The weights that have drawn it, not those of the step that trains on it.
    assert late.outcomes[0].policy_version == 7
    assert "Give figures as the field does." in await desk.references(REPEAT)


async def test_lessons_are_looked_for_once_for_a_group_and_again_for_the_next(model_folder, tokenizer, monkeypatch):
    desk = make_desk(model_folder)
    await reflected(desk, tokenizer)
    bank, asked = desk._parts.bank, []
    retrieve = bank.retrieve
    monkeypatch.setattr(bank, "retrieve", lambda *told: asked.append(told) or retrieve(*told))
    lent = await asyncio.gather(*(desk.references(REPEAT) for _ in range(8)))
    assert (len(asked), len(set(lent))) == (1, 1)
    await hand_in_group(desk, REPEAT)
    await desk.references(REPEAT)
    assert len(asked) == 2


async def test_a_question_has_no_lesson_of_its_own_when_it_is_new_and_none_without_the_meta_policy(
    model_folder, tokenizer
):
    desk = make_desk(model_folder)
    await reflected(desk, tokenizer)
    assert await desk.references(NEW) == ""
    assert await make_desk(model_folder, meta_policy=False).references(REPEAT) == ""


async def test_a_dead_engine_fails_the_reflection_and_nothing_else(model_folder):
    desk = make_desk(model_folder)
    await desk.open(BrokenClient())
    assert all(marks.is_valid for marks in await hand_in_group(desk))
    await desk.drain()
    late = await desk.collect(step=2)
    assert late.outcomes == ()
    assert "the actor died" in late.failures[0]


async def test_a_judge_that_fails_leaves_marks_that_are_not_valid(model_folder):
    desk = make_desk(model_folder, almanac={"knobs": {"failure_rate": 1.0}}, meta_policy=False)
    marks = await hand_in_group(desk)
    assert [one.is_valid for one in marks] == [False, False]
    assert "did not answer" in marks[0].failure


async def test_a_kept_desk_has_the_same_bank_and_rubrics_and_its_outcomes_still_to_hand_out(
    model_folder, tokenizer, tmp_path
):
    desk = make_desk(model_folder)
    await reflected(desk, tokenizer)
    await desk.keep(tmp_path, step=1, stream={"at": 7}, identity=identity(desk))
    other = make_desk(model_folder)
    assert await other.resume(tmp_path, step=1, identity=identity(other)) == {"at": 7}
    assert other._parts.bank.items() == desk._parts.bank.items()
    assert other._parts.judge.state_dict() == desk._parts.judge.state_dict()
    assert len((await other.collect(step=2)).outcomes) == 1


async def test_a_reflection_that_was_pending_at_the_checkpoint_is_written_after_the_resume(
    model_folder, tokenizer, tmp_path
):
    desk = make_desk(model_folder)
    await desk.open(SlowClient())
    await hand_in_group(desk)
    await asyncio.sleep(0.05)
    await desk.keep(tmp_path, step=1, stream={}, identity=identity(desk))
    other = make_desk(model_folder)
    await other.resume(tmp_path, step=1, identity=identity(other))
    await other.open(FakeClient(tokenizer, [REFLECTION]))
    await other.drain()
    assert len((await other.collect(step=2)).outcomes) == 1
    assert other._parts.bank.retrieve(QUERY.question, Retrieval.WITHIN)
    await desk._deferred.cancel()


async def test_a_group_that_is_played_again_after_a_resume_is_not_reflected_on_twice(model_folder, tokenizer, tmp_path):
    desk = make_desk(model_folder)
    await reflected(desk, tokenizer)
    await desk.keep(tmp_path, step=1, stream={}, identity=identity(desk))
    other = make_desk(model_folder)
    await other.resume(tmp_path, step=1, identity=identity(other))
    await reflected(other, tokenizer)
    assert len((await other.collect(step=2)).outcomes) == 1


@pytest.mark.parametrize(("change", "name"), [({"window": 2}, "window"), ({"credit": "terminal"}, "credit")])
async def test_a_checkpoint_of_other_settings_is_refused_by_name(model_folder, tmp_path, change, name):
    desk = make_desk(model_folder)
    await desk.keep(tmp_path, step=1, stream={}, identity=identity(desk))
    other = make_desk(model_folder, **change)
    with pytest.raises(CheckpointError, match=f"written with rubricem.{name}="):
        await other.resume(tmp_path, step=1, identity=identity(other))


async def test_a_checkpoint_of_another_matrix_is_refused(model_folder, tmp_path):
    desk = make_desk(model_folder)
    await desk.keep(tmp_path, step=1, stream={}, identity=identity(desk))
    identity_matrix = [[float(row == column) for column in range(4)] for row in range(4)]
    other = make_desk(model_folder, matrix=identity_matrix)
    with pytest.raises(CheckpointError, match=r"rubricem.matrix=.*begin anew"):
        await other.resume(tmp_path, step=1, identity=identity(other))


class SlowClient:
    """An engine that does not come back."""

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        await asyncio.Event().wait()
