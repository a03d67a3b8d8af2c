"""The record of a run: whole lines, an index that points at them, and a resume that cuts off what is done again."""

import json

import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.reflection import Reflection
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.testing.judges import attempt, careless
from rubricem_records.files.packed_lines import pack_line, read_packed, unpack_line
from rubricem_records.rollouts.record_settings import RecordSettings
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, GroupHead, Header, RolloutEntry, RolloutHead
from rubricem_records.rollouts.run_recorder import RunRecorder

QUESTION = "Which is wider?"


def group(step):
    return GroupEntry(step=step, place=0, query_key="k", question=QUESTION * 200)


def rollout(step, number, trajectory):
    outcomes = {stage: StageScore(score=0.5) for stage in STAGES}
    return RolloutEntry(
        step=step,
        place=0,
        attempt=number,
        rollout=Rollout(trajectory=trajectory, policy="scripted"),
        judged=RolloutJudgement(judgement=Judgement.of(outcomes)),
    )


@pytest.fixture
def recorder(tmp_path):
    made = RunRecorder(tmp_path)
    made.begin(0, embedder="hashing-512")
    return made


def record(recorder, *steps):
    for step in steps:
        recorder.record_step([(group(step), [rollout(step, 0, attempt()), rollout(step, 1, careless())])])


def heads(folder, name, kind):
    header, *lines = (folder / f"{name}.index.jsonl").read_bytes().splitlines()
    assert Header.model_validate_json(header).record == 2
    return [kind.model_validate_json(line) for line in lines]


def pointed_at(folder, name, head):
    content = (folder / f"{name}.jsonl.gz").read_bytes()
    return unpack_line(content[head.at : head.at + head.size])


def test_every_line_of_the_index_points_at_a_whole_line_of_its_file(recorder, tmp_path):
    record(recorder, 1, 2)

    found = [
        RolloutEntry.model_validate_json(pointed_at(tmp_path, "rollouts", head))
        for head in heads(tmp_path, "rollouts", RolloutHead)
    ]
    groups = [
        GroupEntry.model_validate_json(pointed_at(tmp_path, "groups", head))
        for head in heads(tmp_path, "groups", GroupHead)
    ]

    assert [(one.step, one.attempt) for one in found] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert found[0] == rollout(1, 0, attempt())
    assert groups == [group(1), group(2)]


def test_the_index_says_what_a_list_shows(recorder, tmp_path):
    record(recorder, 1)

    good, poor = heads(tmp_path, "rollouts", RolloutHead)
    (own,) = heads(tmp_path, "groups", GroupHead)

    assert (good.calls, good.complete, good.violations) == (2, True, 0)
    assert (poor.calls, poor.ending) == (2, "answered")
    assert poor.violations > 0
    assert len(own.question) == 500


def test_a_resume_cuts_off_what_is_done_again_and_names_the_recording_anew(recorder, tmp_path):
    record(recorder, 1, 2)
    before = (tmp_path / "rollouts.index.jsonl").read_bytes().splitlines()[0]

    again = RunRecorder(tmp_path)
    again.begin(1, embedder="hashing-512")
    record(again, 2)

    assert [head.step for head in heads(tmp_path, "groups", GroupHead)] == [1, 2]
    assert len(list(read_packed(tmp_path / "rollouts.jsonl.gz"))) == 4
    assert (tmp_path / "rollouts.index.jsonl").read_bytes().splitlines()[0] != before


def test_a_line_that_a_kill_left_without_its_index_is_cut_off(recorder, tmp_path):
    record(recorder, 1)
    with (tmp_path / "rollouts.jsonl.gz").open("ab") as file:
        file.write(pack_line(b'{"step": 1}')[:20])
    with (tmp_path / "rollouts.index.jsonl").open("ab") as file:
        file.write(b'{"at": 12')

    again = RunRecorder(tmp_path)
    again.begin(1, embedder="hashing-512")
    record(again, 2)

    last = heads(tmp_path, "rollouts", RolloutHead)[-1]
    assert RolloutEntry.model_validate_json(pointed_at(tmp_path, "rollouts", last)).step == 2


def test_a_run_from_the_start_forgets_an_earlier_one(recorder, tmp_path):
    record(recorder, 1)
    recorder.begin(0, embedder="hashing-512")

    assert heads(tmp_path, "rollouts", RolloutHead) == []
    assert (tmp_path / "rollouts.jsonl.gz").read_bytes() == b""


def test_lessons_are_written_when_they_change_and_once(recorder, tmp_path):
    bank = RubricBank.in_memory(HashingEmbedder())
    for step, takeaways in ((1, "Search first."), (2, "Search twice.")):
        bank.write(Reflection(query_key="k", question=QUESTION, rubrics="Both figures.", takeaways=takeaways))
        recorder.record_lessons(bank.contents(since=recorder.bank_revision), step=step)
    recorder.record_lessons(bank.contents(since=recorder.bank_revision), step=3)

    lines = [json.loads(line) for line in (tmp_path / "lessons.jsonl").read_text().splitlines()[1:]]
    # The second lesson takes the place of the first, which is written again as superseded.
    assert [(line["step"], line["item"]["id"], line["item"]["status"]) for line in lines] == [
        (1, 1, "active"),
        (2, 1, "superseded"),
        (2, 2, "active"),
    ]
    again = RunRecorder(tmp_path)
    again.begin(1, embedder="hashing-512")
    assert again.bank_revision == 1


def test_a_folder_that_cannot_be_written_is_said_to_be(tmp_path):
    (tmp_path / "record").write_text("a file")

    with pytest.raises(UsageError, match="record=false"):
        RunRecorder(tmp_path / "record").begin(0, embedder="x")


def test_a_record_with_a_broken_line_is_refused_with_a_way_out(tmp_path):
    RunRecorder(tmp_path).begin(0, embedder="x")
    with (tmp_path / "rollouts.index.jsonl").open("a") as index:
        index.write('{"at": 0, "siz\n')

    with pytest.raises(UsageError, match=r"Move that folder away.*record=false"):
        RunRecorder(tmp_path).begin(1, embedder="x")


def test_a_sample_records_every_nth_step_and_attempts_spread_over_the_group(tmp_path):
    made = RunRecorder(tmp_path, sampled=RecordSettings(every=2, attempts=2))
    made.begin(0, embedder="hashing-512")

    for step in (1, 2, 3, 4):
        made.record_step([(group(step), [rollout(step, number, attempt()) for number in range(5)])])

    # Of five attempts the two at 0 * 5 // 2 = 0 and 1 * 5 // 2 = 2.
    found = [(head.step, head.attempt) for head in heads(tmp_path, "rollouts", RolloutHead)]
    assert found == [(2, 0), (2, 2), (4, 0), (4, 2)]
    assert [head.step for head in heads(tmp_path, "groups", GroupHead)] == [2, 4]


def test_a_record_of_another_format_is_left_as_it_is(recorder, tmp_path):
    record(recorder, 1)
    index = tmp_path / "rollouts.index.jsonl"
    index.write_bytes(index.read_bytes().replace(b'"record":2', b'"record":1', 1))
    before = (tmp_path / "rollouts.jsonl.gz").read_bytes()

    with pytest.raises(UsageError, match=r"format 1, and this release records in format 2\. Move the folder"):
        RunRecorder(tmp_path).begin(0, embedder="hashing-512")

    assert (tmp_path / "rollouts.jsonl.gz").read_bytes() == before
