"""Which examples of a benchmark are run: the two published rules, explicit ids, and one fixed set for ablations.

The published rules pick row numbers from the row count alone, so that they can be checked without the data.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_env.domain.errors import UsageError

OFFICIAL_SEED: Final = 0
DRTULU_SEED: Final = 42
ABLATION_SEED: Final = 100
"""The paper fixes a random subset and does not print its seed; this one is ours, and is the same in every run."""
ABLATION_SIZE: Final = 100


def official_rows(num_rows: int, size: int) -> list[int]:
    """simple-evals: a sample with seed 0, in the order drawn."""
    _check(num_rows, size)
    return random.Random(OFFICIAL_SEED).sample(range(num_rows), size)


def drtulu_rows(num_rows: int, size: int) -> list[int]:
    """The predecessor: all rows shuffled with seed 42, then the first `size`. Fewer rows than that are all taken."""
    if num_rows < 1 or size < 1:
        _check(num_rows, size)
    rows = list(range(num_rows))
    random.Random(DRTULU_SEED).shuffle(rows)
    return rows[:size]


def ablation_rows(num_rows: int) -> list[int]:
    """100 rows in ascending order, the same in every run; all rows where there are no more."""
    size = min(ABLATION_SIZE, num_rows)
    _check(num_rows, size)
    return sorted(random.Random(ABLATION_SEED).sample(range(num_rows), size))


def rows_of_ids(path: Path, known: Sequence[str]) -> list[int]:
    """The rows whose ids a file lists, one per line, in the file's order. Refuses an unknown and a repeated id."""
    row_of = {example_id: row for row, example_id in enumerate(known)}
    rows: list[int] = []
    for number, example_id in _listed(path):
        if example_id not in row_of:
            raise BenchmarkFileError(
                f"{path} line {number}: the id {example_id!r} is not in the benchmark, which has {len(known)} examples. "
                "Correct the id, or load the file that it belongs to."
            )
        if row_of[example_id] in rows:
            raise BenchmarkFileError(
                f"{path} line {number}: the id {example_id!r} is listed twice; an example is run once per epoch. "
                "Remove the line, or ask for more epochs."
            )
        rows.append(row_of[example_id])
    return rows


def _listed(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BenchmarkFileError(
            f"{path} cannot be read as UTF-8 text ({error}); give a file with one id per line."
        ) from error
    listed = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not listed:
        raise BenchmarkFileError(f"{path} lists no id; a subset holds at least one. Write one id per line.")
    return listed


def _check(num_rows: int, size: int) -> None:
    if not 1 <= size <= num_rows:
        raise UsageError(
            f"a subset of {size} was asked of {num_rows} rows; it holds at least 1 and at most all rows. Ask for fewer."
        )
