"""The attempts at one question: each played to its end, each but the last one leaving a lesson for the next."""

from collections.abc import Mapping
from typing import NamedTuple

import typer

from rubricem_agent.build.ask import AskConfig, AskParts, open_ask
from rubricem_agent.build.lessons import References
from rubricem_agent.cli.ask_screen import AskScreen
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.memory.retrieval import Retrieval
from rubricem_agent.prompting.agent_prompt import agent_prompt
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Audience, NoAudience, run_episode
from rubricem_env.domain.query import Query
from rubricem_env.scaffold.reading import Reading, read_trajectory


class Asked(NamedTuple):
    """What is to be found out, and how often to try."""

    query: Query
    reuse: str = "none"
    attempts: int = 1


class Attempted(NamedTuple):
    """One attempt that came to an end."""

    rollout: Rollout
    reading: Reading
    lesson: str = ""
    """What was taken from it for the next one."""
    dollars: float = 0.0
    """Spent until here, where the model's price is known."""


async def ask_with_attempts(
    asked: Asked, config: AskConfig, *, environ: Mapping[str, str], terminal: Terminal
) -> list[Attempted]:
    """All attempts, in order. One that the world broke ends the series.

    Raises:
        UsageError: something that is needed is missing or misspelt.
    """
    done: list[Attempted] = []
    async with open_ask(config, environ) as parts:
        for number in range(1, asked.attempts + 1):
            if asked.attempts > 1:
                terminal.say(f"\n══ Attempt {number} of {asked.attempts}")
            attempted = await _attempt(asked, parts, number=number, terminal=terminal)
            if number < asked.attempts and attempted.rollout.is_valid and parts.lessons is not None:
                attempted = attempted._replace(lesson=await parts.lessons.learn(attempted.reading))
                terminal.say(f"\n\n{attempted.lesson}")
            done.append(attempted)
            if not attempted.rollout.is_valid:
                break
    return done


async def _attempt(asked: Asked, parts: AskParts, *, number: int, terminal: Terminal) -> Attempted:
    prompt = agent_prompt(parts.setting.toolbox.names)
    references = await _references(asked, parts, number=number, terminal=terminal)
    opening = prompt.opening(asked.query, references=references)
    attempt = Attempt(asked.query, opening, prompt.hash, seed=number - 1)
    rollout = await run_episode(attempt, parts.setting, audience=_audience(terminal))
    reading = read_trajectory(rollout.trajectory)
    return Attempted(rollout, reading, dollars=parts.meter.total.dollars)


def _audience(terminal: Terminal) -> Audience:
    if terminal.is_silent:
        return NoAudience()
    return AskScreen(lambda text: typer.echo(text, nl=False, color=True), colour=terminal.colour)


async def _references(asked: Asked, parts: AskParts, *, number: int, terminal: Terminal) -> str:
    """The question's own lessons from the second attempt on; before it what --reuse says."""
    if parts.lessons is None or (number == 1 and asked.reuse == "none"):
        return ""
    mode = Retrieval.WITHIN if number > 1 else Retrieval(asked.reuse)
    references = await parts.lessons.references(asked.query.question, mode)
    terminal.say(_count(references, mode))
    return references.block


def _count(references: References, mode: Retrieval) -> str:
    if references.shown:
        return f"{references.shown} lesson{'s' * (references.shown > 1)} from the bank."
    if not references.kept:
        return "No lesson from the bank: it is empty."
    wanted = "this question" if mode is Retrieval.WITHIN else "another question that is like it"
    return f"No lesson from the bank: none of its {references.kept} is of {wanted}."
