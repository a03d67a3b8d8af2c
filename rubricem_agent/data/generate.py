"""Generates traces by rounds of teacher turns and tool calls (paper, section B.2)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from rubricem_agent.data.base import Teacher, TeacherTask, Trace
from rubricem_agent.data.journal import JournalEntry, append_entries, recover_entries
from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.step import call_tool
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.render import TokenCount, estimate_tokens
from rubricem_records.files.line_file import LineFile

MAX_ROUNDS = 10
"""The answer's round included."""


class _Attempt:
    """One episode under way."""

    def __init__(self, task: TeacherTask, episode: Episode) -> None:
        self.task = task
        self.episode = episode
        self.call: ToolCall | None = None
        self.failure = ""
        self.is_open = False

    def take(self, entry: JournalEntry) -> None:
        """Advance by one entry, whether it is new or from the journal."""
        if entry.result is not None:
            self.call = None
            self.episode.observe(entry.result)
        elif entry.reply is not None and entry.reply.error:
            self.failure = entry.reply.error
            self.is_open = entry.reply.outage
            self.episode.abandon()
        elif entry.reply is not None:
            step = self.episode.emit(entry.reply.text)
            self.call = step if isinstance(step, ToolCall) else None

    @property
    def trace(self) -> Trace:
        return Trace(self.task, self.episode.trajectory, self.failure, self.is_open)


class Student(NamedTuple):
    """Who will learn the traces: the teacher reads of a trace what the student will read of an episode."""

    scaffold: Scaffold = DEFAULT
    context: ContextLimits = ContextLimits()
    system: str = ""
    """What stands before the question."""
    count_tokens: TokenCount = estimate_tokens


class Generation:
    """Writes one trace for each task. Traces and parts of traces that the journal holds are not written again."""

    def __init__(
        self,
        teacher: Teacher,
        toolbox: Toolbox,
        *,
        journal: LineFile,
        max_rounds: int = MAX_ROUNDS,
        max_tokens: int = 16_384,
        together: int = 1,
        concurrency: int = 64,
        begin: Callable[[], Awaitable[None]] | None = None,
        student: Student | None = None,
    ) -> None:
        """Groups of `together` traces advance in step; `concurrency` groups at once, and tool calls of a group at once.

        `begin` is awaited before the teacher's first turn, and not where every trace is in the journal.
        """
        self._teacher = teacher
        self._toolbox = toolbox
        self._journal = journal
        # The first turn without an action ends the trace: it is rejected whatever follows.
        self._limits = EpisodeLimits(
            max_calls=max_rounds - 1, max_turns=max_rounds, max_tokens=max_tokens, max_idle_turns=1
        )
        self._together = together
        self._concurrency = concurrency
        self._begin = begin
        self._student = student or Student()
        self._beginning = asyncio.Lock()

    async def run(
        self, tasks: Sequence[TeacherTask], *, on_trace: Callable[[Trace], None] | None = None
    ) -> list[Trace]:
        """The traces, in the order of the tasks; `on_trace` hears of each as it ends.

        Raises:
            RepliesPending: what there is, is in the journal; run again when the replies are there.
            ConfigError: the journal holds a task's trace for another question, or by another teacher.
        """
        recorded = recover_entries(self._journal)
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
        recorded: Mapping[str, list[JournalEntry]],
        *,
        on_trace: Callable[[Trace], None] | None,
    ) -> list[Trace]:
        attempts = [self._replay(task, recorded.get(task.id, ())) for task in tasks]
        live = [attempt for attempt in attempts if not attempt.episode.is_over]
        while live:
            await self._call_tools([attempt for attempt in live if attempt.call is not None])
            await self._write_turns([attempt for attempt in live if not attempt.episode.is_over])
            live = [attempt for attempt in live if not attempt.episode.is_over]
        traces = [attempt.trace for attempt in attempts]
        if on_trace is not None:
            for trace in traces:
                on_trace(trace)
        return traces

    async def _write_turns(self, attempts: Sequence[_Attempt]) -> None:
        if not attempts:
            return
        by_id = {attempt.trace.next_id: attempt for attempt in attempts}
        entries: dict[str, JournalEntry] = {}
        async with self._beginning:
            if self._begin is not None:
                await self._begin()
            self._begin = None
        for reply in await self._teacher.write([attempt.trace for attempt in attempts]):
            if reply.id not in by_id:
                raise FileFormatError(f"the teacher replied to {reply.id!r}, which was not asked; remove that reply.")
            task = by_id[reply.id].task
            entries[reply.id] = JournalEntry(
                task=task.id, query=task.query.key, teacher=self._teacher.name, reply=reply
            )
        # A server that fails is asked again by the next run; a batch that fails has its reply in a file.
        append_entries(self._journal, (entry for entry in entries.values() if not entry.reply or not entry.reply.error))
        for turn_id, entry in entries.items():
            by_id[turn_id].take(entry)

    def _replay(self, task: TeacherTask, entries: Sequence[JournalEntry]) -> _Attempt:
        scaffold, context, system, count_tokens = self._student
        episode = Episode(
            task.query,
            limits=self._limits,
            count_tokens=count_tokens,
            scaffold=scaffold,
            context=context,
            system=system,
        )
        attempt = _Attempt(task, episode)
        for entry in entries:
            # An id says little: another file's question may have it, and its trace would answer that one.
            if entry.query and entry.query != task.query.key:
                raise ConfigError(
                    f"{self._journal.path} holds a trace of another question under the id {task.id!r}; "
                    "write these questions into another folder with --out, or give them ids of their own."
                )
            if entry.teacher and entry.teacher != self._teacher.name:
                raise ConfigError(
                    f"{self._journal.path} holds turns of {task.id!r} by the teacher {entry.teacher}, and now the "
                    f"teacher is {self._teacher.name}; use the first one, or write into another folder with --out."
                )
            attempt.take(entry)
        return attempt

    async def _call_tools(self, attempts: Sequence[_Attempt]) -> None:
        slots = asyncio.Semaphore(self._concurrency)

        async def call(attempt: _Attempt) -> None:
            assert attempt.call is not None
            async with slots:
                entry = JournalEntry(task=attempt.task.id, result=await call_tool(self._toolbox, attempt.call))
            append_entries(self._journal, [entry])
            attempt.take(entry)

        await run_together(call(attempt) for attempt in attempts)
