"""What a run on veRL records: each group once, under the step that took it, with the credit that it got there."""

import json
import os

import pytest

from rubricem_agent.viewer.records import RunRecordReader
from rubricem_env.domain.errors import UsageError
from tests.trainers.verl.test_desk import NEW, QUERY, REPEAT, hand_in_group, identity, make_desk, reflected
from trainers.verl_backend.rows import RolloutCredit


def credits_of(*groups: str, size: int = 2) -> list[RolloutCredit]:
    """The first rollout of each group is the better one by a standard deviation."""
    return [
        RolloutCredit(
            group, place, (2.0, 1.0, 1.0, 0.5), (1.0 - 2 * place, 0.0, 0.0, 1.0 - 2 * place), trained=place == 0
        )
        for group in groups
        for place in range(size)
    ]


def read(run) -> RunRecordReader:
    reader = RunRecordReader(run)
    reader.refresh()
    return reader


def rollouts_of(reader, group_id: str):
    rows = reader.table.of_group(reader.find_group(group_id)).tolist()
    return sorted((reader.read_rollout(row) for row in rows), key=lambda one: one.attempt)


async def recording_desk(model_folder, run, **changes):
    desk = make_desk(model_folder, **changes)
    await desk.begin_record(run, 0)
    return desk


async def test_a_group_is_recorded_with_marks_truth_and_the_credit_of_the_step_that_took_it(model_folder, tmp_path):
    desk = await recording_desk(model_folder, tmp_path, meta_policy=False)
    marks = await hand_in_group(desk)
    await desk.record(5, credits_of("g"))

    reader = read(tmp_path)
    first, second = rollouts_of(reader, "5-0")
    assert reader.read_group(0).question == QUERY.question
    # The group was handed in from its last rollout to its first.
    assert [first.true, second.true] == [marks[1].true, marks[0].true]
    assert (first.advantages, second.advantages) == ((1.0, 0.0, 0.0, 1.0), (-1.0, 0.0, 0.0, -1.0))
    assert (first.trained, second.trained) == (True, False)


async def test_a_group_that_no_step_has_taken_yet_is_not_in_the_record(model_folder, tmp_path):
    desk = await recording_desk(model_folder, tmp_path, meta_policy=False)
    await hand_in_group(desk, group="ahead")
    await hand_in_group(desk, group="now")
    await desk.record(1, credits_of("now"))
    assert [row.id for row in read(tmp_path).groups] == ["1-0"]
    await desk.record(2, credits_of("ahead"))
    assert [row.id for row in read(tmp_path).groups] == ["1-0", "2-0"]


async def test_groups_of_one_step_have_places_of_their_own_also_over_several_updates(model_folder, tmp_path):
    desk = await recording_desk(model_folder, tmp_path, meta_policy=False)
    for name in ("a", "b", "c"):
        await hand_in_group(desk, group=name)
    await desk.record(1, credits_of("a", "b"))
    await desk.record(1, credits_of("c"))
    assert [row.id for row in read(tmp_path).groups] == ["1-0", "1-1", "1-2"]


async def test_the_lessons_that_were_shown_and_the_bank_stand_in_the_record(model_folder, tokenizer, tmp_path):
    desk = await recording_desk(model_folder, tmp_path)
    await reflected(desk, tokenizer)
    await desk.record(1, credits_of("g"))
    assert await desk.references(REPEAT)
    await hand_in_group(desk, REPEAT, group="h")
    await desk.record(2, credits_of("h"))

    reader = read(tmp_path)
    assert [[one.item for one in row.lessons] for row in reader.groups] == [[], [1]]
    _, *lessons = (tmp_path / "record" / "lessons.jsonl").read_text().splitlines()
    assert [(json.loads(line)["step"], json.loads(line)["item"]["id"]) for line in lessons] == [(1, 1)]


async def test_a_resumed_run_has_the_groups_that_were_judged_ahead_of_their_step(model_folder, tmp_path):
    desk = await recording_desk(model_folder, tmp_path, meta_policy=False)
    await hand_in_group(desk, group="ahead")
    await desk.keep(tmp_path / "kept", step=1, stream={}, identity=identity(desk))
    await desk.record(2, credits_of("ahead"))

    other = make_desk(model_folder, meta_policy=False)
    await other.begin_record(tmp_path, 1)
    await other.resume(tmp_path / "kept", step=1, identity=identity(other))
    assert len(read(tmp_path).groups) == 0
    await other.record(2, credits_of("ahead"))
    assert [row.id for row in read(tmp_path).groups] == ["2-0"]
    assert rollouts_of(read(tmp_path), "2-0")[0].trained


async def test_a_group_from_before_the_record_was_switched_on_is_left_out(model_folder, tmp_path):
    desk = make_desk(model_folder, meta_policy=False)
    await hand_in_group(desk, group="before")
    await desk.begin_record(tmp_path, 0)
    await desk.record(1, credits_of("before"))
    assert len(read(tmp_path).groups) == 0


async def test_nothing_is_kept_or_written_without_a_record(model_folder, tmp_path):
    desk = make_desk(model_folder, meta_policy=False, record=False)
    await hand_in_group(desk, NEW)
    await desk.record(1, credits_of("g"))
    assert desk._state().noted == {}
    assert not (tmp_path / "record").exists()


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/dev/full"), reason="needs a device that is always full")
async def test_a_full_disk_is_told_in_a_sentence_with_the_switch(model_folder, tmp_path):
    desk = await recording_desk(model_folder, tmp_path, meta_policy=False)
    await hand_in_group(desk)
    path = tmp_path / "record" / "groups.jsonl"
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(UsageError, match=r"cannot write the record.*rubricem\.record=false"):
        await desk.record(1, credits_of("g"))


async def test_a_folder_that_cannot_be_written_is_refused_at_the_start(model_folder, tmp_path):
    (tmp_path / "record").write_text("in the way")
    with pytest.raises(UsageError, match="cannot write the record"):
        await make_desk(model_folder).begin_record(tmp_path, 0)
