"""Who answers the examples of a run: a policy in episodes, the almanac's scripted expert, or a file of answers.

Memory at evaluation is read-only: it shows lessons of other questions from a trained bank, or the agent's reflection
on its own earlier attempt. At inference there is no judge: within an example one reflection at temperature 0.7 is
taken unranked (choice C20).
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rubricem_agent.evals.base import Example, shown
from rubricem_agent.evals.files import read_answers
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import AnswerFormat, Query, ToolCall, ToolResult
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import FETCH_PAGE
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.questions import Question
from rubricem_records.evaluation_logs import AnswerRecord, CaseKey
from rubricem_records.rollouts import Rollout

Answerer = Callable[..., Awaitable[AnswerRecord]]
"""An agent: answerer(example, *, answer_format, guidance="", epoch=0) attempts one example.

Its record has a trajectory, an answer without one, or a failure of the world. `guidance` describes the answer's form and follows the question. Many examples are answered at once on one event loop.
It raises SpendLimitReached where the budget is used up; any other exception fails this example alone.
"""


References = Callable[[str, Sequence[Rollout]], Awaitable[str]]
"""What a memory shows before a question, given the earlier attempts at it: a reference block, or nothing."""


Reuse = Literal["none", "cross", "within"]
"""Which reflections are shown before a question.

cross: those on similar questions, from a trained bank. within: the agent's reflection on its earlier attempt at the
same question, which needs two attempts.
"""


async def no_references(question: str, attempts: Sequence[Rollout]) -> str:
    """The default of the paper's main tables: no memory."""
    return ""


async def cross_references(question: str, attempts: Sequence[Rollout], *, bank: RubricBank, injector: Injector) -> str:
    """Lessons retrieved from a trained bank, which is never written to."""
    retrieved = await asyncio.to_thread(bank.retrieve, question, "cross")
    return injector.render(retrieved, "cross")[0]


async def within_references(
    question: str,
    attempts: Sequence[Rollout],
    *,
    open_bank: Callable[[], RubricBank],
    open_reflector: Callable[[RubricBank], Reflector],
    injector: Injector,
) -> str:
    """A reflection on the last attempt alone; other examples never see it.

    Empty before the first attempt, and where the reflection has the wrong form.

    Raises ModelError where the policy failed while it reflected.
    """
    if not attempts:
        return ""
    bank = open_bank()
    await open_reflector(bank).reflect_unjudged(attempts[-1].parsed)
    return injector.render(bank.retrieve(question, "within"), "within")[0]


async def answer_in_episodes(
    example: Example,
    *,
    answer_format: AnswerFormat,
    context: RolloutContext,
    prompt: AgentPrompt,
    guidance: str = "",
    epoch: int = 0,
    references: References = no_references,
    attempts: int = 1,
    seed: int = 0,
) -> AnswerRecord:
    """Answer with a policy in episodes, by `run_episode`: the agent as it is evaluated.

    Of several attempts the last one's answer counts, and the usage of all; a failure ends them.
    """
    query = Query(question=example.prompt_text, answer_format=answer_format)
    key = CaseKey(example.id, epoch)
    done: list[Rollout] = []
    for number in range(attempts):
        opening = prompt.opening(query, references=await references(query.question, done))
        if guidance:
            opening = opening._replace(user=f"{opening.user}\n{guidance}")
        attempt_seed = seed_of(seed, key, attempt=number)
        done.append(await run_episode(Attempt(query, opening, prompt.hash, attempt_seed), context))
        if done[-1].failure:
            break
    usage = sum((rollout.usage for rollout in done), Usage())
    last = done[-1]
    return AnswerRecord(
        id=key.id,
        epoch=key.epoch,
        trajectory=last.trajectory,
        failure=last.failure,
        usage=usage,
        model=context.policy.name,
    )


def seed_of(seed: int, key: CaseKey, *, attempt: int) -> int:
    """The same for the same example, epoch and attempt, in every order of completion; 31 bits, as servers take."""
    name = f"{seed}/{key.id}/{key.epoch}/{attempt}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % 2**31


@dataclass
class ExpertWriter:
    """One episode of the almanac's expert, which knows the truth of its question and bounds what a policy can reach."""

    teacher: AlmanacTeacher
    _observations: list[str] = field(default_factory=list)

    def emission(self, observation: str) -> str:
        """The next turn. The first observation is the prompt, which contains no search result."""
        self._observations.append(observation)
        return self.teacher.turn(self._observations[1:])


def expert_policy(questions: Sequence[Question], *, is_flat: bool) -> ScriptedPolicy:
    """The expert for any of the questions, found by the question's words in the prompt.

    Its episodes raise UsageError for other questions.
    """
    by_words = {question.question: question for question in questions}

    def open_episode(opening: Opening, _seed: int) -> ExpertWriter:
        words = next((words for words in by_words if words in opening.user), None)
        if words is None:
            raise UsageError("the policy expert knows the questions of the almanac alone. Use it with that benchmark.")
        return ExpertWriter(AlmanacTeacher(by_words[words], is_flat=is_flat))

    return ScriptedPolicy(open_episode, name="expert")


@dataclass(frozen=True)
class LimitedToolbox:
    """Limits how many calls of a toolbox run at once, whatever the number of episodes."""

    toolbox: Toolbox
    slots: asyncio.Semaphore

    @property
    def names(self) -> tuple[str, ...]:
        return self.toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        async with self.slots:
            return await self.toolbox.call(call)


async def read_page(toolbox: Toolbox, url: str) -> str:
    """The text of a web page, read with `fetch_page`; empty where the tool failed or found nothing."""
    result = await toolbox.call(ToolCall(name=FETCH_PAGE, query=url))
    if result.status.is_error:
        return ""
    return result.summary or "\n".join(snippet.text for snippet in result.snippets)


@dataclass(frozen=True)
class GivenAnswers:
    """Answers from a file, by example id."""

    name: str
    answers: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "GivenAnswers":
        """The answers of a file. Raises FileFormatError where a line is malformed, or an id is given twice."""
        return cls(f"file:{path.name}", read_answers(path))

    def refuse_unknown(self, known: Sequence[str], *, ids: str) -> None:
        """Compare the ids with those of the benchmark, which `ids` describes.

        Raises FileFormatError where an answer has an id of no example.
        """
        unknown = sorted(self.answers.keys() - set(known))
        if unknown:
            raise FileFormatError(
                f"{self.name} has {len(unknown)} of {len(self.answers)} answers to no example, the first to "
                f"{unknown[0]!r}; the ids of this benchmark are: {ids}, here {known[0]!r} to {known[-1]!r}. Correct "
                "the ids, or leave these lines out."
            )

    def refuse_changed(self, answered: Iterable[AnswerRecord]) -> None:
        """Compare the file with the answers that a run has already taken from it; new answers are allowed.

        Raises UsageError where an answer was changed or removed.
        """
        for record in answered:
            now = self.answers.get(record.id)
            if record.is_final and record.given != now:
                raise UsageError(
                    f"{self.name} has changed since the run took its answers: example {record.id} was "
                    f"{shown(record.given)} and is now {shown(now)}; its numbers would mix both. Use another --out."
                )

    async def answer(
        self, example: Example, *, answer_format: AnswerFormat, guidance: str = "", epoch: int = 0
    ) -> AnswerRecord:
        """The answer as given, even an empty one; an example without a line is a failure."""
        given = self.answers.get(example.id)
        failure = "" if given is not None else f"{self.name} has no answer for this example"
        return AnswerRecord(id=example.id, epoch=epoch, given=given, failure=failure)
