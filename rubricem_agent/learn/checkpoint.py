"""A checkpoint: everything that a run must restart from, in one folder under one manifest, whole or not there.

    runs/a/checkpoints/step-000600/
      manifest.json            format, step, hashes of the prompts; of each part file, bytes, sha256, and its step
      weights.safetensors  optimizer.pt  curriculum.json  deferred.json ...

The folder is written under another name, forced to the disk and renamed, so that a kill leaves the old one or the
new one. Reading checks every hash, and that no part belongs to another step.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, UsageError, boundary
from rubricem_env.domain.inputs import refuse_larger_than_memory
from rubricem_env.heap import filling_heap
from rubricem_records.files.atomic_files import flush, write_text
from rubricem_records.files.file_hash import sha256

FORMAT = 1
MANIFEST = "manifest.json"
_NAME = re.compile(r"step-(\d{6,})")


CheckpointItem = tuple[str, Callable[[Path], None], int]
"""One thing to save: its file name in the checkpoint, a writer of that file, and the step that the state belongs to."""


class PartEntry(Frozen):
    """What the manifest says of a part."""

    file: Annotated[str, Field(pattern=r"^[^/\\\x00]+$", max_length=100)]
    """A name, not a path: a manifest cannot point outside its folder."""
    num_bytes: int
    sha256: str
    step: int


class Checkpoint(Frozen):
    """A checkpoint on disk, as its manifest describes it; the folder holds nothing that is not named here."""

    format: int
    step: int
    parts: dict[str, PartEntry]
    prompts: Annotated[dict[str, str], Field(default_factory=dict)]
    """The hash of each prompt of the run, by the name of its file; empty where a run has none."""
    folder: Annotated[Path, Field(exclude=True)] = Path()

    def path(self, name: str) -> Path:
        """The file of a part.

        Raises:
            UsageError: this checkpoint has no such part.
        """
        entry = self.parts.get(name)
        if entry is None:
            raise UsageError(
                f"{self.folder} has no {name}; it holds {', '.join(self.parts)}. "
                "It was written by a run with other settings: resume with those."
            )
        return self.folder / entry.file

    def refuse_other_prompts(self, here: Mapping[str, str]) -> None:
        """Refuse to go on with other prompts than those that the checkpoint was written with.

        Raises:
            UsageError: the hash of a prompt differs.
        """
        names = sorted({*self.prompts, *here})
        differing = [name for name in names if self.prompts.get(name) != here.get(name)]
        if differing:
            raise UsageError(
                f"{self.folder} was written with other prompts: {', '.join(differing)}. Resuming would mix the two: "
                "name a folder of the former ones (`prompts`, `judge.prompts`), or start a new run."
            )

    def read_json(self, name: str) -> Any:
        """A part that was written by `json_part`."""
        refuse_larger_than_memory(self.path(name))
        return json.loads(self.path(name).read_text(encoding="utf-8"))

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Within it, a part that cannot be restored is refused in one sentence, whatever is wrong with it.

        Raises:
            UsageError: a part has other contents than its writer gives it, though its hash is right.
        """
        try:
            with filling_heap(), boundary(BoundaryError, f"restore {self.folder}"):
                yield
        except BoundaryError as cause:
            raise UsageError(f"{str(cause).splitlines()[0][:500]}. {_way_out(self.folder)}") from cause


def json_part(state: object, *, file: str, step: int) -> CheckpointItem:
    """A part from a `state_dict()`.

    Raises:
        UsageError: the state holds NaN or infinity, which no healthy run has and JSON cannot say.
    """
    try:
        text = json.dumps(state, allow_nan=False)
    except ValueError as cause:
        raise UsageError(f"the state for {file} of step {step} cannot be saved: {cause}.") from cause
    return file, lambda path: write_text(path, text), step


def save_checkpoint(
    root: Path, *, step: int, parts: Mapping[str, CheckpointItem], prompts: Mapping[str, str] = MappingProxyType({})
) -> Checkpoint:
    """Write a checkpoint of `step` under `root`; one of the same step is replaced. `prompts` are hashes by file.

    Raises:
        UsageError: a part is of another step, or the disk refuses; what was there before is untouched.
    """
    _refuse_mixed(step, {name: other for name, (_, _, other) in parts.items()}, "Nothing was written.")
    folder = root / f"step-{step:06d}"
    partial = folder.with_suffix(".partial")
    try:
        _clear_up(root)
        partial.mkdir(parents=True)
        entries = {name: _write_part(partial, part) for name, part in parts.items()}
        checkpoint = Checkpoint(format=FORMAT, step=step, parts=entries, prompts=dict(prompts), folder=folder)
        write_text(partial / MANIFEST, checkpoint.model_dump_json(indent=1))
        flush(partial)
        _put_in_place(partial, folder)
    except OSError as cause:
        shutil.rmtree(partial, ignore_errors=True)
        raise UsageError(
            f"cannot write the checkpoint of step {step} to {root}: {cause.strerror or cause}. "
            f"Make room; the same command {'resumes from the latest checkpoint' if _folders(root) else 'starts again'}."
        ) from cause
    return checkpoint


def load_checkpoint(folder: Path, *, step: int | None = None) -> Checkpoint:
    """The checkpoint in `folder`, after reading every part once.

    Raises:
        UsageError: it is incomplete, damaged, of an unknown format, mixed, or not of `step`.
    """
    manifest = _read_manifest(folder)
    if manifest.format != FORMAT:
        raise UsageError(f"{folder} has format {manifest.format}; this version reads format {FORMAT}.")
    if step is not None and manifest.step != step:
        raise UsageError(f"{folder} is of step {manifest.step}, and step {step} was asked for. {_way_out(folder)}")
    _refuse_mixed(manifest.step, {name: entry.step for name, entry in manifest.parts.items()}, _way_out(folder))
    for name, entry in manifest.parts.items():
        path = folder / entry.file
        if not path.is_file():
            raise UsageError(f"{folder} lacks {entry.file}, its {name}. {_way_out(folder)}")
        if path.stat().st_size != entry.num_bytes or sha256(path) != entry.sha256:
            raise UsageError(
                f"{path} is not the {name} that step {manifest.step} wrote (its hash differs). {_way_out(folder)}"
            )
    return manifest


def checkpoint_steps(root: Path) -> list[int]:
    """The steps of which there is a finished checkpoint, from the first to the latest."""
    return sorted(_folders(root))


def find_checkpoint(root: Path, *, step: int | None = None) -> Path:
    """The folder of the checkpoint of `step`, or of the latest. Changes nothing, so others may look while a run saves.

    Raises:
        UsageError: there is none.
    """
    folders = _folders(root)
    if not folders or (step is not None and step not in folders):
        there = f"there are those of steps {', '.join(map(str, sorted(folders)))}" if folders else "there is none"
        wanted = "checkpoint" if step is None else f"checkpoint of step {step}"
        raise UsageError(f"no {wanted} in {root}; {there}.")
    return folders[max(folders) if step is None else step]


def latest_checkpoint(root: Path) -> Checkpoint | None:
    """The latest checkpoint, to resume from; None where nothing was saved yet.

    Raises:
        UsageError: it is damaged, or a folder beside it has lost its manifest, which no kill does.
    """
    for folder in sorted(root.glob("step-*")):
        if _NAME.fullmatch(folder.name) and not (folder / MANIFEST).is_file():
            raise UsageError(f"{folder} has lost its {MANIFEST}. {_way_out(folder)}")
    steps = checkpoint_steps(root)
    return load_checkpoint(find_checkpoint(root), step=steps[-1]) if steps else None


def _way_out(folder: Path) -> str:
    """What to do about a checkpoint that cannot be used."""
    others = sorted(step for step, path in _folders(folder.parent).items() if path != folder)
    then = f"resume from step {others[-1]}" if others else "start again, as there is no other checkpoint"
    return f"Put the file back, or delete that folder to {then}."


def _folders(root: Path) -> dict[int, Path]:
    """Finished checkpoints by step; one that a killed save moved aside counts where nothing took its place."""
    folders: dict[int, Path] = {}
    for path in sorted(root.glob("step-*")):
        name = _NAME.fullmatch(path.name.removesuffix(".replaced"))
        if name and (path / MANIFEST).is_file():
            folders.setdefault(int(name[1]), path)
    return folders


def _refuse_mixed(step: int, steps: Mapping[str, int], way_out: str) -> None:
    for name, other in steps.items():
        if other != step:
            raise UsageError(
                f"checkpoint at step {step} holds a {name.replace('_', ' ')} of step {other}; refusing to mix them. "
                f"{way_out}"
            )


def _write_part(folder: Path, part: CheckpointItem) -> PartEntry:
    file, write, step = part
    path = folder / file
    write(path)
    flush(path)
    return PartEntry(file=file, num_bytes=path.stat().st_size, sha256=sha256(path), step=step)


def _put_in_place(partial: Path, folder: Path) -> None:
    replaced = folder.with_suffix(".replaced")
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    flush(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _clear_up(root: Path) -> None:
    """Set right what a killed save left: put an old checkpoint back that lost its place, delete the rest."""
    for path in root.glob("step-*.replaced"):
        if path.with_suffix("").exists():
            shutil.rmtree(path)
        else:
            path.rename(path.with_suffix(""))
    for path in root.glob("step-*.partial"):
        shutil.rmtree(path)


def _read_manifest(folder: Path) -> Checkpoint:
    try:
        manifest = Checkpoint.model_validate_json((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest.model_copy(update={"folder": folder})
    except (OSError, ValidationError, UnicodeDecodeError) as cause:
        raise UsageError(
            f"{folder} is no finished checkpoint: its {MANIFEST} cannot be read. {_way_out(folder)}"
        ) from cause
