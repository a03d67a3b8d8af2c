"""Rounds of turns and tool calls, and a journal that loses nothing to a kill."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rubricem_agent.data.generate import Generation, PendingTurn, TeacherTask, TeachJournal, Trace, TurnReply
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import Ending, ToolCall, ToolResult, ToolStatus
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.world.questions import Question


class Killed(Exception):
    """Stands for a kill: nothing after it is done."""


class Counting:
    """A teacher that counts what it is asked, and fails for one task if told to."""

    name = "counting"

    def __init__(self, teacher: ScriptedTeacher, *, fails: str = "", dies_after: int = 10_000) -> None:
        self._teacher = teacher
        self._fails = fails
        self._dies_after = dies_after
        self.asked: list[str] = []
        self.batches: list[int] = []

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        if len(self.asked) >= self._dies_after:
            raise Killed
        self.asked += [turn.id for turn in pending]
        self.batches.append(len(pending))
        replies = await self._teacher.write(pending)
        return [TurnReply(id=r.id, error="gone") if r.id.startswith(f"{self._fails}.") else r for r in replies]

    async def aclose(self) -> None:
        return


class NoTools:
    names = ("google_search",)

    async def call(self, call: ToolCall) -> ToolResult:
        raise RuntimeError("the network is down")


@pytest.fixture
def teacher(questions: dict[str, Question]) -> ScriptedTeacher:
    return ScriptedTeacher(questions)


async def test_every_task_gets_its_trace_in_order(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    heard: list[Trace] = []
    generation = Generation(teacher, shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl"))
    traces = await generation.run(tasks, on_trace=heard.append)

    assert [trace.task.id for trace in traces] == [task.id for task in tasks]
    assert {trace.trajectory.ending for trace in traces} == {Ending.ANSWERED}
    assert sorted(trace.task.id for trace in heard) == sorted(task.id for task in tasks)


async def test_a_batch_teacher_is_asked_once_a_round_for_all_that_go_on(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    counting = Counting(teacher)
    await Generation(counting, shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl"), together=6).run(tasks)

    # Searches: 1, 3, 5, 2, 4 and 3; each trace has a turn more than searches.
    assert counting.batches == [6, 6, 5, 4, 2, 1]


@pytest.mark.parametrize("dies_after", [1, 5, 9, 14])
async def test_a_killed_run_goes_on_to_the_same_traces_without_asking_twice(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path, dies_after: int
) -> None:
    whole = await Generation(teacher, shipped_toolbox(), journal=TeachJournal(tmp_path / "whole.jsonl")).run(tasks)
    journal = TeachJournal(tmp_path / "cut.jsonl")
    first = Counting(teacher, dies_after=dies_after)
    with pytest.raises(Killed):
        await Generation(first, shipped_toolbox(), journal=journal, concurrency=1).run(tasks)
    second = Counting(teacher)
    resumed = await Generation(second, shipped_toolbox(), journal=journal, concurrency=1).run(tasks)

    assert resumed == whole
    assert set(first.asked).isdisjoint(second.asked)


async def test_a_line_that_a_kill_has_cut_short_is_written_again(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    journal = TeachJournal(tmp_path / "j.jsonl")
    whole = await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks)
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:-200])

    assert await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks) == whole
    assert journal.path.read_bytes().count(b"\n") == content.count(b"\n")


async def test_any_other_broken_line_is_refused_with_its_number(tmp_path: Path) -> None:
    journal = TeachJournal(tmp_path / "j.jsonl")
    journal.path.write_text('{"task":"a"}\n{"task":"b", "rep\n{"task":"c"}\n')
    with pytest.raises(FileFormatError, match=r"j\.jsonl, line 2 is no journal entry"):
        journal.recover()


async def test_one_failure_of_the_teacher_is_one_trace_less(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    failing = Counting(teacher, fails=tasks[2].id)
    traces = await Generation(failing, shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl"), together=6).run(
        tasks
    )

    assert [trace.failure for trace in traces] == ["", "", "gone", "", "", ""]
    assert traces[2].trajectory.ending is Ending.ABANDONED


async def test_a_tool_that_raises_is_an_error_result(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    (trace,) = await Generation(teacher, NoTools(), journal=TeachJournal(tmp_path / "j.jsonl")).run(tasks[:1])
    record = trace.trajectory.segments[2].observation

    assert record is not None
    assert record.status is ToolStatus.ERROR


async def test_a_trace_ends_at_the_tenth_round(tasks: list[TeacherTask], tmp_path: Path) -> None:
    class Endless(Counting):
        async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
            return [
                TurnReply(id=turn.id, text=f'<think>x</think><call_tool name="google_search">{turn.id}</call_tool>')
                for turn in pending
            ]

    endless = Endless(ScriptedTeacher({}))
    (trace,) = await Generation(endless, shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl")).run(tasks[:1])

    assert trace.trajectory.ending is Ending.TURN_BUDGET
    assert sum(segment.origin == "policy" for segment in trace.trajectory.segments) == 10


async def test_a_reply_that_nobody_asked_for_is_refused(tasks: list[TeacherTask], tmp_path: Path) -> None:
    class Stray(Counting):
        async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
            return [TurnReply(id="q99.1", text="hello")]

    with pytest.raises(FileFormatError, match=r"replied to 'q99\.1', which was not asked"):
        await Generation(Stray(ScriptedTeacher({})), shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl")).run(
            tasks[:1]
        )


async def test_the_scripted_teacher_refuses_a_question_of_another_world(
    tasks: list[TeacherTask], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="knows no question 'train-rivers-01'"):
        await Generation(ScriptedTeacher({}), shipped_toolbox(), journal=TeachJournal(tmp_path / "j.jsonl")).run(
            tasks[:1]
        )


async def test_a_trace_of_another_question_under_the_same_id_is_refused(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    journal = TeachJournal(tmp_path / "journal.jsonl")
    await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks[:1])
    other = TeacherTask(tasks[0].id, tasks[1].query)

    with pytest.raises(ConfigError, match="holds a trace of another question under the id"):
        await Generation(teacher, shipped_toolbox(), journal=journal).run([other])


async def test_the_turns_of_one_teacher_are_not_passed_off_as_those_of_another(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    journal = TeachJournal(tmp_path / "journal.jsonl")
    await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks[:1])

    with pytest.raises(ConfigError, match="by the teacher scripted, and now the teacher is counting"):
        await Generation(Counting(teacher), shipped_toolbox(), journal=journal).run(tasks[:1])


async def test_a_journal_that_names_neither_question_nor_teacher_is_gone_on_with(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], tmp_path: Path
) -> None:
    journal = TeachJournal(tmp_path / "journal.jsonl")
    first = await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks[:1])
    old = [one.model_copy(update={"query": "", "teacher": ""}) for one in journal.recover()[tasks[0].id]]
    earlier = TeachJournal(tmp_path / "earlier.jsonl")
    earlier.append(old)
    counting = Counting(teacher)

    again = await Generation(counting, shipped_toolbox(), journal=earlier).run(tasks[:1])

    assert (again, counting.asked) == (first, [])
