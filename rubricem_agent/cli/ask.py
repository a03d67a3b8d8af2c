"""`rubricem ask`: one question, researched while one watches, answered with sources that open."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from rubricem_agent.build.ask import AskConfig
from rubricem_agent.cli.ask_attempts import Asked, Attempted, ask_with_attempts
from rubricem_agent.cli.ask_output import print_outcome, save_attempts
from rubricem_agent.cli.options import as_command
from rubricem_agent.cli.out_folder import open_out
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.config.policy import SCRIPTED, PolicyConfig
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.query import AnswerFormat, Query
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.llm.retry import RetryPolicy
from rubricem_env.llm.usage import CeilingReached

DEFAULT_OUT = Path("runs/ask")
NO_MODEL = (
    "No model is at work: a script searches the shipped almanac, an invented world, and quotes what it finds. For a "
    "real answer: --policy gemini:MODEL, openai:MODEL@URL or local:PATH, with --tools web."
)
_RETRY = RetryPolicy(attempts=4, initial_delay=0.5, deadline=300.0)
"""A person waits: fewer tries than in training."""


@dataclass(frozen=True)
class AskOptions:
    """What a user may say about a question. Field names are option names."""

    question: Annotated[str, typer.Argument(help="What to find out.")]
    answer_format: Annotated[AnswerFormat, typer.Option("--format", help="The shape of the answer.")] = (
        AnswerFormat.LONG
    )
    policy: Annotated[
        str, typer.Option(help="scripted, openai:MODEL@URL, vllm:MODEL@URL#FOLDER, gemini:MODEL or local:PATH.")
    ] = SCRIPTED
    tools: Annotated[str, typer.Option(help="offline, web, a TOML file of settings, or the URL of a tool server.")] = (
        "offline"
    )
    reuse: Annotated[
        Literal["none", "within", "cross"],
        typer.Option(help="Lessons of the bank to begin with: this question's, others'."),
    ] = "none"
    attempts: Annotated[int, typer.Option(min=1, max=10, help="Tries; each takes a lesson from the one before.")] = 1
    bank: Annotated[Path | None, typer.Option(envvar="RUBRICEM_BANK", help="The folder of a rubric bank.")] = None
    out: Annotated[Path, typer.Option(help="Where to write trajectory.json and report.md.")] = DEFAULT_OUT
    as_json: JsonOption = False
    quiet: QuietOption = False

    def config(self) -> AskConfig:
        """The settings that the options mean.

        Raises:
            ConfigError: they do not fit together.
        """
        if not self.question.strip():
            raise ConfigError('the question is empty; ask one, as in: rubricem ask "How wide is the river Tall Fox?"')
        if self.bank is None and (self.reuse == "cross" or (self.reuse == "within" and self.attempts == 1)):
            raise ConfigError(f"--reuse {self.reuse} looks into a bank; give its folder with --bank.")
        return AskConfig(
            PolicyConfig(policy=self.policy, retry=_RETRY),
            self.tools,
            EpisodeLimits(),
            bank=self.bank,
            reads_lessons=self.reuse != "none",
            takes_lessons=self.attempts > 1,
        )

    def asked(self) -> Asked:
        query = Query(question=self.question.strip(), answer_format=self.answer_format)
        return Asked(query, self.reuse, self.attempts)


@as_command(AskOptions)
def ask(options: AskOptions) -> None:
    """Research a question stage by stage and write a report. Exit code 1 means that there is no answer."""
    config = options.config()
    terminal = Terminal(as_json=options.as_json, is_quiet=options.quiet)
    open_out(options.out)
    if options.policy == SCRIPTED:
        terminal.say(NO_MODEL)
    attempted = _run(options.asked(), config, terminal=terminal)
    save_attempts(attempted, options.out)
    print_outcome(attempted, options.out, terminal)
    if not attempted[-1].reading.is_complete:
        raise typer.Exit(1)


def _run(asked: Asked, config: AskConfig, *, terminal: Terminal) -> list[Attempted]:
    try:
        return asyncio.run(ask_with_attempts(asked, config, environ=os.environ, terminal=terminal))
    except CeilingReached as reached:
        terminal.warn(f"rubricem: {reached}")
        raise typer.Exit(1) from reached
    except KeyboardInterrupt:
        terminal.warn("\nrubricem: interrupted; nothing was written.")
        raise typer.Exit(130) from None
