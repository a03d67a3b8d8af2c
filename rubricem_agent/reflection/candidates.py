"""Where reflections come from: several drawn for one prompt, from any policy.

The form of a reflection: two blocks, once each, in order, with nothing beside them but a leading thought.

What keeps a question from having a reflection.

An attempt as the reflecting policy reads it, shortened to fit: tool text first, then the policy's own steps.

The answer is never shortened, and the reference block that the attempt was given is not shown.

From an attempt to candidates: the prompt, within its limit, and the draws.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field, model_validator

from rubricem_agent.memory.gate import Refusal, RefusalCode
from rubricem_agent.policy.base import Opening, Policy, Sampling, Silence, TokenSegment
from rubricem_agent.prompting import AgentPromptFile, fill, prompt_from_text, read_prompt
from rubricem_env.concurrency import derive_seed, run_together
from rubricem_env.domain.base import Frozen, Span, Stage, Text
from rubricem_env.domain.errors import BoundaryError
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.base import ReflectionMode
from rubricem_env.judge.prompting import shorten_middle
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.untrusted import neutralize


class Candidate(Frozen):
    """One reflection as it was written."""

    text: Text
    pieces: tuple[TokenSegment, ...] = ()
    """The prompt's tokens and its own, with log-probabilities under the sampling temperature; empty in text mode."""


class CandidateSource(Protocol):
    """The policy in its other role."""

    @property
    def name(self) -> str: ...

    def count_tokens(self, text: str) -> int: ...

    async def sample(self, opening: Opening, *, sampling: Sampling, seeds: Sequence[int]) -> tuple[Candidate, ...]:
        """One candidate for each seed, in that order.

        Raises:
            ModelError: the policy could not be reached, or failed.
        """
        ...


class PolicyCandidates:
    """Draws from a policy, each candidate in a conversation of its own; a policy that batches batches them."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        return self._policy.name

    def count_tokens(self, text: str) -> int:
        return self._policy.count_tokens(text)

    async def sample(self, opening: Opening, *, sampling: Sampling, seeds: Sequence[int]) -> tuple[Candidate, ...]:
        """One candidate for each seed, all at once."""
        return tuple(await run_together([self._draw(opening, sampling, seed) for seed in seeds]))

    async def _draw(self, opening: Opening, sampling: Sampling, seed: int) -> Candidate:
        conversation = self._policy.open(opening, sampling=sampling, seed=seed)
        try:
            emission = await conversation.emit(max_tokens=sampling.max_turn_tokens, listener=Silence())
            return Candidate(text=emission.text, pieces=conversation.pieces)
        finally:
            conversation.close()


RUBRICS = "reflection_rubrics"
TAKEAWAYS = "reflection_takeaways"
_WHOLE = re.compile(
    rf"\s*(?:<think>(?:(?!</?think>).)*</think>)?\s*"
    rf"<{RUBRICS}>(?P<rubrics>.*?)</{RUBRICS}>\s*<{TAKEAWAYS}>(?P<takeaways>.*?)</{TAKEAWAYS}>\s*",
    re.DOTALL,
)


class Blocks(NamedTuple):
    """What the two blocks say, stripped."""

    rubrics: str
    takeaways: str


def parse_blocks(text: str) -> Blocks | Refusal:
    """The blocks of a reflection, or the first thing that is wrong with its form. Never raises."""
    for name in (RUBRICS, TAKEAWAYS):
        for tag in (f"<{name}>", f"</{name}>"):
            count = text.count(tag)
            if count != 1:
                said = "is missing" if count == 0 else f"stands there {count} times"
                return Refusal(RefusalCode.FORMAT, f"{tag} {said}; each block is written once and closed.")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return Refusal(
            RefusalCode.FORMAT,
            f"the reply is more than <{RUBRICS}> and then <{TAKEAWAYS}>; nothing but a leading <think> may stand beside.",
        )
    blocks = Blocks(whole["rubrics"].strip(), whole["takeaways"].strip())
    if not all(blocks):
        empty = RUBRICS if not blocks.rubrics else TAKEAWAYS
        return Refusal(RefusalCode.FORMAT, f"the block <{empty}> is empty.")
    return blocks


class ReflectionError(BoundaryError):
    """This question gets no reflection in this step; other questions are not touched by it."""


_CHAT_SPECIAL = re.compile(r"<(\\*)\|")


class _Piece(NamedTuple):
    text: str
    is_tool: bool = False
    is_answer: bool = False


def render_transcript(reading: Reading, fits: Callable[[str], bool]) -> str:
    """The longest form of the attempt that fits; each part that is cut keeps its head and its tail.

    Raises:
        ReflectionError: it does not fit even with nothing left but the answer.
    """
    pieces = tuple(_pieces(reading))
    longest = max((len(piece.text) for piece in pieces), default=0)
    whole = _render(pieces, tool_chars=longest, own_chars=longest)
    if fits(whole):
        return whole
    limit = _greatest(longest, lambda chars: fits(_render(pieces, tool_chars=chars, own_chars=longest)))
    if limit is not None:
        return _render(pieces, tool_chars=limit, own_chars=longest)
    limit = _greatest(longest, lambda chars: fits(_render(pieces, tool_chars=0, own_chars=chars)))
    if limit is not None:
        return _render(pieces, tool_chars=0, own_chars=limit)
    raise ReflectionError("the question and the answer alone are longer than the reflection prompt may be.")


def _render(pieces: Sequence[_Piece], *, tool_chars: int, own_chars: int) -> str:
    """Everything in order; at most so many characters of each tool's text and of each step of the policy."""
    parts = []
    for piece in pieces:
        limit = len(piece.text) if piece.is_answer else tool_chars if piece.is_tool else own_chars
        shown = shorten_middle(piece.text, limit).strip()
        parts.append(f"<tool_output>\n{shown}\n</tool_output>" if piece.is_tool else shown)
    return "\n\n".join(part for part in parts if part)


def _greatest(high: int, holds: Callable[[int], bool]) -> int | None:
    """The greatest number from 0 to `high` for which it holds; None where it does not hold for 0."""
    if not holds(0):
        return None
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _pieces(reading: Reading) -> Iterator[_Piece]:
    offset = 0
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.POLICY:
            yield from _policy_pieces(reading, Span(offset, offset + len(segment.text)))
            offset += len(segment.text)
        elif segment.origin is Origin.TOOL:
            # Our own observations are defused already; those of other people's files may not be.
            yield _Piece(segment.text if segment.observation is not None else neutralize(segment.text), is_tool=True)


def _policy_pieces(reading: Reading, within: Span) -> Iterator[_Piece]:
    """A segment cut where the answer begins, so that steps can be shortened and the answer stays."""
    begins = next((span.start for span in reading.spans.of(Stage.ANSWER)), within.end)
    cut = min(max(begins, within.start), within.end)
    for span, is_answer in ((Span(within.start, cut), False), (Span(cut, within.end), True)):
        text = _CHAT_SPECIAL.sub(r"<\\\1|", span.of(reading.policy_text))
        if text.strip():
            yield _Piece(text, is_answer=is_answer)


_SEEDS = 2**31
"""Servers take seeds of 31 bits."""
_FRAME_TOKENS = 64
"""Room for what a chat template puts around the two messages."""


class ReflectionSettings(Frozen):
    """How reflections are drawn and judged; the defaults are the paper's, and choice C7's."""

    num_candidates: Annotated[int, Field(ge=1)] = 8
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.7
    """Log-probabilities of these samples must be taken at this temperature (choice C9). At 0 nothing can be trained on."""
    total_tokens: Annotated[int, Field(ge=1)] = 26_624
    """Prompt and reflection together."""
    new_tokens: Annotated[int, Field(ge=1)] = 2_048
    mode: ReflectionMode = ReflectionMode.LISTWISE
    """All candidates in one call to the judge, or one call each (choice C2)."""
    form_counts: bool = False
    """A reflection whose blocks cannot be read earns 0. The paper rewards no format and scores it like others (choice
    C3); a small policy then forgets to close its blocks while its utility rises."""
    seed: int | None = None
    """None is the run's seed."""
    system: str = ""
    """A policy that was taught to reflect under a prompt of its own has it here; "" gives the whole prompt."""

    @model_validator(mode="after")
    def _leaves_room(self) -> "ReflectionSettings":
        if self.new_tokens + _FRAME_TOKENS >= self.total_tokens:
            raise ValueError(
                f"new_tokens {self.new_tokens} leaves no room for a prompt in total_tokens {self.total_tokens}; "
                "make total_tokens several times as large"
            )
        return self


def check_trainable(settings: ReflectionSettings) -> None:
    """Refuse settings whose reflections no update can be made of.

    Raises:
        ValueError: the temperature is 0.
    """
    if settings.temperature == 0:
        raise ValueError(
            "reflection.temperature is 0, at which all candidates are alike and their log-probabilities are of no "
            "distribution that they were drawn from; set it above 0 (the paper has 0.7), or meta_policy to false"
        )


def reflection_prompt(system: str = "") -> AgentPromptFile:
    """The prompt file; or, under a system prompt of the policy's own, the question and the attempt with nothing around."""
    if not system:
        return read_prompt("reflection")
    layout = "{{question}}\n\n{{trajectory}}"
    return prompt_from_text("own", f"<!-- section: system -->\n{system}\n<!-- section: user -->\n{layout}\n")


class SampledCandidates(NamedTuple):
    """Candidates with the prompt that they answer."""

    candidates: tuple[Candidate, ...]
    opening: Opening
    prompt_hash: str


def build_opening(
    source: CandidateSource, reading: Reading, *, prompt: AgentPromptFile, settings: ReflectionSettings
) -> Opening:
    """System and user message; tool text gives way until they fit, question and answer never do.

    Raises:
        ReflectionError: question and answer alone do not fit.
    """
    system, layout = prompt.section("system"), prompt.section("user")
    room = settings.total_tokens - settings.new_tokens - _FRAME_TOKENS - source.count_tokens(system)
    question = neutralize(reading.trajectory.question.strip())

    def user(transcript: str) -> str:
        return fill(layout, {"question": question, "trajectory": transcript})

    transcript = render_transcript(reading, lambda shown: source.count_tokens(user(shown)) <= room)
    return Opening(system, user(transcript))


async def draw_candidates(
    source: CandidateSource, reading: Reading, *, settings: ReflectionSettings, step: int, count: int
) -> SampledCandidates:
    """So many reflections on one attempt; what is drawn depends on (seed, step, question) alone.

    Raises:
        ReflectionError: the attempt does not fit into a prompt.
        ModelError: the policy failed.
    """
    prompt = reflection_prompt(settings.system)
    opening = build_opening(source, reading, prompt=prompt, settings=settings)
    key = reading.trajectory.query_key
    seeds = [derive_seed(settings.seed, step, key, "candidate", place) % _SEEDS for place in range(count)]
    sampling = Sampling(temperature=settings.temperature, max_turn_tokens=settings.new_tokens)
    candidates = await source.sample(opening, sampling=sampling, seeds=seeds)
    return SampledCandidates(candidates, opening, prompt.hash)
