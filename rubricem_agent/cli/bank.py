"""`rubricem bank`: list, search, approve, quarantine, remove, export and import the lessons of a rubric bank."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.config.bank import MINILM, BankConfig
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.probation import describe_effect, describe_interval
from rubricem_agent.memory.snapshot import export_items, import_items
from rubricem_agent.memory.store import BankStoreError
from rubricem_agent.wiring.memory import SNAPSHOT_SUFFIX, build_bank, open_existing_bank
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_lines
from rubricem_records.bank.bank_header import read_header
from rubricem_records.bank.bank_items import SHOWN, STATUSES, BankItem, ItemStatus, LessonOrigin

_QUESTION_WIDTH = 100
"""Characters of a question in a row."""

bank_app = typer.Typer(
    name="bank",
    help="Manage the rubric bank: lessons from judged attempts, which later attempts are shown.",
    no_args_is_help=True,
)
BankOption = Annotated[
    Path,
    typer.Option(
        "--bank", envvar="RUBRICEM_BANK", help="The bank's folder, or the bank.npz of a checkpoint.", show_default=True
    ),
]
NumberArgument = Annotated[int, typer.Argument(min=1, help="The item's number, as `rubricem bank list` shows it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Stored with the item.")]
WeightsOption = Annotated[Path | None, typer.Option(help="A folder with the embedder's weights.")]
DEFAULT_BANK = Path("rubric-bank")


@bank_app.command("list")
@command
def list_items(
    terminal: Terminal,
    bank: BankOption = DEFAULT_BANK,
    status: Annotated[ItemStatus | None, typer.Option(help="Only items of this status.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Replaced and removed items as well.")] = False,
) -> None:
    """List the items that are active, on probation or wait for approval, oldest first."""
    current = (*SHOWN, "quarantined")
    wanted = (status,) if status else STATUSES if show_all else current
    items = [item for item in _open(bank, terminal).items() if item.status in wanted]
    _show_items(terminal, ((item, None) for item in items))
    terminal.close(
        {"items": [item.model_dump(mode="json") for item in items]},
        f"{len(items)} items" if items else "no items",
        brief=_numbers(items),
    )


@bank_app.command()
@command
def show(terminal: Terminal, number: NumberArgument, bank: BankOption = DEFAULT_BANK) -> None:
    """Show one item in full: its texts, its scores, its measured effect and its origin."""
    opened = _open(bank, terminal)
    item = opened.item(number)
    history = [other.id for other in opened.history(item.key)]
    terminal.close(
        item.model_dump(mode="json") | {"history": history},
        _describe_item(item, history),
        brief=_printable(f"{item.reflection.rubrics}\n{item.reflection.takeaways}"),
    )


@bank_app.command()
@command
def search(
    terminal: Terminal,
    question: Annotated[str, typer.Argument(help="A question.")],
    bank: BankOption = DEFAULT_BANK,
    top: Annotated[int, typer.Option(min=1, help="How many items.")] = 5,
    cross: Annotated[bool, typer.Option("--cross", help="What CROSS retrieval would show an attempt.")] = False,
    embedder_path: WeightsOption = None,
) -> None:
    """Find the items whose questions are most similar."""
    if not question.strip():
        raise typer.BadParameter("the question is empty; give at least one word")
    opened = _open(bank, terminal, embeds=True, embedder_path=embedder_path)
    with terminal.working("searching"):
        hits = opened.retrieve(question, "cross") if cross else opened.search(question, limit=top)
    _show_items(terminal, hits)
    terminal.close(
        {"found": [{"similarity": round(hit.similarity, 6), "item": hit.item.model_dump(mode="json")} for hit in hits]},
        "" if hits else "nothing found",
        brief=_numbers(hit.item for hit in hits),
    )


@bank_app.command()
@command
def approve(terminal: Terminal, number: NumberArgument, bank: BankOption = DEFAULT_BANK) -> None:
    """Activate an item that is on probation or in quarantine, whatever its effect is.

    It replaces the active item of its question.
    """
    _change(bank, lambda opened: opened.change(number, "active"), terminal)


@bank_app.command()
@command
def quarantine(
    terminal: Terminal, number: NumberArgument, bank: BankOption = DEFAULT_BANK, reason: ReasonOption = ""
) -> None:
    """Stop showing an item until it is approved or removed."""
    _change(bank, lambda opened: opened.change(number, "quarantined", reason), terminal)


@bank_app.command()
@command
def remove(
    terminal: Terminal, number: NumberArgument, bank: BankOption = DEFAULT_BANK, reason: ReasonOption = ""
) -> None:
    """Remove an item for good: it is never shown again, and its text is refused when it is written again."""
    _change(bank, lambda opened: opened.change(number, "removed", reason), terminal)


@bank_app.command("export")
@command
def export_bank(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    bank: BankOption = DEFAULT_BANK,
    with_probation: Annotated[bool, typer.Option("--with-probation", help="Lessons on probation as well.")] = False,
) -> None:
    """Write the active items to a JSONL file, one reflection a line, without their vectors."""
    count = export_items(_open(bank, terminal).items(), file, with_probation=with_probation)
    terminal.close({"file": str(file), "exported": count}, f"exported {count} items to {file}", brief=str(count))


@bank_app.command("import")
@command
def import_bank(
    terminal: Terminal,
    file: Annotated[Path, typer.Argument(help="A JSONL file of `rubricem bank export`.")],
    bank: BankOption = DEFAULT_BANK,
    embedder: Annotated[str, typer.Option(help="For a new bank: minilm, qwen3-embedding-0.6b or hashing.")] = MINILM,
    embedder_path: WeightsOption = None,
) -> None:
    """Write the reflections of a file to a bank, each through the write gate; a missing bank is created.

    Exits with 1 where a line was refused.
    """
    if not (file.is_file() and read_lines(file, "a file of `rubricem bank export`")):
        held = "reflection in" if file.is_file() else "file"
        raise FileFormatError(f"there is no {held} {file}. Give a file of `rubricem bank export`.")
    _refuse_snapshot(bank)
    if read_header(bank):
        opened = _open(bank, terminal, embeds=True, embedder_path=embedder_path)
    else:
        try:
            opened = build_bank(BankConfig(folder=bank, embedder=embedder, embedder_path=embedder_path))
        except BankStoreError as cause:
            raise FileFormatError(f"{cause}. Give a folder that can be written with --bank.") from cause
    with terminal.working("writing through the gate"):
        written, refusals = import_items(opened, file)
    refused = [{"line": line, "code": why.code, "why": why.sentence} for line, why in refusals]
    terminal.close(
        {"written": [item.id for item in written], "refused": refused},
        f"imported {len(written)} items, refused {len(refusals)}",
        brief=_numbers(written),
    )
    if not terminal.as_json:
        for line, why in refusals:
            terminal.warn(f"  line {line}: {why.code}: {why.sentence}")
    if refusals:
        raise typer.Exit(1)


@bank_app.command()
@command
def stats(terminal: Terminal, bank: BankOption = DEFAULT_BANK) -> None:
    """Count the items by status, and show the embedder and the mean utility."""
    opened = _open(bank, terminal)
    items = opened.items()
    by_status = Counter(item.status for item in items)
    active = [item for item in items if item.is_active]
    scores = [item.reflection.score.utility for item in active if item.reflection.score is not None]
    counted: dict[str, Any] = {
        "embedder": opened.embedder_name,
        "questions": len({item.key for item in items}),
        **{status: by_status[status] for status in STATUSES},
        "mean_utility": round(sum(scores) / len(scores), 4) if scores else None,
        "last_step": max((item.reflection.provenance.step for item in items), default=None),
    }
    shown = {name.replace("_", " "): "-" if value is None else value for name, value in counted.items()}
    terminal.close(counted, shown, brief=str(counted["active"]))


def _open(folder: Path, terminal: Terminal, *, embeds: bool = False, embedder_path: Path | None = None) -> RubricBank:
    try:
        with terminal.working("opening the bank"):
            return open_existing_bank(folder, embeds=embeds, embedder_path=embedder_path)
    except BankStoreError as cause:
        raise FileFormatError(f"{cause}. Is {folder} a rubric bank, and may you write there?") from cause


def _change(folder: Path, change: Callable[[RubricBank], BankItem], terminal: Terminal) -> None:
    _refuse_snapshot(folder)
    item = change(_open(folder, terminal))
    terminal.close(
        {"id": item.id, "status": item.status, "reason": item.reason},
        f"item {item.id} is {item.status}{f' ({item.reason})' if item.reason else ''}",
        brief=item.status,
    )


def _refuse_snapshot(path: Path) -> None:
    if path.suffix == SNAPSHOT_SUFFIX:
        raise UsageError(
            f"{path} is the bank of a checkpoint and is not changed. Make a bank of it: rubricem bank export "
            f"lessons.jsonl --with-probation --bank {path}, then rubricem bank import lessons.jsonl --bank FOLDER."
        )


def _numbers(items: Iterable[BankItem]) -> str:
    return "\n".join(str(item.id) for item in items)


def _show_items(terminal: Terminal, items: Iterable[tuple[BankItem, float | None]]) -> None:
    """Print a table with one row for each item; the similarity is that of a search."""
    rows = [
        (
            str(item.id),
            item.status,
            str(item.reflection.provenance.step),
            "-" if item.reflection.score is None else f"{item.reflection.score.utility:.3f}",
            describe_interval(item.effect) if item.effect.weight else "-",
            str(item.effect.shown),
            "-" if similarity is None else f"{similarity:.3f}",
            inert(" ".join(_printable(item.reflection.question).split())[:_QUESTION_WIDTH]),
        )
        for item, similarity in items
    ]
    if rows:
        terminal.show(
            plain_table("item", "status", "step", "utility", "effect", "seen by", "similarity", "question", rows=rows)
        )


def _describe_item(item: BankItem, history: list[int]) -> str:
    """The texts, scores and origin of an item; `history` has the numbers of all items on its question."""
    reflection = item.reflection
    score = reflection.score
    origin = reflection.provenance
    judged = (
        "not judged"
        if score is None
        else f"utility {score.utility:.3f} (diagnosis {score.diagnosis:g}, specificity {score.specificity:g}, "
        f"scope {score.scope:g})"
    )
    because = f" ({item.reason})" if item.reason else ""
    return "\n".join(
        (
            f"item {item.id}: {item.status}{because}; {judged}",
            f"effect on a score: {describe_effect(item.effect)}",
            *([_describe_origin(item.origin)] if item.origin.words else []),
            f"written at step {origin.step} by {origin.model or '-'} with prompt {origin.prompt_hash or '-'}",
            f"items on this question: {', '.join(map(str, history))}",
            f"\nQuestion\n{_printable(reflection.question)}",
            f"\nRubrics\n{_printable(reflection.rubrics)}",
            f"\nTakeaways\n{_printable(reflection.takeaways)}",
        )
    )


def _describe_origin(origin: LessonOrigin) -> str:
    attempt = "" if origin.attempt is None else f"learnt from attempt {origin.attempt} of its group; "
    pages = f" ({', '.join(origin.page_words)})" if origin.page_words else ""
    return inert(
        f"{attempt}of {origin.words} content words {origin.from_question} are the question's, {origin.from_policy} the "
        f"policy's own, {origin.from_pages} only of pages{pages}"
    )


def _printable(text: str) -> str:
    """Untrusted text with its line breaks; other control characters become visible."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)
