"""Prepares the training questions of a data set: reads its rows, and leaves out what evaluations ask."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricem_agent.data.prepare import MAX_QUESTION_TOKENS, PreparedSet, wording, write_training_set
from rubricem_agent.data.question_files import SourceRow, stream_rows
from rubricem_agent.data.question_rows import question_in
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.suite import SUITE, load_benchmark
from rubricem_agent.wiring.hub_files import HUB, fetch_hub_file
from rubricem_agent.wiring.models import requires_extra
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.world.almanac import load_questions, shipped_questions_path

if TYPE_CHECKING:
    pass


def prepare(
    source: str,
    out: Path,
    *,
    evals: Sequence[str] = (),
    max_question_tokens: int = MAX_QUESTION_TOKENS,
    skips_broken: bool = False,
    needs_rubrics: bool = True,
) -> PreparedSet:
    """Write the training set of a file, or of `hf:OWNER/NAME[/FILE][@REVISION]`.

    Each of `evals` is a file of JSON lines, or NAME=FILE with one of the suite's benchmarks in its own format. Their
    questions and the almanac's held-out ones are skipped.

    Raises:
        ConfigError: a name is wrong.
        FileFormatError: a file cannot be fetched or read, or holds nothing fit to train on.
        MissingExtraError: a package is missing.
    """
    path = fetch_hub_file(source, needs_file=False) if source.startswith(HUB) else Path(source).expanduser()
    if path.exists() and out.exists() and path.samefile(out):
        raise ConfigError(f"{out} is the data set itself; write the training set beside it with -o OTHER.jsonl.")
    return write_training_set(
        out,
        read_rows(path),
        evaluated=_evaluated_wordings(evals),
        max_question_tokens=max_question_tokens,
        skips_broken=skips_broken,
        needs_rubrics=needs_rubrics,
    )


def _evaluated_wordings(evals: Iterable[str]) -> frozenset[str]:
    """The wordings of all questions that must not be trained on."""
    held_out = [question for question in load_questions(shipped_questions_path()) if question.split != "train"]
    questions = [question.question for question in held_out]
    for given in evals:
        name, sign, path = given.partition("=")
        if sign and name in SUITE:
            paths = DataPaths(path=Path(path).expanduser())
            loaded = load_benchmark(name, paths, rules=SUITE[name].official, any_version=True)
            questions += [example.prompt_text for example in loaded.examples]
        else:
            questions += list(_questions_of(Path(given).expanduser()))
    return frozenset(wording(question) for question in questions)


def _questions_of(path: Path) -> Iterator[str]:
    """The questions of a file. Each row must have one: a question that is not read could be trained on."""
    for number, content, _ in read_rows(path):
        question = question_in(content) if isinstance(content, dict) else ""
        if not question:
            raise FileFormatError(
                f"{path}, row {number} names no question, so it cannot be kept out of training. Give JSON lines "
                f"with 'question', or NAME=FILE with NAME one of {', '.join(SUITE)}."
            )
        yield question


def read_rows(path: Path) -> Iterator[SourceRow]:
    """The rows of a parquet table, or of a JSON or JSONL file."""
    if path.suffix.casefold() != ".parquet":
        yield from stream_rows(path)
        return
    with requires_extra("documents", "reading parquet"):
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    try:
        batches = parquet.ParquetFile(path).iter_batches(batch_size=256)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from (SourceRow(number, row) for number, row in enumerate(rows, start=1))
    except (arrow.ArrowException, OSError) as cause:
        raise FileFormatError(f"cannot read the table {path}: {cause}. Give a parquet file or JSON lines.") from cause
