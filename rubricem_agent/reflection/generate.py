"""From an attempt to candidates: the prompt, within its limit, and the draws."""

from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.prompting.library import Prompt, fill, prompt_from_text, read_prompt
from rubricem_agent.reflection.candidates import Candidate, CandidateSource
from rubricem_agent.reflection.transcript import render_transcript
from rubricem_env.domain.base import Frozen
from rubricem_env.judge.reflecting import ReflectionMode
from rubricem_env.judge.seeds import derive_seed
from rubricem_env.scaffold.neutralize import neutralize
from rubricem_env.scaffold.reading import Reading

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


def reflection_prompt(system: str = "") -> Prompt:
    """The prompt file; or, under a system prompt of the policy's own, the question and the attempt with nothing around."""
    if not system:
        return read_prompt("reflection")
    layout = "{{question}}\n\n{{trajectory}}"
    return prompt_from_text("own", f"<!-- section: system -->\n{system}\n<!-- section: user -->\n{layout}\n")


class Draws(NamedTuple):
    """Candidates with the prompt that they answer."""

    candidates: tuple[Candidate, ...]
    opening: Opening
    prompt_hash: str


def build_opening(
    source: CandidateSource, reading: Reading, *, prompt: Prompt, settings: ReflectionSettings
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
) -> Draws:
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
    return Draws(candidates, opening, prompt.hash)
