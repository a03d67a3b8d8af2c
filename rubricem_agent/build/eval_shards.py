"""One run in several processes: each part with logs of its own, and the parts joined into the run."""

import asyncio
from importlib import import_module
from pathlib import Path

from rubricem_agent.build.eval_scores import write_scores
from rubricem_agent.build.evals import PlannedRun, plan_run, run_evaluation
from rubricem_agent.config.evals import EvalConfig
from rubricem_agent.evals.run.journal import Journal, RecordT
from rubricem_agent.evals.run.manifest import ANSWERS_FILE, VERDICTS_FILE, settle_manifest
from rubricem_agent.evals.run.records import AnswerRecord, VerdictRecord
from rubricem_agent.evals.scores import Scores
from rubricem_agent.evals.scoring import Logs, score_run
from rubricem_env.domain.errors import MissingExtraError

SHARDS = "shards"


def run_over_ray(planned: PlannedRun, shards: int) -> Scores:
    """Every part as one task of a Ray cluster that sees the same folder; then join them.

    A part that dies is tried again by Ray, and goes on from its own logs.

    Raises:
        MissingExtraError: ray is not installed.
    """
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as cause:
        raise MissingExtraError("ray", "verl", "sharding an evaluation over a cluster") from cause
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    part = ray.remote(max_retries=3)(run_part)
    text = planned.config.model_dump_json()
    ray.get([part.remote(text, number, shards) for number in range(1, shards + 1)])
    return join_shards(planned)


def run_part(config: str, number: int, shards: int) -> None:
    """One part, from settings as JSON: what a worker is sent."""
    whole = EvalConfig.model_validate_json(config, strict=False)
    asyncio.run(run_evaluation(plan_run(whole.model_copy(update={"shard": (number, shards)}))))


def join_shards(planned: PlannedRun) -> Scores:
    """Put the parts' lines into the run's own logs, each line once, and compute the numbers of the whole."""
    folder = planned.config.folder
    manifest = settle_manifest(folder, planned.manifest)
    answers = Journal.open(folder / ANSWERS_FILE, AnswerRecord)
    verdicts = Journal.open(folder / VERDICTS_FILE, VerdictRecord)
    try:
        for part in parts_of(folder):
            _take_over(Journal.read(part / ANSWERS_FILE, AnswerRecord), answers)
            _take_over(Journal.read(part / VERDICTS_FILE, VerdictRecord), verdicts)
        scores = score_run(planned.loaded, manifest, Logs(answers, verdicts))
    finally:
        answers.close()
        verdicts.close()
    write_scores(folder, scores)
    return scores


def _take_over(part: Journal[RecordT], whole: Journal[RecordT]) -> None:
    for record in part.records:
        known = whole.find(record.key)
        if known is None or not known.is_final:
            whole.append(record)


def parts_of(folder: Path) -> tuple[Path, ...]:
    """The folders of the parts that have begun."""
    return tuple(sorted((folder / SHARDS).glob("*-of-*")))
