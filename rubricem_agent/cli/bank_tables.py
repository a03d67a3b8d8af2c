"""Items of a rubric bank as a person reads them: a row each, or one whole. The texts are not ours."""

from collections.abc import Iterable

from rich.table import Table

from rubricem_agent.cli.terminal import inert, plain_table
from rubricem_agent.memory.item import BankItem

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
