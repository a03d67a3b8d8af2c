"""Writes the table of the paper's eight evaluations into docs/reproduce.md; `make docs-reference` calls it."""

from pathlib import Path

from rubricem_agent.evals.paper_tables import PaperRow, paper_rows

PAGE = Path(__file__).parents[1] / "reproduce.md"
BEGIN = "<!-- The table is made by docs/make/evaluations.py; `make docs-reference` regenerates it. -->"
END = "<!-- End of the table. -->"
HEADINGS = (
    "table",
    "benchmark",
    "file",
    "examples",
    "how they are chosen",
    "judge of the paper",
    "judge here",
    "differs",
    "command",
)


def render() -> str:
    """The page with its table made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS)), *(_line(cells(row)) for row in paper_rows())]
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def cells(row: PaperRow) -> list[str]:
    """One evaluation: what the paper says, and what `--mode paper` does."""
    choice = row.choice
    examples = f"{choice.examples:,}" if choice.examples == choice.of else f"{choice.examples:,} of {choice.of:,}"
    gone = f", until {row.is_judge_gone}" if row.is_judge_gone else ""
    name = f"{row.title}, `{row.benchmark}`"
    file = f"`{row.file}`" if row.file.startswith("hf:") else row.file
    today = f"; {row.judge_today} on today's leaderboard" if row.judge_today else ""
    judges = [choice.judge, f"{row.judge}{gone}{today}"]
    return [str(row.table), name, file, examples, choice.subset, *judges, choice.differs, f"`{row.command}`"]


def _line(texts: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
