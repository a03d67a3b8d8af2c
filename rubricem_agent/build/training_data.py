"""Brings a data set here and makes a training set of it: files, the hub, parquet, and what is evaluated on."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rubricem_agent.data.prepare import MAX_QUESTION_TOKENS, Preparation, PreparedSet, wording, write_training_set
from rubricem_agent.data.source_rows import SourceRow, stream_rows
from rubricem_agent.data.training_rows import question_in
from rubricem_agent.evals.loading import load_benchmark
from rubricem_agent.evals.rules import OFFICIAL
from rubricem_agent.evals.suite import SUITE, DataPaths
from rubricem_env.domain.errors import ConfigError, FileFormatError, MissingExtraError
from rubricem_env.world.jsonl import load_questions, shipped_questions_path

HUB = "hf:"
_READABLE = (".jsonl", ".json", ".parquet")


def prepare(
    source: str,
    out: Path,
    *,
    evals: Sequence[str] = (),
    max_question_tokens: int = MAX_QUESTION_TOKENS,
    skips_broken: bool = False,
) -> PreparedSet:
    """Write the training set of a file, or of `hf:OWNER/NAME[/FILE][@REVISION]`.

    Each of `evals` is a file of JSON lines, or NAME=FILE with one of the suite's benchmarks in its own form; their
    questions and the almanac's held-out ones are left out.

    Raises:
        ConfigError: a name is none.
        FileFormatError: a file cannot be fetched or read, or holds nothing fit to train on.
        MissingExtraError: a package is missing.
    """
    path = fetch_data_set(source) if source.startswith(HUB) else Path(source).expanduser()
    if path.exists() and out.exists() and path.samefile(out):
        raise ConfigError(f"{out} is the data set itself; write the training set beside it with -o OTHER.jsonl.")
    preparation = Preparation(evaluated_wordings(evals), max_question_tokens=max_question_tokens)
    return write_training_set(out, read_rows(path), preparation=preparation, skips_broken=skips_broken)


def read_rows(path: Path) -> Iterator[SourceRow]:
    """The rows of a file by its ending: .parquet is a table, all else is JSON."""
    return _table_rows(path) if path.suffix.casefold() == ".parquet" else stream_rows(path)


def evaluated_wordings(evals: Iterable[str]) -> frozenset[str]:
    """The wordings of all questions that must not be trained on."""
    asked = [question.question for question in load_questions(shipped_questions_path()) if question.split != "train"]
    for given in evals:
        name, sign, path = given.partition("=")
        if sign and name in SUITE:
            paths = DataPaths(path=Path(path).expanduser())
            loaded = load_benchmark(name, paths, rules=OFFICIAL[name], any_version=True)
            asked += [example.prompt_text for example in loaded.examples]
        else:
            asked += list(_questions_of(Path(given).expanduser()))
    return frozenset(wording(question) for question in asked)


def _questions_of(path: Path) -> Iterator[str]:
    """The questions of a file, which must name one in each row: a file half understood guards nothing."""
    for row in read_rows(path):
        question = question_in(row.content) if isinstance(row.content, dict) else ""
        if not question:
            raise FileFormatError(
                f"{path}, row {row.number} names no question, so it cannot be kept out of training. Give JSON lines "
                f"with 'question', or NAME=FILE with NAME one of {', '.join(SUITE)}."
            )
        yield question


def fetch_data_set(source: str) -> Path:
    """The file of a data set on the hub, from the cache where it is there already.

    Raises:
        ConfigError: the name is not hf:OWNER/NAME[/FILE][@REVISION], or does not tell which of several files.
        MissingExtraError: huggingface_hub is not installed.
        FileFormatError: it cannot be fetched.
    """
    name, _, revision = source.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository):
        raise ConfigError(f"the data set is {source!r}; one on the hub is named hf:OWNER/NAME[/FILE][@REVISION].")
    try:
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "huggingface_hub", "local", "a data set from the hub") from cause
    at = revision or None
    try:
        if not file:
            files = HfApi().list_repo_files(f"{owner}/{repository}", repo_type="dataset", revision=at)
            file = choose_file(files, source)
        return Path(hf_hub_download(f"{owner}/{repository}", file, repo_type="dataset", revision=at))
    except (HTTPError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as cause:
        raise FileFormatError(
            f"{source} cannot be fetched ({type(cause).__name__}). Without a network, fetch the file elsewhere and "
            "give its path."
        ) from cause


def choose_file(files: Iterable[str], source: str) -> str:
    """The one file of a repository that can be read, or the only one of them for training.

    Raises:
        ConfigError: there is none, or several.
    """
    readable = sorted(file for file in files if file.endswith(_READABLE))
    training = [file for file in readable if "train" in file.casefold()]
    for candidates in (readable, training):
        if len(candidates) == 1:
            return candidates[0]
    held = f"holds {', '.join(readable)}" if readable else f"holds no file that ends in {', '.join(_READABLE)}"
    raise ConfigError(f"{source} {held}; name one as hf:OWNER/NAME/FILE[@REVISION].")


def _table_rows(path: Path) -> Iterator[SourceRow]:
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "pyarrow", "verl", "reading parquet") from cause
    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield SourceRow(number, row)
    except (arrow.ArrowException, OSError) as cause:
        raise FileFormatError(f"cannot read the table {path}: {cause}. Give a parquet file or JSON lines.") from cause
