"""The files of a generation run: samples, what was rejected and why, the report, what was spent."""

import json
from pathlib import Path

from pydantic import ValidationError

from rubricem_agent.data.chatml import write_samples
from rubricem_agent.data.harvest import Harvest, Rejected
from rubricem_agent.data.rejection_report import RejectionReport
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.llm.usage import Meter

SAMPLES_FILE = "samples.jsonl"
REJECTED_FILE = "rejected.jsonl"
REPORT_FILE = "report.json"
USAGE_FILE = "usage.json"


def write_harvest(folder: Path, harvested: Harvest) -> None:
    """Write the samples, the rejected traces with their reasons, and the report; what was there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    write_samples(folder / SAMPLES_FILE, harvested.samples)
    lines = "".join(json.dumps(_fields(rejected), ensure_ascii=False) + "\n" for rejected in harvested.rejected)
    (folder / REJECTED_FILE).write_text(lines, encoding="utf-8")
    (folder / REPORT_FILE).write_text(harvested.report.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_report(folder: Path) -> RejectionReport:
    """The report of a finished run.

    Raises:
        FileFormatError: there is none, or it is malformed.
    """
    path = folder / REPORT_FILE
    try:
        return RejectionReport.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {path}: {cause}. Give the folder of a finished `data teach`.") from cause
    except ValidationError as cause:
        raise FileFormatError(f"{path} is no report: {first_problem(cause)}") from cause


def keep_usage(folder: Path, meter: Meter) -> None:
    """Write what was spent, so that a ceiling holds over restarts."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{USAGE_FILE}.partial"
    partial.write_text(json.dumps(meter.state_dict()), encoding="utf-8")
    partial.rename(folder / USAGE_FILE)


def recall_usage(folder: Path, meter: Meter) -> None:
    """Take over what an earlier start of this run has spent.

    Raises:
        FileFormatError: the file does not say it.
    """
    path = folder / USAGE_FILE
    if not path.exists():
        return
    try:
        meter.load_state_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise FileFormatError(
            f"{path} does not say what was spent, so a ceiling cannot hold. Restore it; or remove it, and what the run "
            "has spent so far counts no longer."
        ) from cause


def _fields(rejected: Rejected) -> dict[str, object]:
    return {
        "id": rejected.trace.task.id,
        "reasons": [reason._asdict() for reason in rejected.reasons],
        "trajectory": rejected.trace.trajectory.model_dump(mode="json"),
    }
