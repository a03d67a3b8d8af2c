"""`rubricem bank`: look at what the agent remembers, let it in, hold it back, take it out, carry it elsewhere.

Items of a rubric bank as a person reads them: a row each, or one whole. The texts are not ours.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.table import Table

from rubricem_agent.build.memory import build_bank, open_existing_bank
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, inert, plain_table
from rubricem_agent.config import MINILM, BankConfig
from rubricem_agent.memory.bank import Retrieval, Retrieved, RubricBank
from rubricem_agent.memory.snapshot import export_items, import_items
from rubricem_agent.memory.store import BankFormatError, BankItem, BankStoreError, ItemStatus, read_header

_SHOWN = 100
"""Characters of a question in a row."""


def item_numbers(items: Iterable[BankItem]) -> str:
    """A line each, for a script to read."""
    return "\n".join(str(item.id) for item in items)


def item_table(rows: Iterable[tuple[BankItem, float | None]]) -> Table:
    """A row each, with how similar it was where that was asked."""
    table = plain_table("item", "status", "step", "utility", "similarity", "question")
    for item, similarity in rows:
        score = item.reflection.score
        table.add_row(
            str(item.id),
            item.status.value,
            str(item.reflection.provenance.step),
            "-" if score is None else f"{score.utility:.3f}",
            "-" if similarity is None else f"{similarity:.3f}",
            inert(" ".join(printable(item.reflection.question).split())[:_SHOWN]),
        )
    return table


def whole_item(item: BankItem, history: list[int]) -> str:
    """Its texts, its scores and where it came from; `history` are all items on its question."""
    reflection = item.reflection
    score, origin = reflection.score, reflection.provenance
    judged = (
        "not judged"
        if score is None
        else f"utility {score.utility:.3f} (diagnosis {score.diagnosis:g}, specificity {score.specificity:g}, "
        f"scope {score.scope:g})"
    )
    because = f" ({item.reason})" if item.reason else ""
    texts = (
        ("Question", reflection.question),
        ("Rubrics", reflection.rubrics),
        ("Takeaways", reflection.takeaways),
    )
    return "\n".join(
        (
            f"item {item.id}: {item.status}{because}; {judged}",
            f"written at step {origin.step} by {origin.model or '-'} with prompt {origin.prompt_hash or '-'}",
            f"items on this question: {', '.join(map(str, history))}",
            *(f"\n{title}\n{printable(text)}" for title, text in texts),
        )
    )


def printable(text: str) -> str:
    """Line breaks kept, other control characters made visible."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


bank_app = typer.Typer(
    name="bank",
    help="Look after the rubric bank: lessons of judged attempts, which later attempts are shown.",
    no_args_is_help=True,
    add_completion=False,
)

BankOption = Annotated[
    Path, typer.Option("--bank", envvar="RUBRICEM_BANK", help="The bank's folder.", show_default=True)
]
NumberArgument = Annotated[int, typer.Argument(min=1, help="The item's number, as `rubricem bank list` shows it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Kept with the item.")]
WeightsOption = Annotated[Path | None, typer.Option(help="A folder with the embedder's weights.")]
DEFAULT_BANK = Path("rubric-bank")


class _Change(Protocol):
    def __call__(self, bank: RubricBank) -> BankItem: ...


@bank_app.command("list")
def list_items(
    bank: BankOption = DEFAULT_BANK,
    status: Annotated[ItemStatus | None, typer.Option(help="Only items of this status.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="History and tombstones as well.")] = False,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the items that are in use or wait for approval, oldest first."""
    current = (ItemStatus.ACTIVE, ItemStatus.QUARANTINED)
    wanted = (status,) if status else tuple(ItemStatus) if show_all else current
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    items = [item for item in _open(bank, terminal).items() if item.status in wanted]
    if items:
        terminal.show(item_table((item, None) for item in items))
    terminal.close(
        {"items": [item.model_dump(mode="json") for item in items]},
        f"{len(items)} items" if items else "no items",
        brief=item_numbers(items),
    )


@bank_app.command()
def show(
    number: NumberArgument,
    bank: BankOption = DEFAULT_BANK,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show one item whole: its texts, its scores and where it came from."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    opened = _open(bank, terminal)
    item = opened.item(number)
    history = [other.id for other in opened.history(item.key)]
    terminal.close(
        item.model_dump(mode="json") | {"history": history},
        whole_item(item, history),
        brief=printable(f"{item.reflection.rubrics}\n{item.reflection.takeaways}"),
    )


@bank_app.command()
def search(
    question: Annotated[str, typer.Argument(help="A question, as one would ask it.")],
    bank: BankOption = DEFAULT_BANK,
    top: Annotated[int, typer.Option(min=1, help="How many items.")] = 5,
    cross: Annotated[bool, typer.Option("--cross", help="What CROSS retrieval would offer an attempt.")] = False,
    embedder_path: WeightsOption = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the items whose questions are most similar."""
    if not question.strip():
        raise typer.BadParameter("the question is empty; give at least one word")
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    opened = _open(bank, terminal, embeds=True, embedder_path=embedder_path)
    with terminal.working("searching"):
        found = opened.retrieve(question, Retrieval.CROSS) if cross else opened.search(question, limit=top)
    if found:
        terminal.show(item_table(found))
    terminal.close(
        {"found": [_found_json(hit) for hit in found]},
        "" if found else "nothing found",
        brief=item_numbers(hit.item for hit in found),
    )


@bank_app.command()
def approve(
    number: NumberArgument,
    bank: BankOption = DEFAULT_BANK,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Put a quarantined item into use, in place of its question's earlier one."""
    _change(bank, lambda opened: opened.approve(number), Terminal(as_json=as_json, is_quiet=quiet))


@bank_app.command()
def quarantine(
    number: NumberArgument,
    bank: BankOption = DEFAULT_BANK,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Hold an item back until it is approved or removed."""
    _change(bank, lambda opened: opened.quarantine(number, reason), Terminal(as_json=as_json, is_quiet=quiet))


@bank_app.command()
def remove(
    number: NumberArgument,
    bank: BankOption = DEFAULT_BANK,
    reason: ReasonOption = "",
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Take an item out for good: it is never offered again, and its text is refused when it comes back."""
    _change(bank, lambda opened: opened.remove(number, reason), Terminal(as_json=as_json, is_quiet=quiet))


@bank_app.command("export")
def export_bank(
    file: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    bank: BankOption = DEFAULT_BANK,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the active items to a JSONL file, one reflection a line, without their vectors."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    count = export_items(_open(bank, terminal).items(), file)
    terminal.close({"file": str(file), "exported": count}, f"exported {count} items to {file}", brief=str(count))


@bank_app.command("import")
def import_bank(
    file: Annotated[Path, typer.Argument(help="A JSONL file of `rubricem bank export`.")],
    bank: BankOption = DEFAULT_BANK,
    embedder: Annotated[str, typer.Option(help="For a new bank: minilm, qwen3-embedding-0.6b or hashing.")] = MINILM,
    embedder_path: WeightsOption = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write the reflections of a file to a bank, each through the write gate; the bank is made where there is none.

    Exits with 1 where a line was refused.
    """
    if not file.is_file():
        raise BankFormatError(f"there is no file {file}. Give a file of `rubricem bank export`.")
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    if read_header(bank):
        opened = _open(bank, terminal, embeds=True, embedder_path=embedder_path)
    else:
        opened = _make(BankConfig(folder=bank, embedder=embedder, embedder_path=embedder_path))
    with terminal.working("writing through the gate"):
        imported = import_items(opened, file)
    refused = [{"line": line, "code": why.code.value, "why": why.sentence} for line, why in imported.refused]
    terminal.close(
        {"written": [item.id for item in imported.written], "refused": refused},
        f"imported {len(imported.written)} items, refused {len(imported.refused)}",
        brief=item_numbers(imported.written),
    )
    if not as_json:
        for line, why in imported.refused:
            terminal.warn(f"  line {line}: {why.code}: {why.sentence}")
    if imported.refused:
        raise typer.Exit(1)


@bank_app.command()
def stats(bank: BankOption = DEFAULT_BANK, *, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """Count the items by status and say what the bank is made of."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    opened = _open(bank, terminal)
    items = opened.items()
    by_status = Counter(item.status for item in items)
    active = [item for item in items if item.is_retrievable]
    scores = [item.reflection.score.utility for item in active if item.reflection.score is not None]
    counted: dict[str, Any] = {
        "embedder": opened.embedder_name,
        "questions": len({item.key for item in items}),
        **{status.value: by_status[status] for status in ItemStatus},
        "mean_utility": round(sum(scores) / len(scores), 4) if scores else None,
        "last_step": max((item.reflection.provenance.step for item in items), default=None),
    }
    shown = {name.replace("_", " "): "-" if value is None else value for name, value in counted.items()}
    terminal.close(counted, shown, brief=str(counted[ItemStatus.ACTIVE.value]))


def _open(folder: Path, terminal: Terminal, *, embeds: bool = False, embedder_path: Path | None = None) -> RubricBank:
    """The bank; a database that cannot be opened is the user's to know, in one sentence."""
    try:
        with terminal.working("opening the bank"):
            return open_existing_bank(folder, embeds=embeds, embedder_path=embedder_path)
    except BankStoreError as cause:
        raise BankFormatError(f"{cause}. Is {folder} a rubric bank, and may you write there?") from cause


def _make(config: BankConfig) -> RubricBank:
    try:
        return build_bank(config)
    except BankStoreError as cause:
        raise BankFormatError(f"{cause}. Give a folder that can be written with --bank.") from cause


def _change(folder: Path, change: _Change, terminal: Terminal) -> None:
    item = change(_open(folder, terminal))
    terminal.close(
        {"id": item.id, "status": item.status.value, "reason": item.reason},
        f"item {item.id} is {item.status}{f' ({item.reason})' if item.reason else ''}",
        brief=item.status.value,
    )


def _found_json(hit: Retrieved) -> dict[str, Any]:
    return {"similarity": round(hit.similarity, 6), "item": hit.item.model_dump(mode="json")}
