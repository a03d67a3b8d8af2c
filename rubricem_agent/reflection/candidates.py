"""Reflection candidates: the prompt about one attempt, the draws from a policy, and the form that they must have.

The prompt shows the attempt shortened to fit, as a judge is shown it, but the answer is never shortened; the reference
block that the attempt was given is not shown. A reflection is two blocks, once each, in
order, with nothing else but a leading thought.
"""

import re
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from rubricem_agent.memory.gate import Refusal
from rubricem_agent.policy.base import Conversation, Listener, Opening, Policy, TokenSegment
from rubricem_agent.prompting import SHIPPED_PROMPTS, AgentPromptFile, AgentPrompts, fill, prompt_from_text
from rubricem_env.concurrency import derive_seed, run_heavy, run_together
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import BoundaryError
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.model.attempt_parts import Part, Rank, fit_parts, join_parts, mark, parts_of
from rubricem_env.judge.reflections import ReflectionMode
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import defuse, neutralize
from rubricem_records.rollouts.sampling import Sampling


class ReflectionSample(Frozen):
    """One candidate, for training and for the record."""

    text: Text
    pieces: tuple[TokenSegment, ...] = ()
    """The prompt's tokens and its own, with log-probabilities under the sampling temperature; empty in text mode."""
    score: ReflectionScore | None = None
    """None where the judge gave none; such a sample is not trained on. The reward is the score's `utility`."""
    justification: Text = ""
    refusal: Text = ""
    """Why the bank refused it, as code and sentence; empty where it was accepted or not offered."""

    @property
    def is_readable(self) -> bool:
        """Whether its blocks could be read, even if the bank refused them."""
        return not self.refusal.startswith("format")


RUBRICS = "reflection_rubrics"
TAKEAWAYS = "reflection_takeaways"
_WHOLE = re.compile(
    rf"\s*(?:<think>(?:(?!</?think>).)*</think>)?\s*"
    rf"<{RUBRICS}>(?P<rubrics>.*?)</{RUBRICS}>\s*<{TAKEAWAYS}>(?P<takeaways>.*?)</{TAKEAWAYS}>\s*",
    re.DOTALL,
)


class Blocks(NamedTuple):
    """The text of the two blocks of a reflection, stripped."""

    rubrics: str
    takeaways: str


def close_blocks(text: str) -> str:
    """The reflection with open blocks closed: the first where the second begins, the second at the end."""
    for name, end in ((RUBRICS, text.find(f"<{TAKEAWAYS}>")), (TAKEAWAYS, -1)):
        if f"<{name}>" in text and f"</{name}>" not in text:
            at = end if end >= 0 else len(text)
            text = f"{text[:at].rstrip()}\n</{name}>\n{text[at:]}"
    return text


def intact_share(text: str) -> float:
    """The share of the four tags that occur exactly once."""
    return sum(text.count(tag) == 1 for name in (RUBRICS, TAKEAWAYS) for tag in (f"<{name}>", f"</{name}>")) / 4


def parse_blocks(text: str, *, repairs: bool = False) -> Blocks | Refusal:
    """The blocks of a reflection, or the first error in its form. Never raises."""
    text = close_blocks(text) if repairs else text
    for name in (RUBRICS, TAKEAWAYS):
        for tag in (f"<{name}>", f"</{name}>"):
            count = text.count(tag)
            if count != 1:
                fault = "is missing" if count == 0 else f"occurs {count} times"
                return Refusal("format", f"{tag} {fault}; each block is written once and closed.")
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return Refusal(
            "format",
            f"the reply is more than <{RUBRICS}> and then <{TAKEAWAYS}>; nothing else but a leading <think> is "
            "allowed.",
        )
    blocks = Blocks(rubrics=whole["rubrics"].strip(), takeaways=whole["takeaways"].strip())
    if not all(blocks):
        empty = RUBRICS if not blocks.rubrics else TAKEAWAYS
        return Refusal("format", f"the block <{empty}> is empty.")
    return blocks


class ReflectionError(BoundaryError):
    """This question gets no reflection in this step; other questions are unaffected."""


_SHORTENED = (Rank.PAGE, Rank.STEP, Rank.BLOCK, Rank.CITED)


def render_transcript(parsed: ParsedTrajectory, room: Callable[[str], int] | None = None, *, spare: int = 0) -> str:
    """The attempt, or the longest form of it for which there is room; what is left out is marked.

    `room` and `spare` as in `fit_parts`.

    Raises:
        ReflectionError: even the answer alone does not fit.
    """
    parts = tuple(parts_of(parsed))
    if room is None:
        return _render(parts, parsed)
    measured = cache(room)
    form = fit_parts(parts, lambda form: measured(_render(form, parsed)), ranks=_SHORTENED, spare=spare)
    shown = _render(form, parsed)
    if measured(shown) < 0:
        raise ReflectionError("the question and the answer alone are longer than the reflection prompt may be.")
    return shown


def _render(parts: Iterable[Part], parsed: ParsedTrajectory) -> str:
    """Turns, with the answer apart, and observations, in order; one mark for all that are left out in a row."""
    written = []
    left_out = 0
    last = parsed.scaffold.last
    for (author, _, _), run in groupby(parts, key=lambda part: (part.author, part.segment, part.stage == last)):
        together = list(run)
        gone = sum(part.left_out for part in together)
        if gone and not any(part.text for part in together):
            left_out += gone
            continue
        text = defuse(join_parts(together), parsed.scaffold).strip()
        written += [mark(left_out)] if left_out else []
        written.append(f"<tool_output>\n{text}\n</tool_output>" if author is Origin.TOOL else text)
        left_out = 0
    written += [mark(left_out)] if left_out else []
    return "\n\n".join(filter(None, written))


_SEEDS = 2**31
"""Servers take seeds of 31 bits."""
_FRAME_TOKENS = 64
"""Reserved for what a chat template adds around the two messages."""


ReflectionWording = Literal["cross", "within"]
"""What the prompt says of facts: none are passed on, or those of this question are, for the next attempt at it."""


class ReflectionSettings(Settings):
    """How reflections are drawn and judged; the defaults are the paper's, where it gives one."""

    num_candidates: Annotated[int, Field(ge=1)] = 8
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.7
    """Log-probabilities of the samples must be taken at this temperature. 0 cannot be trained on."""
    total_tokens: Annotated[int, Field(ge=1)] = 26_624
    """Prompt and reflection together."""
    new_tokens: Annotated[int, Field(ge=1)] = 2_048
    wording: ReflectionWording = "cross"
    """`within` tells the next attempt at the same question what is settled and open; `cross` passes on no facts."""
    mode: ReflectionMode = "listwise"
    """All candidates in one call to the judge, or one call each."""
    form_counts: bool | Literal["share"] = False
    """What a reflection with unreadable blocks earns: its utility (false, as in the paper), 0 (true), or its
    utility times the share of the four tags that are in place. A small policy forgets to close blocks as utility
    rises."""
    repairs_form: bool = False
    """Close a block that was left open, and the last one, before the blocks are read. The sampled tokens stay as they
    are."""
    kl_coefficient: Annotated[float, Field(ge=0)] | None = None
    """Of the loss on reflections, local trainer; None takes that of the rollouts."""
    gate_counts: bool = True
    """Whether a reflection that the bank's gate refuses for its text earns 0: it can never be used. false scores it by
    the judge alone, as the paper does."""
    seed: int | None = None
    """None is the run's seed."""
    system: str = ""
    """The system prompt under which a policy was trained to reflect; "" gives the whole prompt."""

    @model_validator(mode="after")
    def _leaves_room(self) -> "ReflectionSettings":
        if self.new_tokens + _FRAME_TOKENS >= self.total_tokens:
            raise ValueError(
                f"new_tokens {self.new_tokens} leaves no room for a prompt in total_tokens {self.total_tokens}; "
                "make total_tokens several times as large"
            )
        return self


def check_trainable(settings: ReflectionSettings) -> None:
    """Refuse settings whose reflections cannot be trained on.

    Raises:
        ValueError: the temperature is 0.
    """
    if settings.temperature == 0:
        raise ValueError(
            "reflection.temperature is 0, so all candidates are equal and there is no distribution whose "
            "log-probabilities could be trained on; set it above 0 (the paper has 0.7), or meta_policy to false"
        )


def reflection_prompt(
    system: str = "", wording: ReflectionWording = "cross", *, prompts: AgentPrompts = SHIPPED_PROMPTS
) -> AgentPromptFile:
    """The prompt file in its wording; or, with the policy's own system prompt, the bare question and attempt."""
    if not system:
        file = prompts["reflection"]
        said = fill(file.section("system"), {"facts": file.section(f"facts_{wording}")})
        user = file.section("user")
        return prompt_from_text(file.name, f"<!-- section: system -->\n{said}\n<!-- section: user -->\n{user}\n")
    layout = "{{question}}\n\n{{trajectory}}"
    return prompt_from_text("own", f"<!-- section: system -->\n{system}\n<!-- section: user -->\n{layout}\n")


def build_opening(
    policy: Policy, parsed: ParsedTrajectory, *, settings: ReflectionSettings, prompts: AgentPrompts = SHIPPED_PROMPTS
) -> tuple[Opening, str]:
    """System and user message about an attempt, and the prompt's hash. Question and answer are never shortened.

    Raises:
        ReflectionError: question and answer alone do not fit.
    """
    prompt = reflection_prompt(settings.system, settings.wording, prompts=prompts)
    system = prompt.section("system")
    layout = prompt.section("user")
    limit = settings.total_tokens - settings.new_tokens - _FRAME_TOKENS - policy.count_tokens(system)
    question = neutralize(parsed.trajectory.question.strip(), parsed.scaffold)

    def user(transcript: str) -> str:
        return fill(layout, {"question": question, "trajectory": transcript})

    def room(transcript: str) -> int:
        return limit - policy.count_tokens(user(transcript))

    transcript = render_transcript(parsed, room, spare=limit // 64)
    return Opening(system, user(transcript)), prompt.hash


async def draw_candidates(
    policy: Policy, opening: Opening, *, key: str, settings: ReflectionSettings, step: int, count: int
) -> list[ReflectionSample]:
    """Draw `count` unjudged candidates at once; the draws depend on (seed, step, question key) alone.

    Raises:
        ModelError: the policy failed.
    """
    sampling = Sampling(temperature=settings.temperature, max_turn_tokens=settings.new_tokens)

    def open_all() -> list[Conversation]:
        seeds = (derive_seed(settings.seed, step, key, "candidate", index) % _SEEDS for index in range(count))
        return [policy.open(opening, sampling=sampling, seed=seed) for seed in seeds]

    async def draw(conversation: Conversation) -> ReflectionSample:
        with closing(conversation):
            emission = await conversation.emit(max_tokens=sampling.max_turn_tokens, listener=Listener())
            return ReflectionSample(text=emission.text, pieces=conversation.pieces)

    return await run_together([draw(conversation) for conversation in await run_heavy(open_all)])
