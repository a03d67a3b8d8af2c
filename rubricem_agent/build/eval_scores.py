"""The numbers of runs that are there, made again from their logs; and the logs of the parts of a split run."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rubricem_agent.build.eval_sources import beside_sha256
from rubricem_agent.evals.loading import Loaded, load_benchmark
from rubricem_agent.evals.run.journal import Journal
from rubricem_agent.evals.run.manifest import (
    ANSWERS_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    Manifest,
    has_lines,
    read_manifest,
    refuse_difference,
)
from rubricem_agent.evals.run.records import AnswerRecord, VerdictRecord
from rubricem_agent.evals.scores import Scores
from rubricem_agent.evals.scoring import Logs, score_run
from rubricem_agent.evals.suite import DataPaths
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory_json import first_problem


def rescore_run(folder: Path, data: str = "") -> Scores:
    """The numbers of a run from its logs and its data file alone; `data` says where that lies now.

    Raises:
        FileFormatError: the folder is no run, or a log is broken.
        UsageError: the data file is not the one of the run.
    """
    manifest = read_manifest(folder)
    loaded = reload_benchmark(folder, manifest, data=data)
    scores = score_run(loaded, manifest, logs=read_logs(folder))
    write_scores(folder, scores)
    return scores


def reload_benchmark(folder: Path, manifest: Manifest, *, data: str = "") -> Loaded:
    """The benchmark of a run from its file, which must be the very same one.

    Raises:
        UsageError: it is another file, or the judge prompts have changed since.
    """
    inputs = manifest.inputs
    paths = DataPaths(
        Path(data or inputs.path),
        Path(inputs.criteria) if inputs.criteria else None,
        Path(inputs.references) if inputs.references else None,
    )
    loaded = load_benchmark(
        manifest.benchmark, paths, rules=manifest.rules, any_version=True, with_fact=inputs.with_fact
    )
    if loaded.source.sha256 != inputs.sha256:
        raise UsageError(
            f"{loaded.source.path} has the sha256 {loaded.source.sha256[:12]}; {folder} was made on "
            f"{inputs.sha256[:12]}. Give the file of that run with --data."
        )
    if beside_sha256(paths.criteria, paths.references) != inputs.beside_sha256:
        raise UsageError(
            f"the criteria or reference articles of {folder} have changed since; its numbers can only be made again "
            f"with the same ones at {inputs.criteria} and {inputs.references}."
        )
    if loaded.grader.prompt_hash != manifest.prompt_hash:
        raise UsageError(
            f"{folder} was judged with prompts {manifest.prompt_hash}; this release has {loaded.grader.prompt_hash}. "
            f"Use release {manifest.code} to make its numbers again."
        )
    return loaded


def read_logs(folder: Path) -> Logs:
    """Both logs of a run, as far as they are written."""
    return Logs(Journal.read(folder / ANSWERS_FILE, AnswerRecord), Journal.read(folder / VERDICTS_FILE, VerdictRecord))


def write_scores(folder: Path, scores: Scores) -> None:
    """The scores beside the logs, whole or not at all."""
    path = folder / SCORES_FILE
    partial = path.with_suffix(".partial")
    partial.write_text(scores.model_dump_json(indent=1), encoding="utf-8")
    partial.replace(path)


def read_parts(folder: Path, wanted: Manifest) -> tuple[Logs, ...]:
    """The logs of the parts of a split run, as far as they have begun.

    Raises:
        UsageError: a part is of another run.
    """
    begun = [part for part in sorted(folder.glob("*-of-*")) if has_lines(part)]
    for part in begun:
        refuse_difference(part, read_manifest(part), wanted=wanted)
    return tuple(map(read_logs, begun))


def take_over_parts(parts: Sequence[Logs], logs: Logs) -> None:
    """Put the lines of the parts into the run's own logs, each once."""
    for part in parts:
        for answer in part.answers.records:
            if answer.is_final and is_news(logs.answers.find(answer.key)):
                logs.answers.append(answer)
        for verdict in part.verdicts.records:
            if verdict.is_final and is_news(logs.verdicts.find(verdict.key)):
                logs.verdicts.append(verdict)


def is_news(known: AnswerRecord | VerdictRecord | None) -> bool:
    """Whether there is nothing final yet."""
    return known is None or not known.is_final


def stored_scores(folder: Path) -> Scores | None:
    """The numbers that a run has stored; None where there are none, as after an interrupt, or none that can be read."""
    try:
        return read_scores(folder)
    except FileFormatError:
        return None


def read_scores(folder: Path) -> Scores:
    """The numbers that a run has stored.

    Raises:
        FileFormatError: there are none, or not of this release.
    """
    path = folder / SCORES_FILE
    try:
        return Scores.model_validate_json(path.read_bytes())
    except OSError as cause:
        raise FileFormatError(
            f"{folder} has no scores; run `rubricem eval rescore {folder}` to make them from its logs."
        ) from cause
    except ValidationError as cause:
        raise FileFormatError(
            f"{path} cannot be read: {first_problem(cause)} Make it anew with `rubricem eval rescore {folder}`."
        ) from cause
