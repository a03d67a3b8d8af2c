"""Multi-round generation (paper, section B.2): rounds of the teacher's turns and of tool calls, until every trace ends."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rubricem_agent.data.journal import Entry, Journal
from rubricem_agent.data.turns import PendingTurn, Teacher, TeacherTask, TurnReply
from rubricem_env.domain.errors import ConfigError, FileFormatError, ToolError, boundary
from rubricem_env.domain.tool import ToolCall, ToolResult, ToolStatus
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.episode import CallTool, Episode
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.judge.together import run_together
from rubricem_env.tools.base import Toolbox

MAX_ROUNDS = 10
"""The answer's round included (choice A12)."""


class Trace(NamedTuple):
    """A finished episode of a task."""

    task: TeacherTask
    trajectory: Trajectory
    failure: str
    """Why the teacher stopped writing; empty where the trace ended by itself."""


class _Attempt:
    """One episode under way."""

    def __init__(self, task: TeacherTask, limits: EpisodeLimits) -> None:
        self.task = task
        self.episode = Episode(task.query, limits=limits)
        self.call: ToolCall | None = None
        self.failure = ""

    def take(self, entry: Entry) -> None:
        """Go on by one entry, whether it is new or from the journal."""
        if entry.result is not None:
            self.call = None
            self.episode.observe(entry.result)
        elif entry.reply is not None and entry.reply.error:
            self.failure = entry.reply.error
            self.episode.abandon()
        elif entry.reply is not None:
            step = self.episode.emit(entry.reply.text)
            self.call = step.call if isinstance(step, CallTool) else None

    @property
    def pending(self) -> PendingTurn:
        return PendingTurn(self.task, len(self.episode.turns) + 1, self.episode.trajectory)


class Generation:
    """Writes one trace for each task. Traces that the journal holds already, or parts of them, are not written again."""

    def __init__(
        self,
        teacher: Teacher,
        toolbox: Toolbox,
        *,
        journal: Journal,
        max_rounds: int = MAX_ROUNDS,
        max_tokens: int = 16_384,
        together: int = 1,
        concurrency: int = 64,
    ) -> None:
        self._teacher = teacher
        self._toolbox = toolbox
        self._journal = journal
        # The first turn without an action ends the trace: it is rejected whatever follows.
        self._limits = EpisodeLimits(
            max_calls=max_rounds - 1, max_turns=max_rounds, max_tokens=max_tokens, max_idle_turns=1
        )
        self._together = together
        self._concurrency = concurrency

    async def run(
        self, tasks: Sequence[TeacherTask], *, on_trace: Callable[[Trace], None] | None = None
    ) -> list[Trace]:
        """The traces, in the order of the tasks; `on_trace` hears of each as it ends.

        Raises:
            RepliesPending: what there is, is in the journal; run again when the replies are there.
            ConfigError: the journal holds a task's trace for another question, or by another teacher.
        """
        recorded = self._journal.recover()
        slots = asyncio.Semaphore(self._concurrency)
        groups = [tasks[start : start + self._together] for start in range(0, len(tasks), self._together)]

        async def write(group: Sequence[TeacherTask]) -> list[Trace]:
            async with slots:
                return await self._write_group(group, recorded, on_trace=on_trace)

        written = await run_together(write(group) for group in groups)
        return [trace for group in written for trace in group]

    async def _write_group(
        self,
        tasks: Sequence[TeacherTask],
        recorded: Mapping[str, list[Entry]],
        *,
        on_trace: Callable[[Trace], None] | None,
    ) -> list[Trace]:
        attempts = [self._replay(task, recorded.get(task.id, ())) for task in tasks]
        live = [attempt for attempt in attempts if not attempt.episode.is_over]
        while live:
            await self._call_tools([attempt for attempt in live if attempt.call is not None])
            await self._write_turns([attempt for attempt in live if not attempt.episode.is_over])
            live = [attempt for attempt in live if not attempt.episode.is_over]
        traces = [Trace(attempt.task, attempt.episode.trajectory, attempt.failure) for attempt in attempts]
        if on_trace is not None:
            for trace in traces:
                on_trace(trace)
        return traces

    async def _write_turns(self, attempts: Sequence[_Attempt]) -> None:
        if not attempts:
            return
        by_id = {attempt.pending.id: attempt for attempt in attempts}
        replies = await self._teacher.write([attempt.pending for attempt in attempts])
        entries = [self._entry(_owner(by_id, reply).task, reply) for reply in replies]
        self._journal.append(entries)
        for entry, reply in zip(entries, replies, strict=True):
            by_id[reply.id].take(entry)

    def _entry(self, task: TeacherTask, reply: TurnReply) -> Entry:
        return Entry(task=task.id, query=task.query.key, teacher=self._teacher.name, reply=reply)

    def _replay(self, task: TeacherTask, entries: Sequence[Entry]) -> _Attempt:
        attempt = _Attempt(task, self._limits)
        for entry in entries:
            self._refuse_other(task, entry)
            attempt.take(entry)
        return attempt

    def _refuse_other(self, task: TeacherTask, entry: Entry) -> None:
        """An id says little: another file's question may have it, and its trace would answer that one."""
        if entry.query and entry.query != task.query.key:
            raise ConfigError(
                f"{self._journal.path} holds a trace of another question under the id {task.id!r}; "
                "write these questions into another folder with --out, or give them ids of their own."
            )
        if entry.teacher and entry.teacher != self._teacher.name:
            raise ConfigError(
                f"{self._journal.path} holds turns of {task.id!r} by the teacher {entry.teacher}, and now the teacher is "
                f"{self._teacher.name}; go on with the first one, or write into another folder with --out."
            )

    async def _call_tools(self, attempts: Sequence[_Attempt]) -> None:
        async def call(attempt: _Attempt) -> None:
            assert attempt.call is not None
            entry = Entry(task=attempt.task.id, result=await _answer(self._toolbox, attempt.call))
            self._journal.append([entry])
            attempt.take(entry)

        await run_together(call(attempt) for attempt in attempts)


def _owner(by_id: Mapping[str, _Attempt], reply: TurnReply) -> _Attempt:
    if reply.id not in by_id:
        raise FileFormatError(f"the teacher replied to {reply.id!r}, which was not asked; remove that reply.")
    return by_id[reply.id]


async def _answer(toolbox: Toolbox, call: ToolCall) -> ToolResult:
    """The toolbox's answer; what it raises is an error result: the teacher may recover from one."""
    try:
        with boundary(ToolError, f"call {call.name}"):
            return await toolbox.call(call)
    except ToolError as failure:
        return ToolResult(status=ToolStatus.ERROR, message=str(failure))
