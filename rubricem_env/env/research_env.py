"""The environment that a user steps: one question, one policy, emissions in and observations out.

What is left out of its arguments comes from the shipped world: an offline corpus and its questions, without key or
network. `render` prints an episode stage by stage, in colour.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Text
from gymnasium.vector.utils.shared_memory import create_shared_memory

from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Origin, Query, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.rewards import RewardMode, Scorer, check_reward
from rubricem_env.env.step import take_step
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import TERMINAL_CONTROL
from rubricem_env.tools.base import LocalToolbox, Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import load_questions, shipped_corpus_path, shipped_questions_path
from rubricem_env.world.questions import Question

_KNOWN = ("query", "question", "answer_format")


def choose_query(options: Mapping[str, Any], queries: Sequence[Query], rng: np.random.Generator) -> Query:
    """The query of `reset`'s options, else one drawn from `queries`.

    Raises:
        UsageError: an option is unknown or invalid, or there is nothing to draw from.
    """
    unknown = sorted(set(options) - set(_KNOWN))
    if unknown:
        raise UsageError(f"reset() got the option {unknown[0]!r}; it knows {', '.join(_KNOWN)}.")
    if "query" in options:
        query = options["query"]
        if not isinstance(query, Query):
            raise UsageError(
                f"reset()'s option 'query' is a {type(query).__name__}; it must be a Query. For plain text use 'question'."
            )
        return query
    if "question" in options:
        with validating("reset()'s options do not name a question", error=UsageError):
            named = {name: options[name] for name in ("question", "answer_format") if name in options}
            return Query.model_validate(named, strict=False)
    if not queries:
        raise UsageError(
            'the environment has no questions to draw from; pass queries=..., or reset(options={"question": "..."}).'
        )
    return queries[int(rng.integers(len(queries)))]


MAX_LENGTH = 10_000_000
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/=\"'.,:;!?-_\n"


class AnyText(Text):
    """Any string up to a length, the empty one included; Gymnasium's own space refuses spaces and accents.

    `sample()` stays within ASCII.
    """

    def __init__(self, max_length: int = MAX_LENGTH, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random string of at most 64 characters, for Gymnasium's environment checker."""
        del mask, probability  # they select from a character set, which real text does not have
        size = int(self.np_random.integers(0, 65))
        return "".join(self.np_random.choice(list(_SAMPLE_CHARACTERS), size=size))

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(("AnyText", self.max_length))


@create_shared_memory.register(AnyText)
def _refuse_shared_memory(space: AnyText, n: int = 1, ctx: object = None) -> NoReturn:
    """Gymnasium would fill the buffer to its full length, and lose every character outside the sample set."""
    del space, n, ctx
    raise UsageError(
        "vectorization_mode='async' keeps observations in shared memory, which cannot hold text of any length. Leave "
        "the mode out for one process in which tool calls overlap, or add vector_kwargs={'shared_memory': False}."
    )


@cache
def shipped_toolbox() -> LocalToolbox:
    """Both search tools over the shipped corpus; made once per process."""
    return offline_toolbox(Corpus.from_jsonl(shipped_corpus_path()))


@cache
def offline_queries() -> tuple[Query, ...]:
    """The training questions of the shipped world, with their persistent rubrics."""
    questions = load_questions(shipped_questions_path())
    return tuple(query_of(question) for question in questions if question.split == "train")


def query_of(question: Question) -> Query:
    """The question without its answer. A rubric of negative weight becomes a negative rubric (choice B2)."""
    return Query(
        question=question.question,
        answer_format=question.answer_format,
        rubrics=tuple(
            Rubric(
                stage=Stage.ANSWER,
                title=rubric.title,
                description=rubric.description,
                polarity="negative" if rubric.weight < 0 else "positive",
                weight=abs(rubric.weight),
                persistent=True,
            )
            for rubric in question.rubrics
        ),
        source=f"almanac:{question.id}",
    )


COLOURS = {Stage.PLAN: "34", Stage.RESEARCH: "33", Stage.REVIEW: "35", Stage.ANSWER: "32"}
"""The terminal's colours of the stages."""
GREY = "90"
_BLOCK_BEGINS = re.compile(r"(?<=>)(?=<(?!cite|/))")
WIDTH = 100


def render_ansi(parsed: ParsedTrajectory, *, colour: bool = True) -> str:
    """The whole episode as text. Control characters are escaped, so that no page can control the terminal."""
    lines = [_paint(f"Question: {_printable(parsed.trajectory.question)}", "1", colour)]
    offset = 0
    shown: Stage | None = None
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.TOOL:
            lines.append(_paint(_wrapped(segment.text, "  │ "), GREY, colour))
        if segment.origin is not Origin.POLICY:
            continue
        for stage, text in _by_stage(parsed, offset, segment.text):
            if stage is not shown:
                heading = f"── {stage.value.upper()} ".ljust(WIDTH, "─")
                lines.append(_paint(f"\n{heading}", f"1;{COLOURS[stage]}", colour))
                shown = stage
            lines.append(_paint(_wrapped(text, "  "), COLOURS[stage], colour))
        offset += len(segment.text)
    ending = parsed.trajectory.ending
    lines.append(_paint(f"\n── {ending.value if ending else 'running'}", "1", colour))
    return "\n".join(line for line in lines if line.strip())


def _by_stage(parsed: ParsedTrajectory, offset: int, text: str) -> list[tuple[Stage, str]]:
    """The parts of one policy segment, each with its stage."""
    parts = []
    for stage, span in parsed.spans.items():
        start, end = max(span.start - offset, 0), min(span.end - offset, len(text))
        if start < end:
            parts.append((stage, text[start:end]))
    return parts


def _wrapped(text: str, indent: str) -> str:
    """Wrapped lines. Line breaks of the text are kept, and each block begins a new line."""
    lines: list[str] = []
    for line in _BLOCK_BEGINS.sub("\n", _printable(text)).split("\n"):
        lines += textwrap.wrap(line, WIDTH - len(indent), initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _printable(text: str) -> str:
    return TERMINAL_CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and text.strip() else text


Info = dict[str, Any]
Prompt = Callable[[Query], str]


def question_prompt(query: Query) -> str:
    """The question alone: the default prompt."""
    return query.question


class EnvSpec(NamedTuple):
    """What all episodes of an environment share; `make_env_spec` checks it and fills in the shipped world."""

    queries: tuple[Query, ...]
    toolbox: Toolbox
    limits: EpisodeLimits
    reward: RewardMode
    scorer: Scorer | None
    prompt: Prompt
    system: str = ""
    """The rules of the scaffold, as a system message before the prompt; the adapters of chat libraries send it."""

    def query(self, key: str) -> Query:
        """A question by its key, which names it in a library's data sets.

        Raises:
            UsageError: the key is unknown.
        """
        query = next((query for query in self.queries if query.key == key), None)
        if query is None:
            raise UsageError(
                f"the query key is {key!r}; it names none of the {len(self.queries)} questions of this environment. "
                "Pass the query_key of a row of its data set."
            )
        return query


def make_env_spec(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    limits: EpisodeLimits | None = None,
    reward: RewardMode = "none",
    scorer: Scorer | None = None,
    prompt: Prompt = question_prompt,
    system: str = "",
) -> EnvSpec:
    """An environment's spec; the defaults are the shipped almanac, the paper's limits and no reward.

    Raises:
        ConfigError: the reward mode is unknown, or needs a scorer.
        UsageError: another argument is not of its kind.
    """
    check_reward(reward, scorer)
    if toolbox is not None and not isinstance(toolbox, Toolbox):
        raise UsageError(
            f"toolbox is {_kind(toolbox)}; a toolbox has `names` and `async call(ToolCall) -> ToolResult`. "
            "Combine single tools with LocalToolbox(tool, ...)."
        )
    if limits is not None and not isinstance(limits, EpisodeLimits):
        raise UsageError(f"limits is {_kind(limits)}; it must be EpisodeLimits. Write EpisodeLimits(max_calls=...).")
    if not callable(prompt):
        raise UsageError(f"prompt is {_kind(prompt)}; it must be a function, such as lambda query: query.question.")

    def checked(query: Query) -> str:
        text: object = prompt(query)
        if not isinstance(text, str):
            raise UsageError(f"prompt returned {_kind(text)} for a query; it must return the text that reset() gives.")
        return text

    return EnvSpec(
        offline_queries() if queries is None else _read_queries(queries),
        shipped_toolbox() if toolbox is None else toolbox,
        limits or EpisodeLimits(),
        reward,
        scorer,
        checked,
        system,
    )


def _read_queries(queries: object) -> tuple[Query, ...]:
    if isinstance(queries, str | Query) or not isinstance(queries, Iterable):
        raise UsageError(f"queries is {_kind(queries)}; it must be a sequence, such as [Query(question='...')].")
    read = tuple(queries)
    for index, query in enumerate(read):
        if not isinstance(query, Query):
            raise UsageError(f"queries[{index}] is {_kind(query)}; each must be a Query. Write Query(question='...').")
    return read


def _kind(value: object) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return "None" if value is None else f"{article} {kind}"


class DeepResearchEnv(gymnasium.Env[str, str]):
    """A deep research episode as a Gymnasium environment.

    An action is one emission of the policy: it ends with a tool call or with the answer. The observation is what the
    policy reads next: the prompt after `reset`, the tool's output after a call, a notice after an invalid turn.
    `terminated` means that the policy answered, `truncated` that a limit ended the episode.

    `info` after `reset`: `query_key`, `answer_format`. After `step`: `turn`, `calls_used`, `calls_left`,
    `tokens_used`, `violations` (codes of this turn, joined by commas), `tool_status` (or ""), `ending` (or ""); and
    for each stage that this step pays, `score_<stage>` (a number, or None) and `unscored_<stage>` (None, or the reason).
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - declared as Gymnasium asks

    def __init__(
        self,
        *,
        queries: Sequence[Query] | None = None,
        toolbox: Toolbox | None = None,
        limits: EpisodeLimits | None = None,
        reward: RewardMode = "none",
        scorer: Scorer | None = None,
        prompt: Prompt = question_prompt,
        render_mode: str | None = None,
    ) -> None:
        self.env_spec = make_env_spec(
            queries=queries, toolbox=toolbox, limits=limits, reward=reward, scorer=scorer, prompt=prompt
        )
        self.render_mode = render_mode
        self.observation_space = self.action_space = AnyText()
        self._episode: Episode | None = None
        self._loop = LoopThread()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode on a question drawn from `queries`.

        `options` may name it instead: {"query": Query(...)}, or {"question": "...", "answer_format": "short"}.
        """
        super().reset(seed=seed)
        query = choose_query(options or {}, self.env_spec.queries, self.np_random)
        prompt = self.env_spec.prompt(query)
        self._episode = Episode(query, prompt=prompt, limits=self.env_spec.limits, seed=seed)
        return prompt, {"query_key": query.key, "answer_format": query.answer_format.value}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the policy's next emission; the class describes the result."""
        if not isinstance(action, str):
            raise UsageError(f"the action is {_kind(action)}; it must be the text of one emission, a str.")
        env_spec = self.env_spec
        step = take_step(self.episode, action, toolbox=env_spec.toolbox, mode=env_spec.reward, scorer=env_spec.scorer)
        return self._loop.run(step)

    @property
    def episode(self) -> Episode:
        """The running episode.

        Raises:
            UsageError: there is none yet.
        """
        if self._episode is None:
            raise UsageError("there is no episode yet; call reset() before step() or render().")
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
