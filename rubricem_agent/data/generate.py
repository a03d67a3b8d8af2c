"""Multi-round generation of traces (paper, section B.2): rounds of teacher turns and tool calls until every trace ends.

The journal has a line for every turn and every tool result. Each line is written before the next step, so that a
killed run resumes and pays for nothing twice. A truncated last line is dropped; any other broken line is refused.
"""

import asyncio
import json
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import Field

from rubricem_agent.data.prepare import almanac_question, query_in
from rubricem_env.concurrency import run_together
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ConfigError, FileFormatError, RubricEMError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.domain.trajectory import Origin, Query, ToolCall, ToolResult, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.step import call_tool
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.questions import Question
from rubricem_records.atomic_files import MAKE_ROOM, writing
from rubricem_records.line_file import LineFile


class TeacherTask(NamedTuple):
    """One question to write a trace for; the id is unique within a run."""

    id: str
    query: Query


class Trace(NamedTuple):
    """An episode of a task, finished or under way."""

    task: TeacherTask
    trajectory: Trajectory
    """The record so far."""
    failure: str = ""
    """Why the teacher stopped writing; empty where the trace ended by itself."""
    is_open: bool = False
    """Whether the teacher's server failed: no fault of the trace, and the next run asks again."""

    @property
    def round(self) -> int:
        """The number of the next turn, from 1."""
        return 1 + sum(segment.origin is Origin.POLICY for segment in self.trajectory.segments)

    @property
    def next_id(self) -> str:
        """The id of the next turn."""
        return f"{self.task.id}.{self.round}"


class TurnReply(Frozen):
    """A teacher's reply to one turn: a text, or the reason why there is none."""

    id: Text
    text: Text = ""
    error: Text = ""
    outage: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Whether the error is the server's, and says nothing of the trace."""


class Teacher(Protocol):
    """Writes the next turns of many episodes."""

    @property
    def name(self) -> str: ...

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        """One reply to the next turn of each trace, in any order. A failure of the model is a reply with an error.

        Raises:
            RepliesPending: someone else writes the replies, and has not yet.
        """
        ...

    async def aclose(self) -> None: ...


class RepliesPending(RubricEMError):
    """The run stops here, whole: start it again when the replies are there. Not a failure."""


class JournalEntry(Frozen):
    """One event of one episode: the teacher's reply, or the result of the call that it ended in."""

    task: Text
    query: Text = ""
    """The key of the question that was replied to; empty in the journals of earlier releases."""
    teacher: Text = ""
    """Who replied."""
    reply: TurnReply | None = None
    result: ToolResult | None = None


def append_entries(journal: LineFile, entries: Iterable[JournalEntry]) -> None:
    """Add entries in one write. A `kill -9` afterwards loses none of them; raises ConfigError where the disk refuses."""
    with writing(journal.path, MAKE_ROOM):
        journal.append([entry.model_dump_json(exclude_none=True).encode() for entry in entries])


def recover_entries(journal: LineFile) -> dict[str, list[JournalEntry]]:
    """The entries of each task so far; a truncated last line is removed from the file.

    Raises:
        FileFormatError: a line before the last is no entry.
    """
    journal.repair()
    by_task: dict[str, list[JournalEntry]] = {}
    for number, line in enumerate(journal.read(), start=1):
        where = f"{journal.path}, line {number}"
        with validating(f"{where} is no journal entry", "Restore the file, or start again in another folder."):
            entry = JournalEntry.model_validate_json(line)
        by_task.setdefault(entry.task, []).append(entry)
    return by_task


QuestionFile = tuple[list[TeacherTask], dict[str, Question]]
"""The questions of a file, and the almanac's questions by id where the file has them."""


def read_question_file(path: Path) -> QuestionFile:
    """The questions of a file, in its order; of the almanac's only those to train on. `query_in` says what a line may be.

    Raises:
        FileFormatError: the file cannot be read, a line is no question, an id stands twice, or there is no question.
    """
    tasks: dict[str, TeacherTask] = {}
    almanac: dict[str, Question] = {}
    for where, line in read_lines(path, "a JSONL file of questions"):
        read_id, query, question = _read_line(line, where)
        if question is not None and question.split != "train":
            continue
        name = read_id or where.rpartition(" ")[2]
        if name in tasks:
            raise FileFormatError(f"{where}: the id {name!r} occurs twice; ids are unique.")
        if question is not None:
            almanac[name] = question
        tasks[name] = TeacherTask(name, query)
    if not tasks:
        raise FileFormatError(f"{path} holds no training question; write one JSON object with 'question' on each line.")
    return list(tasks.values()), almanac


def _read_line(line: str, where: str) -> tuple[str, Query, Question | None]:
    """The id, which may be empty, the query, and the almanac's question where the line is one."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. Was the file cut off?") from cause
    try:
        query = query_in(fields)
    except FileFormatError as cause:
        raise FileFormatError(f"{where} is not a question: {str(cause).removesuffix('.')}.") from cause
    if "truth" in fields:
        question = almanac_question(fields)
        return question.id, query, question
    read_id = fields.get("id") or ""
    if not isinstance(read_id, str | int):
        raise FileFormatError(f"{where} is not a question: its id is {read_id!r:.60}; it is a text or a number.")
    return str(read_id), query, None


MAX_ROUNDS = 10
"""The answer's round included (choice A12)."""


class _Attempt:
    """One episode under way."""

    def __init__(self, task: TeacherTask, limits: EpisodeLimits) -> None:
        self.task = task
        self.episode = Episode(task.query, limits=limits)
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


class Generation:
    """Writes one trace for each task. Traces that the journal holds already, or parts of them, are not written again."""

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
        attempt = _Attempt(task, self._limits)
        for entry in entries:
            # An id says little: another file's question may have it, and its trace would answer that one.
            if entry.query and entry.query != task.query.key:
                raise ConfigError(
                    f"{self._journal.path} holds a trace of another question under the id {task.id!r}; "
                    "write these questions into another folder with --out, or give them ids of their own."
                )
            if entry.teacher and entry.teacher != self._teacher.name:
                raise ConfigError(
                    f"{self._journal.path} holds turns of {task.id!r} by the teacher {entry.teacher}, and now the teacher "
                    f"is {self._teacher.name}; use the first one, or write into another folder with --out."
                )
            # Earlier releases recorded failures as well.
            if entry.reply is None or not entry.reply.error:
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
