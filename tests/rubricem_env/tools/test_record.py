"""Record and replay: the same trajectory, byte for byte."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.trajectory import Query, Snippet, ToolCall, ToolResult, ToolStatus, dump_trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.env.step import advance
from rubricem_env.testing.episodes import ScriptedTool, run_scripted_episode
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.record import RecordedCall, RecordingToolbox, ReplayToolbox, read_record
from rubricem_env.world.offline import shipped_toolbox

CALL = ToolCall(name="google_search", query="Tall Fox")


async def test_a_replayed_episode_equals_the_recorded_one_byte_for_byte(tmp_path):
    path = tmp_path / "calls.jsonl"
    recorded = await run_scripted_episode(RecordingToolbox(shipped_toolbox(), path))
    replayed = await run_scripted_episode(ReplayToolbox(path))
    assert dump_trajectory(replayed.trajectory) == dump_trajectory(recorded.trajectory)
    assert replayed.calls_used == 3


async def test_recording_a_replay_gives_the_same_file(tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    await run_scripted_episode(RecordingToolbox(shipped_toolbox(), first))
    await run_scripted_episode(RecordingToolbox(ReplayToolbox(first), second))
    assert second.read_bytes() == first.read_bytes()


async def test_the_second_equal_call_gets_the_second_result(tmp_path):
    answers = iter(["one", "two"])
    tool = ScriptedTool(lambda _: ToolResult(status=ToolStatus.OK, summary=next(answers)))
    recording = RecordingToolbox(LocalToolbox(tool), tmp_path / "r.jsonl")
    for _ in range(2):
        await recording.call(CALL)
    replay = ReplayToolbox(tmp_path / "r.jsonl")
    assert [(await replay.call(CALL)).summary for _ in range(2)] == ["one", "two"]
    with pytest.raises(UsageError, match="2 times and not more"):
        await replay.call(CALL)


async def test_a_call_that_was_not_recorded_names_the_way_out(tmp_path):
    recording = RecordingToolbox(LocalToolbox(ScriptedTool()), tmp_path / "r.jsonl")
    await recording.call(CALL)
    other = ToolCall(name="google_search", query="Amber Badger")
    with pytest.raises(UsageError, match=r"'Amber Badger' not at all.*record the run again"):
        await ReplayToolbox(tmp_path / "r.jsonl").call(other)


async def test_many_episodes_at_once_write_whole_lines_and_a_truncated_last_one_is_ignored(tmp_path):
    path = tmp_path / "r.jsonl"
    recording = RecordingToolbox(LocalToolbox(ScriptedTool(delay=0.001)), path)
    await asyncio.gather(*(recording.call(CALL) for _ in range(100)))
    assert len(read_record(path)[1]) == 100
    path.write_bytes(path.read_bytes()[:-10])
    assert len(read_record(path)[1]) == 99


@pytest.mark.parametrize("place", ["file/calls.jsonl", "file/deep/calls.jsonl", "folder"])
def test_a_record_that_cannot_be_written_is_refused_before_a_call_is_spent(tmp_path, place):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=rf"cannot write the tool record .*{place}: .*another file for `record`"):
        RecordingToolbox.onto(LocalToolbox(ScriptedTool()), tmp_path / place)


async def test_a_record_that_stops_being_writable_stops_the_run_and_is_no_result_of_a_tool(tmp_path):
    path = tmp_path / "folder" / "calls.jsonl"
    recording = RecordingToolbox.onto(LocalToolbox(ScriptedTool()), path)
    path.unlink()
    path.mkdir()
    episode = Episode(Query(question="Q"))
    with pytest.raises(ConfigError, match="cannot write the tool record"):
        await advance(episode, recording, '<call_tool name="google_search">Tall Fox</call_tool>')


async def test_an_older_record_stays_until_there_is_a_call_to_record(tmp_path):
    path = tmp_path / "r.jsonl"
    RecordingToolbox.onto(LocalToolbox(ScriptedTool()), path)
    assert read_record(path)[1] == ()
    await RecordingToolbox.onto(LocalToolbox(ScriptedTool()), path).call(CALL)
    again = RecordingToolbox.onto(LocalToolbox(ScriptedTool()), path)
    assert len(read_record(path)[1]) == 1
    await again.call(ToolCall(name="google_search", query="Amber Badger"))
    assert [recorded.call.query for recorded in read_record(path)[1]] == ["Amber Badger"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ('{"format":"other","version":1,"tools":[]}\n', "not the head of a tool record"),
        ('{"format":"rubricem-tool-calls","version":9,"tools":[]}\n', "not the head of a tool record"),
        ('{"format":"rubricem-tool-calls","version":1,"tools":[]}\n{"call":1}\n', "line 2 is not a recorded call"),
        ('{"format":"rubricem-tool-calls","version":1,"tools":[]}\n<html>\n', "line 2 is not a recorded call"),
    ],
)
def test_a_file_that_is_no_record_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_record(path)


def test_a_missing_record_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"cannot read .*none\.jsonl.* tool record; `record` makes one"):
        ReplayToolbox(tmp_path / "none.jsonl")


@given(st.text(), st.text(), st.sampled_from(ToolStatus))
async def test_any_call_and_result_survive_the_file(tmp_path_factory, query, text, status):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    call = ToolCall(name="google_search", query=query, parameters=((text, query),))
    result = ToolResult(status=status, summary=text, snippets=(Snippet(text=text),), executed=CALL)

    class Given:
        names = ("google_search",)

        async def call(self, call):
            return result

    await RecordingToolbox(Given(), path).call(call)
    assert read_record(path)[1] == (RecordedCall(call=call, result=result),)
