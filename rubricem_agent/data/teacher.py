"""Teachers that write traces (the almanac's script, or a live chat model), their prompts, and the cost estimate.

The first round has its own prompt; later rounds see all previous turns. A turn that fails for good is a reply with an
error.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple

from rubricem_agent.data.base import TeacherTask, Trace, TurnReply
from rubricem_agent.data.generate import MAX_ROUNDS
from rubricem_agent.prompting import AgentPromptFile, fill, prompt_from_text, read_prompt, stage_prompts
from rubricem_env.concurrency import run_together
from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.domain.trajectory import Origin, Query, Trajectory
from rubricem_env.env.view import next_view
from rubricem_env.llm.ask import ask_once
from rubricem_env.llm.chat import ChatModel, ChatRequest
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.prices import PRICES, Price, price_of
from rubricem_env.llm.usage import Spent, Usage
from rubricem_env.scaffold.untrusted import defuse, neutralize
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.expert_faults import Faults, draw_slips
from rubricem_env.world.questions import Question

PURPOSE = "teacher"


FIRST, LATER = "teacher_first", "teacher_later"
"""The prompts of a teacher in a set's folder; without them it has the agent's."""


def asked(query: Query, stage_set: StageSet = DEEP_RESEARCH) -> str:
    """The question with the instruction of its format."""
    form = stage_prompts(stage_set)[f"format_{query.answer_format}"].text.strip()
    return f"{neutralize(query.question.strip(), stage_set.scaffold)}\n\n{form}"


class TeacherPrompts(NamedTuple):
    """The two prompts of a teacher, and what it may write."""

    first: AgentPromptFile
    later: AgentPromptFile
    temperature: float = 1.0
    max_output_tokens: int = 8192
    max_rounds: int = MAX_ROUNDS
    stage_set: StageSet = DEEP_RESEARCH

    @classmethod
    def ours(cls, *, flat: bool = False, **limits: Any) -> "TeacherPrompts":
        """`flat` asks for thoughts, searches and an answer alone; `limits` are fields of this class."""
        if flat:
            return cls(read_prompt("teacher_flat_first"), read_prompt("teacher_flat_later"))._replace(**limits)
        return cls.of_stages(DEEP_RESEARCH, rules="", **limits)

    @classmethod
    def of_stages(cls, stage_set: StageSet, *, rules: str, **limits: Any) -> "TeacherPrompts":
        """The prompts of a set's folder; where it has none, `rules`, which are the agent's, with the work so far."""
        own = [prompt_from_text(name, stage_set.prompts[name]) for name in (FIRST, LATER) if name in stage_set.prompts]
        if len(own) == 1:
            raise ConfigError(
                f"the stage set {stage_set.name} has {own[0].name}.md and not the other prompt of a teacher; it needs "
                f"{FIRST}.md and {LATER}.md, or neither for the agent's own rules."
            )
        turns = read_prompt("teacher_turn")
        first, later = own or [
            prompt_from_text(
                name, f"<!-- section: system -->\n{rules}\n<!-- section: user -->\n{turns.section(part)}\n"
            )
            for name, part in ((FIRST, "first"), (LATER, "later"))
        ]
        return cls(first, later, stage_set=stage_set)._replace(**limits)

    @property
    def hash(self) -> str:
        """Of both prompts together; kept with every sample."""
        return hashlib.sha256(f"{self.first.hash}{self.later.hash}".encode()).hexdigest()[:16]

    def request(self, trace: Trace) -> ChatRequest:
        """The request for the next turn of a trace."""
        prompt = self.first if trace.round == 1 else self.later
        scaffold = self.stage_set.scaffold
        parts = {"question": asked(trace.task.query, self.stage_set)}
        if trace.round > 1:
            parts["history"] = defuse("\n".join(_read_so_far(trace.trajectory)), scaffold)
            parts["rounds_left"] = str(self.max_rounds - trace.round + 1)
        return ChatRequest(
            prompt=fill(prompt.section("user"), parts),
            system=prompt.section("system"),
            purpose=PURPOSE,
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
        )


def _read_so_far(trajectory: Trajectory) -> list[str]:
    """The turns and results that the teacher reads: all of them, or those of a folded view."""
    if trajectory.folds:
        return [part for turn in next_view(trajectory).turns for part in (turn.text, turn.observation)]
    return [segment.text for segment in trajectory.segments if segment.origin is not Origin.PROMPT]


@dataclass(frozen=True)
class ScriptedTeacher:
    """Writes for the questions of one world, by whose name faults are drawn; `flat` leaves the scaffold out.

    Raises:
        ConfigError: it is asked for a question that is not of its world.
    """

    questions: Mapping[str, Question]
    _: KW_ONLY
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    world: str = ""
    flat: bool = False
    name: str = field(default="scripted", init=False)

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        return [TurnReply(id=trace.next_id, text=self._write(trace)) for trace in pending]

    async def aclose(self) -> None:
        return

    def _write(self, trace: Trace) -> str:
        question = self.questions.get(trace.task.id)
        if question is None:
            raise ConfigError(
                f"the scripted teacher knows no question {trace.task.id!r}; it writes for almanac questions alone. "
                "Use a model as the teacher, or a questions file of the almanac."
            )
        observations = [segment.text for segment in trace.trajectory.segments if segment.origin is Origin.TOOL]
        slips = draw_slips(question, self.faults, seed=self.seed, world=self.world)
        return AlmanacTeacher(question, slips, is_flat=self.flat).turn(observations)


class ChatTeacher:
    """Asks a model, which limits and meters itself.

    The error of a reached spending limit passes through: the journal keeps what is paid.
    """

    def __init__(self, model: ChatModel, prompts: TeacherPrompts, *, timing: Timing, retry: RetryPolicy) -> None:
        self.name = model.name
        self._model = model
        self._prompts = prompts
        self._timing = timing
        self._retry = retry

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        return await run_together(self._write(trace) for trace in pending)

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _write(self, trace: Trace) -> TurnReply:
        try:
            reply = await call_with_retry(
                partial(ask_once, self._model, self._prompts.request(trace)),
                doing=f"ask the teacher for turn {trace.next_id}",
                error=ModelError,
                policy=self._retry,
                timing=self._timing,
            )
        except ModelError as failure:
            return TurnReply(id=trace.next_id, error=str(failure), outage=True)
        return TurnReply(id=trace.next_id, text=reply.text)


def estimate(
    tasks: Sequence[TeacherTask],
    prompts: TeacherPrompts,
    *,
    model: str,
    rounds: int = 5,
    turn_tokens: int = 900,
    observation_tokens: int = 1_200,
    prices: Mapping[str, Price] = PRICES,
    fold_at: int | None = None,
) -> tuple[Spent, Spent]:
    """The expected cost of a trace for each task, and the most: every trace takes all rounds and fills each reply.

    `rounds` includes the answer's; `turn_tokens` are written in a round and include hidden thoughts, which are billed.
    Measure a few traces and correct these numbers. A batch tariff or cached input costs less than list prices, retries
    cost more.
    """
    price = price_of(model, prices)
    questions = sum(estimate_tokens(asked(task.query, prompts.stage_set)) for task in tasks)

    def cost(rounds: int, turn: int) -> Spent:
        """Each round reads the prompt, the question, and everything before it, or what is not folded of that."""
        read = estimate_tokens(prompts.first.text) + (rounds - 1) * estimate_tokens(prompts.later.text)
        each = turn + observation_tokens
        history = sum(each * done if fold_at is None else min(each * done, fold_at) for done in range(rounds))
        calls = len(tasks) * rounds
        input_tokens = rounds * questions + len(tasks) * (read + history)
        usage = Usage(calls=calls, input_tokens=input_tokens, output_tokens=calls * turn)
        if price is None:
            return Spent(usage=usage, unpriced_calls=calls)
        return Spent(usage=usage, dollars=price.cost(input_tokens, 0, calls * turn))

    return cost(min(rounds, prompts.max_rounds), turn_tokens), cost(prompts.max_rounds, prompts.max_output_tokens)
