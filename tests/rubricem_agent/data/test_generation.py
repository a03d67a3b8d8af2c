"""Rounds of turns and tool calls, and a journal that loses nothing to a kill."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rubricem_agent.data.base import Teacher, TeacherTask, Trace, TurnReply
from rubricem_agent.data.generate import Generation
from rubricem_agent.data.journal import append_entries, recover_entries
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import Ending, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.offline import shipped_toolbox
from rubricem_env.world.questions import Question
from rubricem_records.files.line_file import LineFile


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

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        if len(self.asked) >= self._dies_after:
            raise Killed
        self.asked += [trace.next_id for trace in pending]
        self.batches.append(len(pending))
        replies = await self._teacher.write(pending)
        return [TurnReply(id=r.id, error="gone") if r.id.startswith(f"{self._fails}.") else r for r in replies]

    async def aclose(self) -> None:
        return


class NoTools:
    names = ("google_search",)

    async def call(self, call: ToolCall) -> ToolResult:
        raise RuntimeError("the network is down")


class Saying(Counting):
    """A teacher that writes the same text each turn, under an id of its own or the one it is asked for."""

    def __init__(self, text: str, *, reply_id: str = "") -> None:
        super().__init__(ScriptedTeacher({}))
        self._text = text
        self._reply_id = reply_id

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        return [TurnReply(id=self._reply_id or trace.next_id, text=self._text) for trace in pending]


Run = Callable[..., Awaitable[list[Trace]]]


@pytest.fixture
def teacher(questions: dict[str, Question]) -> ScriptedTeacher:
    return ScriptedTeacher(questions)


@pytest.fixture
def journal(tmp_path: Path) -> LineFile:
    return LineFile(tmp_path / "journal.jsonl")


@pytest.fixture
def run(journal: LineFile) -> Run:
    """Have a teacher write traces into the journal."""

    async def write(
        teacher: Teacher, tasks: Sequence[TeacherTask], *, toolbox: Toolbox | None = None, **settings: Any
    ) -> list[Trace]:
        generation = Generation(teacher, toolbox or shipped_toolbox(), **{"journal": journal, **settings})
        return await generation.run(tasks)

    return write


async def test_every_task_gets_its_trace_in_order(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], journal: LineFile
) -> None:
    heard: list[Trace] = []
    traces = await Generation(teacher, shipped_toolbox(), journal=journal).run(tasks, on_trace=heard.append)

    assert [trace.task.id for trace in traces] == [task.id for task in tasks]
    assert {trace.trajectory.ending for trace in traces} == {Ending.ANSWERED}
    assert sorted(trace.task.id for trace in heard) == sorted(task.id for task in tasks)


async def test_a_batch_teacher_is_asked_once_a_round_for_all_open_traces(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run
) -> None:
    counting = Counting(teacher)
    await run(counting, tasks, together=6)

    # Searches: 1, 3, 5, 2, 3 and 3; each trace has a turn more than searches.
    assert counting.batches == [6, 6, 5, 4, 1, 1]


@pytest.mark.parametrize("dies_after", [1, 9, 14])
async def test_a_killed_run_resumes_to_the_same_traces_without_asking_twice(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run, tmp_path: Path, dies_after: int
) -> None:
    whole = await run(teacher, tasks, journal=LineFile(tmp_path / "whole.jsonl"))
    first = Counting(teacher, dies_after=dies_after)
    with pytest.raises(Killed):
        await run(first, tasks, concurrency=1)
    second = Counting(teacher)

    assert await run(second, tasks, concurrency=1) == whole
    assert set(first.asked).isdisjoint(second.asked)


async def test_a_line_that_a_kill_has_truncated_is_written_again(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run, journal: LineFile
) -> None:
    whole = await run(teacher, tasks)
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:-200])

    assert await run(teacher, tasks) == whole
    assert journal.path.read_bytes().count(b"\n") == content.count(b"\n")


def test_any_other_broken_line_is_refused_with_its_number(journal: LineFile) -> None:
    journal.path.write_text('{"task":"a"}\n{"task":"b", "rep\n{"task":"c"}\n')
    with pytest.raises(FileFormatError, match=r"journal\.jsonl, line 2 is no journal entry"):
        recover_entries(journal)


async def test_one_failure_of_the_teacher_costs_one_trace(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run
) -> None:
    traces = await run(Counting(teacher, fails=tasks[2].id), tasks, together=6)

    assert [trace.failure for trace in traces] == ["", "", "gone", "", "", ""]
    assert traces[2].trajectory.ending is Ending.ABANDONED


async def test_a_tool_that_raises_is_an_error_result(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run
) -> None:
    (trace,) = await run(teacher, tasks[:1], toolbox=NoTools())
    record = trace.trajectory.segments[2].observation

    assert record is not None
    assert record.status is ToolStatus.ERROR


async def test_a_trace_ends_at_the_tenth_round(tasks: list[TeacherTask], run: Run) -> None:
    (trace,) = await run(Saying('<think>x</think><call_tool name="google_search">q</call_tool>'), tasks[:1])

    assert trace.trajectory.ending is Ending.TURN_BUDGET
    assert sum(segment.origin == "policy" for segment in trace.trajectory.segments) == 10


async def test_a_reply_that_nobody_asked_for_is_refused(tasks: list[TeacherTask], run: Run) -> None:
    with pytest.raises(FileFormatError, match=r"replied to 'q99\.1', which was not asked"):
        await run(Saying("hello", reply_id="q99.1"), tasks[:1])


async def test_the_scripted_teacher_refuses_a_question_of_another_world(tasks: list[TeacherTask], run: Run) -> None:
    with pytest.raises(ConfigError, match="knows no question 'train-rivers-01'"):
        await run(ScriptedTeacher({}), tasks[:1])


async def test_a_journal_of_another_question_or_teacher_is_refused(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run
) -> None:
    await run(teacher, tasks[:1])

    with pytest.raises(ConfigError, match="holds a trace of another question under the id"):
        await run(teacher, [TeacherTask(tasks[0].id, tasks[1].query)])
    with pytest.raises(ConfigError, match="by the teacher scripted, and now the teacher is counting"):
        await run(Counting(teacher), tasks[:1])


async def test_an_old_journal_that_names_neither_question_nor_teacher_is_resumed(
    teacher: ScriptedTeacher, tasks: list[TeacherTask], run: Run, journal: LineFile, tmp_path: Path
) -> None:
    first = await run(teacher, tasks[:1])
    earlier = LineFile(tmp_path / "earlier.jsonl")
    append_entries(
        earlier, [one.model_copy(update={"query": "", "teacher": ""}) for one in recover_entries(journal)[tasks[0].id]]
    )
    counting = Counting(teacher)

    assert await run(counting, tasks[:1], journal=earlier) == first
    assert counting.asked == []
