"""The almanac's scripted expert as a policy: it knows the truth of its question, and bounds what a policy can reach.

Search under a limit of its own: so many calls at once, whatever the number of episodes.

Web pages through the toolbox, for FACT.

The rubric bank at evaluation, read-only: lessons of other questions, or of the agent's own earlier attempt.

At inference there is no judge: within an example one reflection at temperature 0.7 is taken unranked (choice C20).

What a run asks of an agent: one answer to one example, or the reason why there is none.

A policy that answers in episodes with the search tools: the agent as it is evaluated.

Answers from a file: JSON Lines of {"id", "answer"}, as any other system may have written them.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import AliasChoices, Field

from rubricem_agent.evals.base import BenchmarkFileError, Example
from rubricem_agent.evals.files import Advice, FileRow, json_lines, read_row
from rubricem_agent.evals.records import AnswerRecord
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Setting, run_episode
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import AnswerFormat, Query, ToolCall, ToolResult, Trajectory
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.tools.base import FETCH_PAGE, Toolbox
from rubricem_env.world.expert import AlmanacTeacher, Faults
from rubricem_env.world.questions import Question


class ExpertWriter:
    """One episode of the expert."""

    def __init__(self, teacher: AlmanacTeacher) -> None:
        self._teacher = teacher
        self._observations: list[str] | None = None

    def emission(self, observation: str) -> str:
        """The first one is given the prompt, which holds nothing that was searched for."""
        if self._observations is None:
            self._observations = []
        else:
            self._observations.append(observation)
        return self._teacher.turn(self._observations)


class ExpertSchool:
    """Finds the expert for a question by the question's words."""

    def __init__(self, questions: Mapping[str, Question], *, is_flat: bool, faults: Faults) -> None:
        self._questions = questions
        self._is_flat = is_flat
        self._faults = faults

    @classmethod
    def over(cls, questions: Sequence[Question], *, is_flat: bool, faults: Faults | None = None) -> "ExpertSchool":
        known = {question.question: question for question in questions}
        return cls(known, is_flat=is_flat, faults=faults or Faults())

    def policy(self) -> ScriptedPolicy:
        """The expert for any question of the world."""
        return ScriptedPolicy(self.open, name="expert")

    def open(self, opening: Opening, seed: int) -> ExpertWriter:
        """The expert for the question of an opening.

        Raises:
            UsageError: the question is not of this world.
        """
        asked = next((words for words in self._questions if words in opening.user), None)
        if asked is None:
            raise UsageError("the policy expert knows the questions of the almanac alone. Use it with that benchmark.")
        question = self._questions[asked]
        return ExpertWriter(AlmanacTeacher.for_seed(question, self._faults, seed=seed, is_flat=self._is_flat))


class LimitedToolbox:
    """A toolbox in front of another one."""

    def __init__(self, toolbox: Toolbox, slots: asyncio.Semaphore) -> None:
        self._toolbox = toolbox
        self._slots = slots

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        async with self._slots:
            return await self._toolbox.call(call)


class ToolboxPages:
    """Reads pages with `fetch_page`."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def read(self, url: str) -> str:
        """The text of the page; empty where the tool failed or found nothing."""
        result = await self._toolbox.call(ToolCall(name=FETCH_PAGE, query=url))
        if result.status.is_error:
            return ""
        return result.summary or "\n".join(snippet.text for snippet in result.snippets)


class Reuse(StrEnum):
    """What is put before a question."""

    NONE = "none"
    CROSS = "cross"
    """Reflections on similar questions, from a bank that is given."""
    WITHIN = "within"
    """The agent's reflection on its earlier attempt at the same question: needs two attempts."""


class CrossReuse:
    """Retrieves from a trained bank and never writes to it."""

    def __init__(self, bank: RubricBank, injector: Injector) -> None:
        self._bank = bank
        self._injector = injector

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        found = await asyncio.to_thread(self._bank.retrieve, question, Retrieval.CROSS)
        return self._injector.inject(question, found, Retrieval.CROSS).block


class WithinReuse:
    """Reflects on the last attempt and shows that reflection alone; what one example learns reaches no other."""

    def __init__(
        self,
        open_bank: Callable[[], RubricBank],
        open_reflector: Callable[[RubricBank], Reflector],
        *,
        injector: Injector,
    ) -> None:
        self._open_bank = open_bank
        self._open_reflector = open_reflector
        self._injector = injector

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        """Nothing before the first attempt, and nothing where the reflection has not the right form.

        Raises:
            ModelError: the policy failed while it reflected.
        """
        if not attempts:
            return ""
        bank = self._open_bank()
        await self._open_reflector(bank).reflect_unjudged(read_trajectory(attempts[-1].trajectory))
        return self._injector.inject(question, bank.retrieve(question, Retrieval.WITHIN), Retrieval.WITHIN).block


class Task(NamedTuple):
    """One example as it is given to an agent, in one epoch."""

    example: Example
    answer_format: AnswerFormat
    guidance: str = ""
    """What is said of the answer's form, after the question."""
    epoch: int = 0


class AnswerOutcome(NamedTuple):
    """A finished attempt, or a failure of the world: never both, never neither."""

    trajectory: Trajectory | None = None
    given: str | None = None
    """An answer without a trajectory."""
    failure: str = ""
    usage: Usage = Usage()
    model: str = ""


class Answerer(Protocol):
    """An agent. Many tasks run at once on one event loop."""

    @property
    def name(self) -> str: ...

    async def answer(self, task: Task) -> AnswerOutcome:
        """Attempt the task.

        Raises:
            ModelError: the policy failed; so does any other exception at the runner's boundary, for this example alone.
            SpendLimitReached: the run may spend no more.
        """
        ...

    async def aclose(self) -> None: ...


_SEEDS = 2**31
"""Servers take seeds of 31 bits."""


class References(Protocol):
    """What a memory puts before a question."""

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        """A reference block, or nothing; `attempts` are the earlier ones at this question."""
        ...


class NoReferences:
    """The default of the paper's main tables: no memory."""

    async def before(self, question: str, *, attempts: tuple[Rollout, ...]) -> str:
        return ""


class AgentOptions(NamedTuple):
    """How the agent goes about a question."""

    prompt: AgentPrompt
    references: References = NoReferences()
    attempts: int = 1
    """Episodes in a row; the last one's answer counts, and the usage of all."""
    seed: int = 0


class EpisodeAnswerer:
    """One episode for each attempt, by `run_episode`."""

    def __init__(self, setting: Setting, habits: AgentOptions) -> None:
        self._setting = setting
        self._habits = habits

    @property
    def name(self) -> str:
        return self._setting.policy.name

    async def answer(self, task: Task) -> AnswerOutcome:
        """Attempt the task as often as the habits say; a failure ends it."""
        query = Query(question=task.example.prompt_text, answer_format=task.answer_format)
        done: tuple[Rollout, ...] = ()
        for number in range(self._habits.attempts):
            references = await self._habits.references.before(query.question, attempts=done)
            opening = with_guidance(self._habits.prompt.opening(query, references=references), task.guidance)
            seed = seed_of(self._habits.seed, task, attempt=number)
            attempt = Attempt(query, opening, self._habits.prompt.hash, seed)
            done = (*done, await run_episode(attempt, self._setting))
            if done[-1].failure:
                break
        usage = sum((rollout.usage for rollout in done), Usage())
        return AnswerOutcome(done[-1].trajectory, failure=done[-1].failure, usage=usage, model=self.name)

    async def aclose(self) -> None:
        await self._setting.policy.aclose()


def with_guidance(opening: Opening, guidance: str) -> Opening:
    """The prompt suffix, on a line of its own after the form of the answer."""
    return opening._replace(user=f"{opening.user}\n{guidance}") if guidance else opening


def seed_of(seed: int, task: Task, *, attempt: int) -> int:
    """The same for the same example, epoch and attempt, whatever runs beside it."""
    name = f"{seed}/{task.example.id}/{task.epoch}/{attempt}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % _SEEDS


ANSWERS_FILE = Advice(
    "an answers file",
    "name the file of your answers with --policy file:ANSWERS.jsonl",
    'Write one line for each example: {"id": ..., "answer": ...}.',
)
_SHOWN = 60


class _AnswerRow(FileRow):
    id: Text | int
    answer: Text = Field(validation_alias=AliasChoices("answer", "article", "response", "prediction"))


class GivenAnswers:
    """Hands out answers by example id."""

    def __init__(self, name: str, answers: Mapping[str, str]) -> None:
        self._name = name
        self._answers = answers

    @classmethod
    def read(cls, path: Path) -> "GivenAnswers":
        """The answers of a file; DeepResearchBench's own article files are read as well.

        Raises:
            BenchmarkFileError: a line is malformed, or an id is given twice.
        """
        answers: dict[str, str] = {}
        for place in json_lines(path, ANSWERS_FILE):
            row = read_row(place, _AnswerRow)
            if str(row.id) in answers:
                raise BenchmarkFileError(
                    f"{place.where}: the id {row.id!r} already has an answer; a file holds one per example. "
                    "Remove one of the two lines."
                )
            answers[str(row.id)] = row.answer
        return cls(f"file:{path.name}", answers)

    @property
    def name(self) -> str:
        return self._name

    def refuse_unknown(self, known: Sequence[str], *, ids: str) -> None:
        """Hold the ids to those of the benchmark: `ids` says in words what they are.

        Raises:
            BenchmarkFileError: an answer is to no example.
        """
        unknown = sorted(self._answers.keys() - set(known))
        if unknown:
            raise BenchmarkFileError(
                f"{self._name} has {len(unknown)} of {len(self._answers)} answers to no example, the first to "
                f"{unknown[0]!r}; the ids of this benchmark are: {ids}, here {known[0]!r} to {known[-1]!r}. Correct "
                "the ids, or leave these lines out."
            )

    def refuse_changed(self, answered: Iterable[AnswerRecord]) -> None:
        """Hold the file to what a run has taken from it already; answers that are new in it do no harm.

        Raises:
            UsageError: an answer has changed, or is gone.
        """
        for record in answered:
            now = self._answers.get(record.id)
            if record.is_final and record.given != now:
                raise UsageError(
                    f"{self._name} has changed since the run took its answers: example {record.id} was "
                    f"{_shown(record.given)} and is now {_shown(now)}; its numbers would mix both. Use another --out."
                )

    async def answer(self, task: Task) -> AnswerOutcome:
        """The answer as it stands there, also an empty one; an example without a line is a failure."""
        given = self._answers.get(task.example.id)
        if given is None:
            return AnswerOutcome(failure=f"{self._name} has no answer for this example")
        return AnswerOutcome(given=given)

    async def aclose(self) -> None:
        return None


def _shown(answer: str | None) -> str:
    if answer is None:
        return "not there"
    return repr(answer) if len(answer) <= _SHOWN else f"{answer[:_SHOWN]!r}..."
