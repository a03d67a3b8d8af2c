"""Runs of evaluations in their folders: their logs, their benchmark, and their scores computed again."""

from pathlib import Path

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.resumed_run import has_lines, refuse_difference
from rubricem_agent.evals.scoring import EvaluationLogs, score_run
from rubricem_agent.evals.suite import load_benchmark
from rubricem_agent.wiring.input_hashes import beside_sha256
from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.logs import AnswerRecord, VerdictRecord
from rubricem_records.evaluations.manifest import (
    ANSWERS_FILE,
    MANIFEST_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    EvaluationManifest,
    read_manifest,
)
from rubricem_records.evaluations.scores import Scores
from rubricem_records.files.atomic_files import write_atomic, writing
from rubricem_records.files.journal import NO_ROOM, Journal


def rescore_run(folder: Path, data: str = "") -> Scores:
    """The scores of a run from its logs and its data file alone; `data` is the file's current path.

    Raises:
        FileFormatError: the folder is no run, or a log is broken.
        UsageError: the data file is not the one of the run.
    """
    manifest = read_manifest(folder)
    loaded = reload_benchmark(folder, manifest, data=data)
    scores = score_run(loaded, manifest, logs=read_logs(folder))
    write_scores(folder, scores)
    return scores


def reload_benchmark(folder: Path, manifest: EvaluationManifest, *, data: str = "") -> Loaded:
    """The benchmark of a run; raises UsageError where its files or the judge prompts have changed since."""
    inputs = manifest.inputs
    paths = DataPaths(
        Path(data or inputs.path),
        Path(inputs.criteria) if inputs.criteria else None,
        Path(inputs.references) if inputs.references else None,
    )
    loaded = load_benchmark(
        manifest.benchmark,
        paths,
        rules=manifest.rules,
        any_version=True,
        with_fact=inputs.with_fact,
        prompts=manifest.prompts,
    )
    if loaded.sha256 != inputs.sha256:
        raise UsageError(
            f"{loaded.path} has the sha256 {loaded.sha256[:12]}; {folder} was made on "
            f"{inputs.sha256[:12]}. Give the file of that run with --data."
        )
    if beside_sha256(paths.criteria, paths.references) != inputs.beside_sha256:
        raise UsageError(
            f"the criteria or reference articles of {folder} have changed since; its scores can only be computed again "
            f"with the same ones at {inputs.criteria} and {inputs.references}."
        )
    if loaded.grader.prompt_hash != manifest.prompt_hash:
        raise UsageError(
            f"{folder} was judged with prompts {manifest.prompt_hash}; this release has {loaded.grader.prompt_hash}. "
            f"Use release {manifest.code} to compute its scores again."
        )
    return loaded


def read_logs(folder: Path) -> EvaluationLogs:
    """Both logs of a run, as far as they are written."""
    return EvaluationLogs(
        Journal.read(folder / ANSWERS_FILE, AnswerRecord), Journal.read(folder / VERDICTS_FILE, VerdictRecord)
    )


def write_scores(folder: Path, scores: Scores) -> None:
    """Write the scores atomically, and into the manifest what they say of the whole run."""
    path = folder / SCORES_FILE
    with writing(path, NO_ROOM):
        write_atomic(path, scores.model_dump_json(indent=1))
        if read_manifest(folder).warning != scores.manifest.warning:
            write_atomic(folder / MANIFEST_FILE, scores.manifest.model_dump_json(indent=1))


def read_parts(folder: Path, wanted: EvaluationManifest) -> tuple[EvaluationLogs, ...]:
    """The logs of the parts of a split run that have begun; raises UsageError where a part is of another run."""
    begun = [part for part in sorted(folder.glob("*-of-*")) if has_lines(part)]
    for part in begun:
        refuse_difference(part, read_manifest(part), wanted=wanted)
    return tuple(map(read_logs, begun))
