"""`rubricem ask`: research one question while the user watches, with lessons between attempts, and write a report."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import typer

from rubricem_agent.cli.command import ProbeOption, ScaffoldOption, command
from rubricem_agent.cli.output_files import open_out
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.memory.bank import Retrieval
from rubricem_agent.model_names import POLICY_NAMES, SCRIPTED
from rubricem_agent.policy.base import Listener
from rubricem_agent.progress import SECONDS, progress_lines
from rubricem_agent.prompting import agent_prompt, stage_prompts
from rubricem_agent.rollout.report import explain_ending, linked_answer, render_report
from rubricem_agent.rollout.run import Attempt, run_episode
from rubricem_agent.wiring.command_option import (
    FOLD_AT_HELP,
    FOLD_TO_HELP,
    KEEP_HELP,
    MAX_CALLS_HELP,
    MAX_TOKENS_HELP,
    MAX_TURNS_HELP,
)
from rubricem_agent.wiring.memory import LessonMemory, OpenedAsk, open_ask
from rubricem_agent.wiring.models import system_of
from rubricem_agent.wiring.question_tools import OFFLINE, refuse_absent_tools
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.domain.trajectory import AnswerFormat, Query, dump_trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.render import GREY, colour_of
from rubricem_env.env.view import View
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.usage import SpendLimitReached
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, STATE_EVALUATION, THINK
from rubricem_env.scaffold.lexer import Scanner, Token, parse_attributes
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import TERMINAL_CONTROL
from rubricem_records.files.atomic_files import writing
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.rollouts.snippet_sources import SnippetSource, shown_sources

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
_WIDTH = 80
_CITATION = re.compile(r"""<(/?)cite(?![\w-])(?:\s+ids?\s*=\s*["']?([^"'<>]*)["']?)?[^<>]*>""", re.IGNORECASE)
_UNDECIDED = re.compile(r"<[^<>]{0,200}\Z")
_WRAPPERS = re.compile(r"</?tool_output>|</?snippet[^>]*>")


class AskScreen(Listener):
    """Shows one episode as it happens: stages as headings, searches with their sources, the answer as it is written."""

    def __init__(self, write: Callable[[str], None], *, colour: bool) -> None:
        self.episode: Episode | None = None
        self._write = write
        self._colour = colour
        self._heard = time.monotonic()
        self._waits_for = "the policy"
        self._scaffold: Scaffold = DEFAULT
        self._stage: str | None = None
        self._closed: set[str] = set()
        self._has_sources = False
        self._begin_turn()

    def _begin_turn(self) -> None:
        self._heard = time.monotonic()
        self._waits_for = "the policy"
        self._scanner = Scanner(self._scaffold)
        self._text = ""
        self._at = 0
        self._cited = ""
        self._grey = False
        self._needs_indent = True

    def began(self, episode: Episode) -> None:
        self.episode = episode
        self._scaffold = episode.scaffold
        self._scanner = Scanner(self._scaffold)

    def waiting(self, _: float) -> str:
        """What has been waited for longer than a line of progress takes; empty where something came since then."""
        silent = time.monotonic() - self._heard
        return f"waiting for {self._waits_for}; {silent:.0f} s" if silent >= SECONDS else ""

    def wrote(self, text: str) -> None:
        """Show the text, up to what could be the beginning of a tag."""
        self._heard = time.monotonic()
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
        """Tell the user that the turn starts again."""
        self._line("the connection was lost; the turn starts again")
        self._begin_turn()

    def found(self, sources: Mapping[str, SnippetSource]) -> None:
        """List the sources of a tool result."""
        self._begin_turn()
        self._has_sources = bool(sources)
        for snippet_id, source in sources.items():
            self._line(f"  {snippet_id}  {' | '.join(part for part in source if part) or '(untitled)'}")

    def observed(self, text: str) -> None:
        """Show a notice or an error as text; of a result the sources are listed already."""
        self._begin_turn()
        if not self._has_sources:
            self._line("  " + " ".join(_WRAPPERS.sub(" ", text).split())[:300])

    def folded(self, view: View) -> None:
        """Say that the policy reads less of what was before."""
        self._line(f"  (the context was folded; whole are {sum(turn.is_whole for turn in view.turns)} turns)")

    def _enter(self, token: Token) -> None:
        if self._grey and token.name != THINK:
            self._show(token.tag)
        elif token.closing:
            self._grey = False
        else:
            self._open(token)

    def _open(self, token: Token) -> None:
        stage = self._stage_of(token.name)
        if stage != self._stage:
            self._stage = stage
            heading = f"\n\n── {stage.upper()} ".ljust(_WIDTH, "─")
            self._write(self._painted(heading, f"1;{colour_of(self._scaffold.names, stage)}"))
            self._needs_indent = True
        self._grey = token.name == THINK
        if token.name == CALL_TOOL:
            tool = parse_attributes(token)[0].get("name", "?")
            self._waits_for = f"the tool {tool}"
            self._write(self._painted(f"\n  → {tool}: ", "1"))
            self._needs_indent = False
        elif token.name in _LABELS:
            self._write(self._painted(f"\n  {_LABELS[token.name]}: ", GREY if self._grey else "1"))
            self._needs_indent = False

    def _stage_of(self, name: str) -> str:
        """The stage to show a tag under, as far as it is known while it is being written."""
        for form in self._scaffold.stages:
            if name == form.ends_with and name not in self._closed:
                self._closed.add(name)
                return form.name
            if name == form.begins_with or name in form.holds:
                return form.name
        return self._stage or self._scaffold.names[0]

    def _show(self, text: str) -> None:
        printable = TERMINAL_CONTROL.sub("", _CITATION.sub(self._replace_citation, text))
        if self._needs_indent:
            printable = printable.lstrip("\n")
        if not printable or (self._needs_indent and not printable.strip()):
            return
        begins = "\n  " if self._needs_indent else ""
        self._needs_indent = False
        self._write(self._painted(begins + printable.replace("\n", "\n  "), GREY if self._grey else ""))

    def _replace_citation(self, tag: re.Match[str]) -> str:
        """Hide the opening tag of a citation, and replace its closing tag with the ids."""
        if not tag[1]:
            self._cited = tag[2]
            return ""
        return f" [{self._cited}]" if self._cited else ""

    def _line(self, text: str) -> None:
        self._write("\n" + self._painted(TERMINAL_CONTROL.sub("", text), GREY))

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


TRAJECTORY = "trajectory.json"
REPORT = "report.md"
NO_MODEL = (
    "No model is used: a script searches the shipped almanac, an invented world, and quotes what it finds. For a real "
    "answer: --policy gemini:MODEL, openai:MODEL@URL or local:PATH, with --tools web."
)
NO_MODEL_OF_TOOLS = (
    "No model is used: a script searches {tools} and quotes what it finds. For an answer by a model: --policy "
    "gemini:MODEL, openai:MODEL@URL or local:PATH."
)
ONLY_ALMANAC = "The search is in the shipped almanac, an invented world. For the real one: --tools web."
_RETRY = RetryPolicy(attempts=4, initial_delay=0.5, deadline=300.0)
"""Fewer attempts than in training, because a person waits."""


@dataclass(frozen=True)
class PlayOptions:
    """How the policy draws its text, how long its research may be, and how much of it it reads.

    Field names are option names.
    """

    temperature: Annotated[float, typer.Option(min=0, max=5, help="Of the policy; 0 takes the likeliest token.")] = (
        Sampling().temperature
    )
    max_turn_tokens: Annotated[int, typer.Option(min=1, help="The most tokens of one turn.")] = (
        Sampling().max_turn_tokens
    )

    max_calls: Annotated[int, typer.Option(min=1, help=MAX_CALLS_HELP)] = EpisodeLimits().max_calls
    max_turns: Annotated[int, typer.Option(min=2, help=MAX_TURNS_HELP)] = EpisodeLimits().max_turns
    max_tokens: Annotated[int, typer.Option(min=1, help=MAX_TOKENS_HELP)] = EpisodeLimits().max_tokens
    fold_at: Annotated[int | None, typer.Option(min=1, help=FOLD_AT_HELP)] = None
    fold_to: Annotated[int, typer.Option(min=1, help=FOLD_TO_HELP)] = ContextLimits().fold_to
    keep: Annotated[int, typer.Option(min=1, help=KEEP_HELP)] = ContextLimits().keep

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_turn_tokens=self.max_turn_tokens)

    @property
    def limits(self) -> EpisodeLimits:
        return EpisodeLimits(max_calls=self.max_calls, max_turns=self.max_turns, max_tokens=self.max_tokens)

    @property
    def context(self) -> ContextLimits:
        return ContextLimits(fold_at=self.fold_at, fold_to=self.fold_to, keep=self.keep)


@dataclass(frozen=True)
class ToolOptions:
    """What the policy searches. Field names are option names."""

    tools: Annotated[
        str, typer.Option(help="offline, web, none, a TOML file, an index, or the URL of a tool server.")
    ] = OFFLINE
    tables: Annotated[
        Path | None, typer.Option(help="Ask tables: a folder of CSV and Parquet files, or a SQLite file, for run_sql.")
    ] = None


@command
def ask(
    terminal: Terminal,
    words: Annotated[list[str], typer.Argument(metavar="QUESTION", help="The question to research, in quotes.")],
    answer_format: Annotated[AnswerFormat, typer.Option("--format", help="The format of the answer.")] = (
        AnswerFormat.LONG
    ),
    policy: Annotated[str, typer.Option(help=f"{POLICY_NAMES}.")] = SCRIPTED,
    played: PlayOptions = PlayOptions(),
    searched: ToolOptions = ToolOptions(),
    reuse: Annotated[
        Literal["none", "within", "cross"],
        typer.Option(help="Lessons from the bank for the first attempt: this question's, or other questions'."),
    ] = "none",
    attempts: Annotated[int, typer.Option(min=1, max=10, help="Attempts; each learns from the one before.")] = 1,
    bank: Annotated[
        Path | None,
        typer.Option(envvar="RUBRICEM_BANK", help="The folder of a rubric bank, or the bank.npz of a checkpoint."),
    ] = None,
    scaffold: ScaffoldOption = DEEP_RESEARCH.name,
    no_probe: ProbeOption = False,
    out: Annotated[Path, typer.Option(help="Where to write trajectory.json and report.md.")] = Path("runs/ask"),
) -> None:
    """Research a question stage by stage and write a report. Exit code 1 means that there is no answer."""
    question = _question_of(words)
    if bank is None and (reuse == "cross" or (reuse == "within" and attempts == 1)):
        raise ConfigError(f"--reuse {reuse} reads a bank; give its folder with --bank.")
    tools = _tools_beside(searched.tables, searched.tools, policy)
    stage_set = read_stage_set(scaffold)
    if policy == SCRIPTED and stage_set.scaffold != DEFAULT:
        raise ConfigError(f"the script writes {DEFAULT.name} alone; for {stage_set.name} name a model with --policy.")
    config = PolicyConfig(policy=policy, sampling=played.sampling, retry=_RETRY)
    limits, context = played.limits, played.context
    open_out(out)
    if policy == SCRIPTED:
        terminal.say(NO_MODEL if tools == OFFLINE else NO_MODEL_OF_TOOLS.format(tools=tools))
    elif tools == OFFLINE:
        terminal.say(ONLY_ALMANAC)
    query = Query(question=question, answer_format=answer_format)
    asked = _Asked(terminal)
    opening = open_ask(
        config,
        os.environ,
        tools=tools,
        tables=searched.tables,
        bank=bank,
        reads_lessons=reuse != "none",
        writes_lessons=attempts > 1,
        probe=not no_probe,
        limits=limits,
        context=context,
        stage_set=stage_set,
    )
    running = _run_attempts(
        query, opening, asked=asked, policy=policy, stage_set=stage_set, reuse=reuse, attempts=attempts
    )
    try:
        dollars = asyncio.run(running)
    except SpendLimitReached as reached:
        terminal.warn(f"rubricem: {str(reached).rstrip('.')}; {asked.save_begun(out)}")
        raise typer.Exit(1) from reached
    except KeyboardInterrupt:
        terminal.warn(f"\nrubricem: interrupted; {asked.save_begun(out)}")
        raise typer.Exit(130) from None
    finished, lessons = asked.finished, asked.lessons
    last = finished[-1]
    _save([attempt.parsed for attempt in finished], out)
    _list_sources(last.parsed, terminal)
    numbers = {key: number for number, key in enumerate(last.parsed.citations.known, 1)}
    brief = linked_answer(last.parsed.answer or "", numbers, sources={})
    more = {"attempts": len(finished), "lessons": lessons, "dollars": dollars}
    terminal.close({**_document(last, out), **more}, _summary(last, dollars, out), brief=brief)
    if not last.parsed.is_complete:
        terminal.warn(f"rubricem: {_explain(last)}")
        raise typer.Exit(1)


def _question_of(words: Sequence[str]) -> str:
    question = " ".join(words)
    if len(words) > 1:
        raise ConfigError(f'the question has no quotes; put it in one pair of them, as in: rubricem ask "{question}"')
    if not question.strip():
        raise ConfigError('the question is empty; ask one, as in: rubricem ask "How wide is the river Tall Fox?"')
    return question.strip()


def _tools_beside(tables: Path | None, tools: str, policy: str) -> str:
    """The other tools: none, where the tables are named alone."""
    if tables is not None and policy == SCRIPTED:
        raise ConfigError("--tables needs a model, and the scripted policy only searches; name one with --policy.")
    return "none" if tables is not None and tools == OFFLINE else tools


class _Asked:
    """What is known of the attempts so far, whether they end or are interrupted."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.finished: list[Rollout] = []
        self.lessons: list[str] = []
        self.screen: AskScreen | None = None

    def open_screen(self) -> AskScreen:
        """The screen of the next attempt; it shows nothing where the command is silent."""
        silent = self.terminal.is_silent
        self.screen = AskScreen(
            (lambda text: None) if silent else lambda text: typer.echo(text, nl=False, color=True),
            colour=self.terminal.colour,
        )
        return self.screen

    def waiting(self, elapsed: float) -> str:
        """What is being waited for, as a line of progress."""
        if self.terminal.is_silent:
            return ""
        return f"opening the policy and the tools; {elapsed:.0f} s" if self.screen is None else self.screen.waiting(0)

    def save_begun(self, out: Path) -> str:
        """Write what there is of an interrupted run; says what that is."""
        parsed = [attempt.parsed for attempt in self.finished]
        episode = self.screen.episode if self.screen is not None else None
        ended = f"{len(parsed)} of the attempts"
        if episode is not None and not episode.is_over and episode.turns:
            episode.abandon()
            parsed.append(episode.read())
            ended = f"{len(episode.turns)} of the turns"
        if not parsed:
            return "no turn had ended, so nothing was written."
        _save(parsed, out)
        return f"what had ended, {ended}, is in {out / TRAJECTORY}."


def _save(attempts: Sequence[ParsedTrajectory], out: Path) -> None:
    """Write the attempts, the last one with its report."""
    files = {f"attempt_{number}.json": attempt for number, attempt in enumerate(attempts[:-1], 1)}
    with writing(out, "Choose another folder with --out."):
        for name, attempt in {**files, TRAJECTORY: attempts[-1]}.items():
            (out / name).write_text(dump_trajectory(attempt.trajectory) + "\n", encoding="utf-8")
        (out / REPORT).write_text(render_report(attempts[-1]), encoding="utf-8")


async def _run_attempts(
    query: Query,
    opening: AbstractAsyncContextManager[OpenedAsk],
    *,
    asked: _Asked,
    policy: str,
    stage_set: StageSet,
    reuse: Literal["none", "within", "cross"],
    attempts: int,
) -> float:
    """Make all attempts in order, where a failed one is the last; returns the known cost in dollars."""
    terminal = asked.terminal
    async with AsyncExitStack() as stack:
        stack.enter_context(progress_lines(asked.waiting))
        context, meter, lessons, specs = await stack.enter_async_context(opening)
        refuse_absent_tools(stage_set.scaffold, context.toolbox.names)
        for number in range(1, attempts + 1):
            if attempts > 1:
                terminal.say(f"\n══ Attempt {number} of {attempts}")
            references = ""
            if lessons is not None and (number > 1 or reuse != "none"):
                mode: Retrieval = "within" if number > 1 or reuse == "within" else "cross"
                references = await _retrieve(lessons, query, mode, terminal)
            scaffold = stage_set.scaffold
            prompt = agent_prompt(
                context.toolbox.names,
                # The prompt that a model was trained with is of the stages that it was trained on.
                system=system_of(policy) if scaffold == DEFAULT else "",
                prompts=stage_prompts(stage_set),
                scaffold=scaffold,
                specs=specs,
            )
            attempt = Attempt(query, prompt.opening(query, references=references), prompt.hash, seed=number - 1)
            last = await run_episode(attempt, context, listener=asked.open_screen())
            asked.finished.append(last)
            if not last.is_valid:
                break
            if number < attempts and lessons is not None:
                asked.lessons.append(await lessons.learn(last.parsed))
                terminal.say(f"\n\n{asked.lessons[-1]}")
    return meter.total.dollars


async def _retrieve(lessons: LessonMemory, query: Query, mode: Retrieval, terminal: Terminal) -> str:
    """The block of lessons before the question; the user is told how many there are."""
    block, shown = await lessons.retrieve(query.question, mode)
    stored = len(lessons.bank)
    if shown:
        terminal.say(f"{len(shown)} lesson{'s' * (len(shown) > 1)} from the bank.")
    elif not stored:
        terminal.say("No lesson from the bank: it is empty.")
    else:
        others = "another question; what is nearly the same is left out (--reuse within reads the question's own)"
        wanted = "this question" if mode == "within" else others
        terminal.say(f"No lesson from the bank: none of its {stored} is of {wanted}.")
    return block


def _explain(attempt: Rollout) -> str:
    """Why there is no answer, in one sentence."""
    if attempt.failure:
        return attempt.failure
    calls = [turn.call.identity for turn in attempt.parsed.turns if turn.call is not None]
    most = max((calls.count(identity) for identity in calls), default=0)
    looped = f" It asked the same thing {most} times." if most >= 3 else ""
    return explain_ending(attempt.parsed.trajectory.ending) + looped


def _document(last: Rollout, out: Path) -> dict[str, Any]:
    """The last attempt as JSON values."""
    trajectory = last.parsed.trajectory
    sources = shown_sources(trajectory)
    return {
        "question": trajectory.question,
        "format": trajectory.answer_format.value,
        "answer": last.parsed.answer if last.parsed.is_complete else None,
        "problem": "" if last.parsed.is_complete else _explain(last),
        "ending": trajectory.ending.value if trajectory.ending else None,
        "citations": [
            {"id": key, **dict(zip(("title", "url"), sources.get(key, ("", "")), strict=True))}
            for key in last.parsed.citations.known
        ],
        "unknown_citations": list(last.parsed.citations.unknown),
        "policy": last.policy,
        "usage": last.usage.model_dump(mode="json"),
        "trajectory": str(out / TRAJECTORY),
        "report": str(out / REPORT),
    }


def _list_sources(parsed: ParsedTrajectory, terminal: Terminal) -> None:
    sources = shown_sources(parsed.trajectory)
    terminal.say("\n")
    for number, key in enumerate(parsed.citations.known, 1):
        title, url = sources.get(key, ("", ""))
        terminal.say(f"[{number}] {key}  {title or '(untitled)'}  {url}".rstrip())
    if parsed.citations.unknown:
        terminal.say(f"Cited, but never shown by a tool: {', '.join(parsed.citations.unknown)}")


def _summary(last: Rollout, dollars: float, out: Path) -> dict[str, object]:
    usage = last.usage
    spent = {"spent": f"${dollars:.4f}"} if dollars else {}
    return {
        "turns": len(last.parsed.turns),
        "searches": sum(turn.call is not None for turn in last.parsed.turns),
        "tokens": f"{usage.input_tokens} read, {usage.output_tokens} written",
        **spent,
        "report": out / REPORT,
        "trajectory": out / TRAJECTORY,
    }
