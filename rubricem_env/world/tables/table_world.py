"""A world of tables from one integer, in memory, as CSV files of a folder, or as one SQLite file.

``python -m rubricem_env.world.tables.table_world --seed 0 --out DIR`` writes the tables as CSV files into DIR, and the
questions with their truth beside it, into DIR.questions.jsonl.
"""

import argparse
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.world.almanac import to_jsonl
from rubricem_env.world.names import SPLITS
from rubricem_env.world.tables.questions import TableQuestion, ask_table_questions
from rubricem_env.world.tables.rows import COLUMNS, RIVERS, TableRows, draw_rows, fill


class TableWorld:
    """The rows of the tables, and the questions about them."""

    def __init__(self, rows: TableRows, questions: tuple[TableQuestion, ...]) -> None:
        self.rows = rows
        self.questions = questions

    @classmethod
    def from_seed(cls, seed: int, *, rivers: int = RIVERS) -> "TableWorld":
        """The same world for the same arguments, on every machine."""
        rows = draw_rows(seed, rivers)
        return cls(rows, ask_table_questions(rows))

    def questions_of(self, split: str) -> tuple[TableQuestion, ...]:
        """The questions of train, validation or test."""
        if split not in SPLITS:
            raise UsageError(
                f"the tables have no split {split!r}; they have train, validation and test. Use one of these."
            )
        return tuple(question for question in self.questions if question.split == split)

    def write_csv(self, folder: Path) -> None:
        """A file for each table; the folder is made if it is missing. Nothing of the truth is written."""
        folder.mkdir(parents=True, exist_ok=True)
        for table, columns in COLUMNS.items():
            head = ",".join(column.partition(" ")[0] for column in columns)
            lines = (",".join(map(str, row)) for row in self.rows.rows[table])
            (folder / f"{table}.csv").write_bytes("\n".join((head, *lines, "")).encode("ascii"))

    def write_sqlite(self, path: Path) -> None:
        """One SQLite file in place of the folder; an older one is replaced."""
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        fill(connection, self.rows.rows)
        connection.close()


def load_table_questions(path: Path) -> tuple[TableQuestion, ...]:
    """The questions of a file, with their truth, in its order."""
    questions = []
    way_out = "Write the file again with python -m rubricem_env.world.tables.table_world."
    for where, line in read_lines(path, "the questions of a world of tables"):
        with validating(f"{where} is not a TableQuestion", way_out):
            questions.append(TableQuestion.model_validate_json(line))
    return tuple(questions)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a world and print what was written. Exit code 2 and one sentence on stderr for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m rubricem_env.world.tables.table_world", description="Write a small world of tables."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rivers", type=int, default=RIVERS, help="from 9 to 180; the more, the more questions")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    try:
        world = TableWorld.from_seed(chosen.seed, rivers=chosen.rivers)
    except UsageError as mistake:
        sys.stderr.write(f"{mistake}\n")
        return 2
    world.write_csv(chosen.out)
    truth = chosen.out.with_name(f"{chosen.out.name}.questions.jsonl")
    truth.write_bytes(to_jsonl(world.questions))
    sys.stdout.write(f"{len(COLUMNS)} tables in {chosen.out} and {len(world.questions)} questions in {truth}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
