"""`rubricem ask`: one question, researched while one watches, answered with sources that open.

An episode on the terminal while it happens: stages as headings, searches and what they found, the answer as it grows.

The attempts at one question: each played to its end, each but the last one leaving a lesson for the next.

What remains of a question: files, and a last word on the terminal.
"""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import typer

from rubricem_agent.build.memory import AskConfig, AskParts, InjectedReferences, open_ask
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, as_command, open_out
from rubricem_agent.config import SCRIPTED, PolicyConfig
from rubricem_agent.memory.bank import Retrieval
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.rollout.report import (
    SnippetSource,
    explain_ending,
    linked_answer,
    render_report,
    shown_sources,
    sources_in,
)
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.run import Attempt, Audience, run_episode
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat, Query, dump_trajectory
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.limits import RetryPolicy
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION, THINK
from rubricem_env.scaffold.lexer import Scanner, Token, parse_attributes
from rubricem_env.scaffold.reading import Reading, read_trajectory

_COLOURS: Mapping[Stage, str] = MappingProxyType(
    {Stage.PLAN: "34", Stage.RESEARCH: "33", Stage.REVIEW: "35", Stage.ANSWER: "32"}
)
_LABELS: Mapping[str, str] = MappingProxyType(
    {
        THINK: "thinking",
        STATE_EVALUATION: "so far",
        "deep_analysis": "what is asked",
        "rubric": "rubric",
        "research_plan": "steps",
        "rubric_review": "against the rubric",
        "writing_plan": "how to write it",
    }
)
_GREY = "90"
_WIDTH = 80
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CITATION = re.compile(r"""<(/?)cite(?![\w-])(?:\s+ids?\s*=\s*["']?([^"'<>]*)["']?)?[^<>]*>""", re.IGNORECASE)
_UNDECIDED = re.compile(r"<[^<>]{0,200}\Z")
_WRAPPERS = re.compile(r"</?tool_output>|</?snippet[^>]*>")


class AskScreen(Audience):
    """The audience of one episode. Writes plain text, with colour codes where it is a terminal."""

    def __init__(self, write: Callable[[str], None], *, colour: bool) -> None:
        self._write = write
        self._colour = colour
        self._stage: Stage | None = None
        self._has_planned = False
        self._scanner = Scanner()
        self._text = ""
        self._at = 0
        self._cited = ""
        self._grey = False
        self._needs_indent = True

    def wrote(self, text: str) -> None:
        """Show what is certain not to be the beginning of a tag."""
        self._text += text
        for token in self._scanner.feed(text):
            self._show(self._text[self._at : token.start])
            self._at = token.end
            self._enter(token)
        undecided = _UNDECIDED.search(self._text, self._at)
        until = undecided.start() if undecided else len(self._text)
        if until > self._at:
            self._show(self._text[self._at : until])
            self._at = until

    def restarted(self) -> None:
        """Say that what was shown of the turn does not count."""
        self._line("the connection broke; the turn begins anew")
        self._begin_turn()

    def observed(self, text: str) -> None:
        """List the sources that came back; a notice or an error is shown as it is."""
        self._begin_turn()
        sources = sources_in(text)
        for snippet_id, source in sources.items():
            self._line(f"  {snippet_id}  {' | '.join(part for part in source if part) or '(untitled)'}")
        if not sources:
            self._line("  " + " ".join(_WRAPPERS.sub(" ", text).split())[:300])

    def _begin_turn(self) -> None:
        self._scanner = Scanner()
        self._text = ""
        self._at = 0
        self._cited = ""
        self._grey = False
        self._needs_indent = True

    def _enter(self, token: Token) -> None:
        if self._grey and token.name != THINK:
            self._show(token.tag)
        elif token.closing:
            self._grey = False
        else:
            self._open(token)

    def _open(self, token: Token) -> None:
        stage = self._stage_of(token.name)
        if stage is not self._stage:
            self._stage = stage
            heading = f"\n\n── {stage.value.upper()} ".ljust(_WIDTH, "─")
            self._write(self._painted(heading, f"1;{_COLOURS[stage]}"))
            self._needs_indent = True
        self._grey = token.name == THINK
        if token.name == CALL_TOOL:
            self._write(self._painted(f"\n  → {parse_attributes(token)[0].get('name', '?')}: ", "1"))
            self._needs_indent = False
        elif token.name in _LABELS:
            self._write(self._painted(f"\n  {_LABELS[token.name]}: ", _GREY if self._grey else "1"))
            self._needs_indent = False

    def _stage_of(self, name: str) -> Stage:
        """The stage to show a tag under, as far as one can know while it is being written."""
        if name == PLAN and not self._has_planned:
            self._has_planned = True
            return Stage.PLAN
        if name in (CALL_TOOL, STATE_EVALUATION):
            return Stage.RESEARCH
        if name in (REVIEW, ANSWER):
            return Stage.REVIEW if name == REVIEW else Stage.ANSWER
        return self._stage or Stage.PLAN

    def _show(self, text: str) -> None:
        printable = _CONTROL.sub("", _CITATION.sub(self._mark, text))
        if self._needs_indent:
            printable = printable.lstrip("\n")
        if not printable or (self._needs_indent and not printable.strip()):
            return
        begins = "\n  " if self._needs_indent else ""
        self._needs_indent = False
        self._write(self._painted(begins + printable.replace("\n", "\n  "), _GREY if self._grey else ""))

    def _mark(self, tag: re.Match[str]) -> str:
        """A citation's opening tag is not shown; at its closing tag stand the ids that it named."""
        if not tag[1]:
            self._cited = tag[2]
            return ""
        return f" [{self._cited}]" if self._cited else ""

    def _line(self, text: str) -> None:
        self._write("\n" + self._painted(_CONTROL.sub("", text), _GREY))

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


class AskRequest(NamedTuple):
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
    asked: AskRequest, config: AskConfig, *, environ: Mapping[str, str], terminal: Terminal
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


async def _attempt(asked: AskRequest, parts: AskParts, *, number: int, terminal: Terminal) -> Attempted:
    prompt = agent_prompt(parts.setting.toolbox.names)
    references = await _references(asked, parts, number=number, terminal=terminal)
    opening = prompt.opening(asked.query, references=references)
    attempt = Attempt(asked.query, opening, prompt.hash, seed=number - 1)
    rollout = await run_episode(attempt, parts.setting, audience=_audience(terminal))
    reading = read_trajectory(rollout.trajectory)
    return Attempted(rollout, reading, dollars=parts.meter.total.dollars)


def _audience(terminal: Terminal) -> Audience:
    if terminal.is_silent:
        return Audience()
    return AskScreen(lambda text: typer.echo(text, nl=False, color=True), colour=terminal.colour)


async def _references(asked: AskRequest, parts: AskParts, *, number: int, terminal: Terminal) -> str:
    """The question's own lessons from the second attempt on; before it what --reuse says."""
    if parts.lessons is None or (number == 1 and asked.reuse == "none"):
        return ""
    mode = Retrieval.WITHIN if number > 1 else Retrieval(asked.reuse)
    references = await parts.lessons.references(asked.query.question, mode)
    terminal.say(_count(references, mode))
    return references.block


def _count(references: InjectedReferences, mode: Retrieval) -> str:
    if references.shown:
        return f"{references.shown} lesson{'s' * (references.shown > 1)} from the bank."
    if not references.kept:
        return "No lesson from the bank: it is empty."
    wanted = "this question" if mode is Retrieval.WITHIN else "another question that is like it"
    return f"No lesson from the bank: none of its {references.kept} is of {wanted}."


TRAJECTORY = "trajectory.json"
REPORT = "report.md"


def save_attempts(attempted: Sequence[Attempted], out: Path) -> None:
    """The last attempt as trajectory.json and report.md, earlier ones as attempt_1.json and so on.

    Raises:
        FileFormatError: the folder cannot be written.
    """
    files = {f"attempt_{number}.json": one for number, one in enumerate(attempted[:-1], 1)}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, one in {**files, TRAJECTORY: attempted[-1]}.items():
            (out / name).write_text(dump_trajectory(one.reading.trajectory) + "\n", encoding="utf-8")
        (out / REPORT).write_text(render_report(attempted[-1].reading), encoding="utf-8")
    except OSError as cause:
        raise FileFormatError(f"cannot write to {out}: {cause}. Choose a folder with --out.") from cause


def print_outcome(attempted: Sequence[Attempted], out: Path, terminal: Terminal) -> None:
    """One JSON object, the answer alone, or sources and a summary. A missing answer is explained on stderr."""
    last = attempted[-1]
    _list_sources(last, terminal)
    terminal.close(outcome(attempted, out), _summary(last, out), brief=_plain_answer(last))
    if not last.reading.is_complete:
        terminal.warn(f"rubricem: {explain(last)}")


def explain(attempted: Attempted) -> str:
    """Why there is no answer, in one sentence."""
    if attempted.rollout.failure:
        return attempted.rollout.failure
    calls = [turn.call.identity for turn in attempted.reading.turns if turn.call is not None]
    most = max((calls.count(identity) for identity in calls), default=0)
    looped = f" It asked the same thing {most} times." if most >= 3 else ""
    return explain_ending(attempted.reading.trajectory.ending) + looped


def outcome(attempted: Sequence[Attempted], out: Path) -> dict[str, Any]:
    """The last attempt as JSON values."""
    last = attempted[-1]
    trajectory = last.reading.trajectory
    sources = shown_sources(trajectory)
    return {
        "question": trajectory.question,
        "format": trajectory.answer_format.value,
        "answer": last.reading.answer if last.reading.is_complete else None,
        "problem": "" if last.reading.is_complete else explain(last),
        "ending": trajectory.ending.value if trajectory.ending else None,
        "citations": [
            {"id": key, **sources.get(key, SnippetSource("", ""))._asdict()} for key in last.reading.citations.known
        ],
        "unknown_citations": list(last.reading.citations.unknown),
        "policy": last.rollout.policy,
        "attempts": len(attempted),
        "lessons": [one.lesson for one in attempted if one.lesson],
        "usage": last.rollout.usage.model_dump(mode="json"),
        "dollars": last.dollars,
        "trajectory": str(out / TRAJECTORY),
        "report": str(out / REPORT),
    }


def _list_sources(attempted: Attempted, terminal: Terminal) -> None:
    citations = attempted.reading.citations
    sources = shown_sources(attempted.reading.trajectory)
    terminal.say("\n")
    for number, key in enumerate(citations.known, 1):
        title, url = sources.get(key, SnippetSource("", ""))
        terminal.say(f"[{number}] {key}  {title or '(untitled)'}  {url}".rstrip())
    if citations.unknown:
        terminal.say(f"Cited, but never shown by a tool: {', '.join(citations.unknown)}")


def _summary(attempted: Attempted, out: Path) -> dict[str, object]:
    usage = attempted.rollout.usage
    calls = sum(turn.call is not None for turn in attempted.reading.turns)
    spent = {"spent": f"${attempted.dollars:.4f}"} if attempted.dollars else {}
    return {
        "turns": len(attempted.reading.turns),
        "searches": calls,
        "tokens": f"{usage.input_tokens} read, {usage.output_tokens} written",
        **spent,
        "report": out / REPORT,
        "trajectory": out / TRAJECTORY,
    }


def _plain_answer(attempted: Attempted) -> str:
    reading = attempted.reading
    numbers = {key: number for number, key in enumerate(reading.citations.known, 1)}
    return linked_answer(reading.answer or "", numbers, sources={})


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

    def asked(self) -> AskRequest:
        query = Query(question=self.question.strip(), answer_format=self.answer_format)
        return AskRequest(query, self.reuse, self.attempts)


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


def _run(asked: AskRequest, config: AskConfig, *, terminal: Terminal) -> list[Attempted]:
    try:
        return asyncio.run(ask_with_attempts(asked, config, environ=os.environ, terminal=terminal))
    except SpendLimitReached as reached:
        terminal.warn(f"rubricem: {reached}")
        raise typer.Exit(1) from reached
    except KeyboardInterrupt:
        terminal.warn("\nrubricem: interrupted; nothing was written.")
        raise typer.Exit(130) from None
