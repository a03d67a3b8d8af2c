"""The environment that a user steps: one question, one policy, emissions in and observations out.

Which question an episode is about: the one that `reset` names, or one drawn from the environment's own.

A text space that accepts real text; Gymnasium's own refuses a space, a line break, an accent.

An event loop in a thread of its own, so that a blocking `step` can drive asynchronous tools, also inside Jupyter.

What an environment falls back on when nothing is configured: the shipped corpus and questions, no key, no network.

An episode for a terminal, stage by stage, each in its colour.

What a user hands to an environment: the default where it is left out, a sentence where it is something else.
"""

import asyncio
import re
import textwrap
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Text

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import OrderError, UsageError
from rubricem_env.domain.judgement import Polarity, Rubric
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Query, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.rewards import RewardMode, Scorer, read_reward_mode
from rubricem_env.env.step import take_step
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import LocalToolbox, Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import load_questions, shipped_corpus_path, shipped_questions_path
from rubricem_env.world.questions import PersistentRubric, Question

_KNOWN = ("query", "question", "answer_format")


def choose_query(options: Mapping[str, Any], queries: Sequence[Query], rng: np.random.Generator) -> Query:
    """The query of the options, or a drawn one.

    Raises:
        UsageError: an option is unknown, the question is empty, the format is not one, or there is nothing to draw from.
    """
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise UsageError(f"reset() got the option {unknown[0]!r}; it knows {', '.join(_KNOWN)}.")
    if "query" in options:
        return _checked_query(options["query"])
    if "question" in options:
        return _named_query(options["question"], options.get("answer_format", AnswerFormat.LONG))
    if not queries:
        raise UsageError(
            'the environment has no questions to draw from; pass queries=..., or reset(options={"question": "..."}).'
        )
    return queries[int(rng.integers(len(queries)))]


def _checked_query(query: object) -> Query:
    if not isinstance(query, Query):
        raise UsageError(
            f"reset()'s option 'query' is a {type(query).__name__}; it is a Query. For plain text use 'question'."
        )
    return query


def _named_query(question: object, answer_format: object) -> Query:
    if not isinstance(question, str) or not question.strip():
        raise UsageError(
            f"reset()'s option 'question' is {question!r}; it is a text with at least one visible character."
        )
    formats = [known.value for known in AnswerFormat]
    if answer_format not in formats:
        raise UsageError(f"reset()'s option 'answer_format' is {answer_format!r}; it is one of {', '.join(formats)}.")
    return Query(question=question, answer_format=AnswerFormat(answer_format))


MAX_LENGTH = 10_000_000
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/=\"'.,:;!?-_\n"


class AnyText(Text):
    """Any string up to a length, the empty one included. `sample()` stays within ASCII."""

    def __init__(self, max_length: int = MAX_LENGTH, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random string of at most 64 characters: what a checker needs, not a policy."""
        del mask, probability  # they choose from the character set, which real text does not have
        size = int(self.np_random.integers(0, 65))
        return "".join(self.np_random.choice(list(_SAMPLE_CHARACTERS), size=size))

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(("AnyText", self.max_length))


T = TypeVar("T")


class LoopThread:
    """Runs coroutines to their end for a synchronous caller. Started by the first one, stopped by `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._starting = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine's result. An interrupt cancels it.

        Raises:
            OrderError: the loop is closed.
        """
        if self._is_closed:
            coroutine.close()
            raise OrderError("the environment is closed; make a new one.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and join its thread; safe to call twice."""
        self._is_closed = True
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # several threads may step environments that share one loop
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="rubricem-env", daemon=True)
                self._thread.start()
            return self._loop


@cache
def _shipped_corpus() -> Corpus:
    return Corpus.from_jsonl(shipped_corpus_path())


def shipped_toolbox() -> LocalToolbox:
    """Both search tools over the shipped corpus; the index is built once a process."""
    return offline_toolbox(_shipped_corpus())


@cache
def offline_queries() -> tuple[Query, ...]:
    """The training questions of the shipped world, with their persistent rubrics."""
    questions = load_questions(shipped_questions_path())
    return tuple(query_of(question) for question in questions if question.split == "train")


def query_of(question: Question) -> Query:
    """What may be known of a question before it is answered: its truth stays behind."""
    return Query(
        question=question.question,
        answer_format=question.answer_format,
        rubrics=tuple(_rubric_of(rubric) for rubric in question.rubrics),
        source=f"almanac:{question.id}",
    )


def _rubric_of(rubric: PersistentRubric) -> Rubric:
    """A negative weight is a negative rubric of that magnitude (choice B2)."""
    return Rubric(
        stage=Stage.ANSWER,
        title=rubric.title,
        description=rubric.description,
        polarity=Polarity.NEGATIVE if rubric.weight < 0 else Polarity.POSITIVE,
        weight=abs(rubric.weight),
        persistent=True,
    )


_COLOURS = {Stage.PLAN: "34", Stage.RESEARCH: "33", Stage.REVIEW: "35", Stage.ANSWER: "32"}
_GREY = "90"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_BLOCK_BEGINS = re.compile(r"(?<=>)(?=<(?!cite|/))")
WIDTH = 100


def render_ansi(reading: Reading, *, colour: bool = True) -> str:
    """The whole episode as text. Control characters are made visible: a page cannot drive the reader's terminal."""
    lines = [_paint(f"Question: {_printable(reading.trajectory.question)}", "1", colour)]
    offset = 0
    shown: Stage | None = None
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.TOOL:
            lines.append(_paint(_wrapped(segment.text, "  │ "), _GREY, colour))
        if segment.origin is not Origin.POLICY:
            continue
        for stage, text in _by_stage(reading, offset, segment.text):
            if stage is not shown:
                heading = f"── {stage.value.upper()} ".ljust(WIDTH, "─")
                lines.append(_paint(f"\n{heading}", f"1;{_COLOURS[stage]}", colour))
                shown = stage
            lines.append(_paint(_wrapped(text, "  "), _COLOURS[stage], colour))
        offset += len(segment.text)
    ending = reading.trajectory.ending
    lines.append(_paint(f"\n── {ending.value if ending else 'running'}", "1", colour))
    return "\n".join(line for line in lines if line.strip())


def _by_stage(reading: Reading, offset: int, text: str) -> list[tuple[Stage, str]]:
    """The parts of one policy segment with the stage that each belongs to."""
    parts = []
    for stage in STAGES:
        for span in reading.spans.of(stage):
            start, end = max(span.start - offset, 0), min(span.end - offset, len(text))
            if start < end:
                parts.append((stage, text[start:end]))
    return parts


def _wrapped(text: str, indent: str) -> str:
    """Wrapped lines; the line breaks of the text are kept, and each block begins a new one."""
    lines: list[str] = []
    for line in _BLOCK_BEGINS.sub("\n", _printable(text)).split("\n"):
        lines += textwrap.wrap(line, WIDTH - len(indent), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _printable(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text


Prompt = Callable[[Query], str]


def read_queries(given: object) -> tuple[Query, ...]:
    """The questions to draw from; those of the shipped world for None.

    Raises:
        UsageError: it is no sequence of queries.
    """
    if given is None:
        return offline_queries()
    if isinstance(given, str | Query) or not isinstance(given, Iterable):
        raise UsageError(f"queries is {_named(given)}; it is a sequence, such as [Query(question='...')].")
    queries = tuple(given)
    for place, query in enumerate(queries):
        if not isinstance(query, Query):
            raise UsageError(f"queries[{place}] is {_named(query)}; each is a Query. Write Query(question='...').")
    return queries


def read_toolbox(given: object) -> Toolbox:
    """The tools; those over the shipped corpus for None.

    Raises:
        UsageError: it cannot be called as tools are.
    """
    if given is None:
        return shipped_toolbox()
    if not isinstance(given, Toolbox):
        raise UsageError(
            f"toolbox is {_named(given)}; a toolbox has `names` and `async call(ToolCall) -> ToolResult`. "
            "Put single tools into one with LocalToolbox(tool, ...)."
        )
    return given


def read_limits(given: object) -> EpisodeLimits:
    """The budgets; the paper's for None.

    Raises:
        UsageError: it is something else than `EpisodeLimits`.
    """
    if given is None:
        return EpisodeLimits()
    if not isinstance(given, EpisodeLimits):
        raise UsageError(f"limits is {_named(given)}; it is EpisodeLimits. Write EpisodeLimits(max_calls=...).")
    return given


def read_prompt(given: object) -> Prompt:
    """The function from a query to what `reset` returns, whose result is looked at each time.

    Raises:
        UsageError: it is no function; or later, it returns no text.
    """
    if not callable(given):
        raise UsageError(f"prompt is {_named(given)}; it is a function, such as lambda query: query.question.")

    def prompt(query: Query) -> str:
        text = given(query)
        if not isinstance(text, str):
            raise UsageError(f"prompt returned {_named(text)} for a query; it returns the text that reset() gives.")
        return text

    return prompt


def _named(value: object) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {kind}"


Info = dict[str, Any]


def question_prompt(query: Query) -> str:
    """The plainest prompt: the question."""
    return query.question


class DeepResearchEnv(gymnasium.Env[str, str]):
    """A deep research episode as a Gymnasium environment.

    An action is one emission of the policy: it ends with a tool call or with the answer. The observation is what the
    policy reads next: the prompt after `reset`, the tool's output after a call, a notice where the turn went wrong.
    `terminated` means that the policy answered, `truncated` that a limit ended the episode.

    `info` after `reset`: `query_key`, `answer_format`. After `step`: `turn`, `calls_used`, `calls_left`,
    `tokens_used`, `violations` (codes of this turn, joined by commas), `tool_status` (or ""), `ending` (or ""); and
    for each stage that this step pays out, `score_<stage>` (a number, or None) and `unscored_<stage>` (None, or why).
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - declared as Gymnasium asks

    def __init__(
        self,
        *,
        queries: Sequence[Query] | None = None,
        toolbox: Toolbox | None = None,
        limits: EpisodeLimits | None = None,
        reward: RewardMode | str = RewardMode.NONE,
        scorer: Scorer | None = None,
        prompt: Callable[[Query], str] = question_prompt,
        render_mode: str | None = None,
    ) -> None:
        self.queries = read_queries(queries)
        self.toolbox = read_toolbox(toolbox)
        self.limits = read_limits(limits)
        self.reward_mode = read_reward_mode(reward, scorer)
        self.scorer = scorer
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._prompt = read_prompt(prompt)
        self._episode: Episode | None = None
        self._loop = LoopThread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode on a question drawn from `queries`.

        `options` may name it instead: {"query": Query(...)}, or {"question": "...", "answer_format": "short"}.
        """
        super().reset(seed=seed)
        query = choose_query(options or {}, self.queries, self.np_random)
        prompt = self._prompt(query)
        self._episode = Episode(query, prompt=prompt, limits=self.limits, seed=seed)
        return prompt, {"query_key": query.key, "answer_format": query.answer_format.value}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's next emission; see the class for what comes back."""
        if not isinstance(action, str):
            raise UsageError(f"the action is a {type(action).__name__}; it is the text of one emission, a str.")
        outcome = take_step(self.episode, action, toolbox=self.toolbox, mode=self.reward_mode, scorer=self.scorer)
        return self._loop.run(outcome)

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            OrderError: there is none yet.
        """
        if self._episode is None:
            raise OrderError("there is no episode yet; call reset() before step() or render().")
        return self._episode

    @property
    def trajectory(self) -> Trajectory:
        """The record of the episode so far."""
        return self.episode.trajectory

    def render(self) -> str | None:
        """The episode so far, stage by stage, for a terminal; None unless render_mode is "ansi"."""
        return render_ansi(self.episode.read()) if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._loop.close()
