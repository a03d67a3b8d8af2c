"""What remains of a question: files, and a last word on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rubricem_agent.cli.ask_attempts import Attempted
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.rollout.report import explain_ending, linked_answer, render_report
from rubricem_agent.rollout.sources import Source, shown_sources
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import dump_trajectory

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
            {"id": key, **sources.get(key, Source("", ""))._asdict()} for key in last.reading.citations.known
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
        title, url = sources.get(key, Source("", ""))
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
