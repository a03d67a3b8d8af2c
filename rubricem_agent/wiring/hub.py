"""Publishes a model, a rubric bank or a data set on the Hugging Face hub, with a card that says where it is from."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from rubricem_agent.data.filter import REPORT_FILE, SAMPLES_FILE
from rubricem_agent.learn.code_version import CODE_FILE, code_version
from rubricem_agent.memory.snapshot import export_items
from rubricem_agent.wiring.hub_files import parse_hub_file
from rubricem_agent.wiring.memory import SNAPSHOT_SUFFIX, open_existing_bank
from rubricem_agent.wiring.models import requires_extra
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.inputs import package_text, read_text
from rubricem_records.bank.bank_header import read_header
from rubricem_records.files.line_file import LineFile
from rubricem_records.runs.run_log import METRICS_FILE
from rubricem_records.runs.run_settings import SETTINGS_FILE

BANK = "rubric-bank"
MODEL = "model"
CARD = "README.md"
_SENT: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        MODEL: ("*.safetensors", ("config.json", "*.safetensors", "*.json", "*.jinja", "*.txt")),
        "trajectories": ("rollouts.jsonl.gz", ("rollouts.jsonl.gz", "groups.jsonl.gz")),
        "samples": (SAMPLES_FILE, (SAMPLES_FILE, REPORT_FILE)),
    }
)
"""By the name of its card: the file that tells a folder of this kind, and what is sent of it; nothing else leaves."""


def plan_upload(source: Path) -> tuple[str, dict[str, bytes | Path]]:
    """The name of the card, and what would be sent of a folder or of a bank, the card first.

    A README.md beside the files takes the place of the card's text. What is known of the run and the code ends it.

    Raises:
        FileFormatError: it is nothing that can be pushed, or cannot be read.
    """
    files: dict[str, bytes | Path] = {}
    kind = next((name for name, (telling, _) in _SENT.items() if any(source.glob(telling))), BANK)
    if kind != BANK:
        files = {path.name: path for pattern in _SENT[kind][1] for path in sorted(source.glob(pattern))}
    elif source.suffix == SNAPSHOT_SUFFIX or read_header(source) is not None:
        with TemporaryDirectory() as place:
            export_items(open_existing_bank(source, embeds=False).items(), exported := Path(place) / "bank.jsonl")
            files = {exported.name: exported.read_bytes()}
    else:
        raise FileFormatError(
            f"{source} is no model's folder, no rubric bank, no record of a run and no teacher data. Of a run, name "
            "its part, such as RUN/model, RUN/record or the bank.npz of a checkpoint."
        )
    own = source / CARD
    if linked := [path for path in (own, *files.values()) if isinstance(path, Path) and path.is_symlink()]:
        raise FileFormatError(
            f"{linked[0]} is a link, and what it leads to may be no part of {source}; only files of the folder are "
            "sent. Put a copy in its place."
        )
    text = read_text(own, "a card") if own.is_file() else package_text("rubricem_agent", "cards", f"{kind}.md")
    rows = "".join(f"| {name} | {value} |\n" for name, value in origin_of(source.resolve()).items())
    return kind, {CARD: f"{text.rstrip()}\n\n## Where it is from\n\n| | |\n|---|---|\n{rows}".encode(), **files}


def origin_of(source: Path) -> dict[str, str]:
    """What is known of the run that made it and of the code; a path on this machine is named by its last part.

    Raises:
        FileFormatError: the run's files cannot be read.
    """
    known: dict[str, str] = {}
    run = next((at for at in (source, *source.parents[:4]) if (at / METRICS_FILE).is_file()), None)
    if run is not None:
        try:
            settings = json.loads((run / SETTINGS_FILE).read_bytes()) if (run / SETTINGS_FILE).is_file() else {}
            steps = max((json.loads(line)["step"] for line in LineFile(run / METRICS_FILE).read()), default=0)
            code = (run / CODE_FILE).read_text().strip() if (run / CODE_FILE).is_file() else "not recorded"
        except (OSError, ValueError, LookupError, TypeError) as cause:
            raise FileFormatError(f"the log or the settings in {run} cannot be read: {cause}. Restore them.") from cause
        known = {"run": run.name, "steps": str(steps), "code of the run": code}
        given = {name: Path(str(settings[name])) for name in ("policy", "model") if settings.get(name)}
        known |= {name: path.name if path.is_absolute() else str(path) for name, path in given.items()}
    return known | {"pushed by": code_version()}


def send_upload(kind: str, files: Mapping[str, bytes | Path], repository: str, *, private: bool) -> str:
    """Send them in one commit, to a repository that is made where it is missing; returns the commit's address.

    Raises:
        ConfigError: the name is malformed, or the hub refuses or does not answer.
        MissingExtraError: huggingface_hub is not installed.
    """
    parse_hub_file(repository, needs_file=False)
    with requires_extra("local", "a push to the hub", package="huggingface_hub"):
        from httpx import HTTPError
        from huggingface_hub import CommitOperationAdd, HfApi
    of = "model" if kind == MODEL else "dataset"
    added = [CommitOperationAdd(*file) for file in files.items()]
    try:
        HfApi().create_repo(repository, repo_type=of, private=private or None, exist_ok=True)
        made = HfApi().create_commit(repository, added, repo_type=of, commit_message=f"rubricem push: {kind}")
    except (HTTPError, OSError, ValueError) as cause:
        said = str(cause).strip().partition("\n")[0] or type(cause).__name__
        raise ConfigError(
            f"the hub did not take {repository}: {said} Log in with `hf auth login`, or set HF_TOKEN, to write there."
        ) from cause
    return str(made.commit_url)
