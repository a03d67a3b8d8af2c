"""A stage set: a scaffold with what the models of a task are told, read from a folder.

The folder holds `stages.toml` and Markdown prompts, of which `agent.md` is the one that a set cannot do without. The
sets of this package stand in `rubricem_env/stage_sets`, and deep research is one of them.
"""

import tomllib
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from rubricem_env.domain.base import Count, Frozen, Text
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import nearest_name, validating
from rubricem_env.domain.scaffold import Scaffold, StageForm, same_scaffold

STAGES_FILE = "stages.toml"
AGENT_FILE = "agent.md"


def _as_tuples(value: object) -> object:
    """Lists as TOML and JSON have them, with whole numbers as floats."""
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return float(value) if type(value) is int else value


Matrix = Annotated[tuple[tuple[float, ...], ...], BeforeValidator(_as_tuples)]


class StageGuide(Frozen):
    """What judges are told of a stage, and how many rubrics it has."""

    question: Text
    """The question that a judge asks of the stage."""
    dimensions: Text = ""
    """What to look at first."""
    contents: Text
    """What the stage is made of, as a judge sees it."""
    extent: Text
    """From where to where it goes."""
    cap: Count = 3
    """The most active rubrics that it keeps."""
    target: Text = "1 to 4"
    """How many rubrics a judge is asked for."""


class StageSet(Frozen):
    """A task in stages: how its texts are read, how its stages are judged and credited, what its models are told."""

    scaffold: Annotated[Scaffold, AfterValidator(same_scaffold)]
    guides: tuple[StageGuide, ...]
    """One for each stage."""
    matrix: Matrix
    """Lambda: the share of downstream scores that a stage earns."""
    agent: Text = "agent"
    """What the agent is called in prompts."""
    own_criteria: Text = ""
    """The section in which the agent writes criteria of its own; judges do not score by them."""
    prompts: Mapping[str, Text]
    """The prompts of the folder by name; one that it lacks is the shared one."""

    def __hash__(self) -> int:
        return hash(self.scaffold)

    @property
    def name(self) -> str:
        return self.scaffold.name

    @cached_property
    def caps(self) -> Mapping[str, int]:
        """The most active rubrics of each stage."""
        return {name: guide.cap for name, guide in zip(self.scaffold.names, self.guides, strict=True)}

    @model_validator(mode="after")
    def _fits_its_stages(self) -> Self:
        size = len(self.scaffold.stages)
        shape = "an empty list"
        if self.matrix:
            shape = f"{len(self.matrix)} x {'/'.join(map(str, sorted({len(row) for row in self.matrix})))}"
        if len(self.matrix) != size or any(len(row) != size for row in self.matrix):
            raise ValueError(f"the matrix is {shape} for {size} stages; it has a row and a column for each stage")
        for row, weights in enumerate(self.matrix):
            for column, weight in enumerate(weights):
                low, high = (1.0, 1.0) if row == column else (0.0, 0.0) if column < row else (0.0, 1.0)
                if not low <= weight <= high:
                    rule = f"from {low:g} to {high:g}" if low < high else f"{low:g}"
                    raise ValueError(
                        f"the matrix has {weight:g} in row {row + 1}, column {column + 1}; it must be {rule} there, "
                        "because a stage keeps its own score and earns from later stages alone"
                    )
        if self.own_criteria and self.own_criteria not in {
            name for names in self.scaffold.sections.values() for name in names
        }:
            raise ValueError(f"own_criteria is {self.own_criteria!r}, which is no section of a block")
        return self


_FORM = frozenset(StageForm.model_fields)
_SCAFFOLD = frozenset(Scaffold.model_fields)


def stage_set_of(described: Mapping[str, Any], prompts: Mapping[str, str]) -> StageSet:
    """The set that a `stages.toml` describes.

    Raises:
        pydantic.ValidationError: it breaks a rule.
    """
    rows = [dict(row) for row in described.get("stages", ())]
    fields = {name: value for name, value in described.items() if name in _SCAFFOLD}
    fields["stages"] = tuple({name: value for name, value in row.items() if name in _FORM} for row in rows)
    scaffold = Scaffold.model_validate(fields)
    guides = tuple(
        StageGuide.model_validate(
            {
                "contents": _contents(scaffold, form),
                "extent": _extent(scaffold, form),
                **{name: value for name, value in row.items() if name not in _FORM},
            }
        )
        for form, row in zip(scaffold.stages, rows, strict=True)
    )
    rest = {name: value for name, value in described.items() if name not in _SCAFFOLD}
    return StageSet.model_validate({"scaffold": scaffold, "guides": guides, "prompts": dict(prompts), **rest})


def _contents(scaffold: Scaffold, form: StageForm) -> str:
    parts = []
    for tag in form.makers:
        sections = [f"`<{section}>`" for section in scaffold.sections.get(tag, ())]
        parts.append(f"`<{tag}>`" + (f" with {', '.join(sections)}" if sections else ""))
    return ", ".join(parts)


def _extent(scaffold: Scaffold, form: StageForm) -> str:
    if form.name == scaffold.last:
        return f"`<{form.block}>` to the end"
    if form.ends_with:
        is_first = form.name == scaffold.names[0]
        return f"from {'the start' if is_first else 'there'} through `</{form.ends_with}>`"
    if form.begins_with:
        begins = f"the last thought before `<{form.begins_with}>`" if form.from_thought else f"`<{form.begins_with}>`"
        return f"{begins}, through `</{form.begins_with}>`"
    return "what lies between"


def _shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("rubricem_env").joinpath("stage_sets")))
    return {entry.name: entry for entry in sorted(folder.iterdir()) if entry.joinpath(STAGES_FILE).is_file()}


def is_shipped(source: str) -> bool:
    """Whether a set comes with the package, so that every installation has it."""
    return source in _shipped()


def stage_set_folder(source: str) -> Path:
    """The folder of a shipped set by its name, or the user's own.

    Raises:
        ConfigError: there is no such set and no such folder.
    """
    shipped = _shipped()
    if source in shipped:
        return shipped[source]
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    near = nearest_name(source, shipped)
    hint = f"did you mean {near!r}?" if near else f"write {' or '.join(shipped)}, or the folder of a set of your own."
    raise ConfigError(f"there is no stage set {source!r}; {hint}")


def read_stage_set(source: str) -> StageSet:
    """A shipped set by its name, or the set in a folder of a user's own.

    Raises:
        ConfigError: there is none, a file is missing or cannot be read, or the set breaks a rule.
    """
    folder = stage_set_folder(source)
    return _read_shipped(folder) if source in _shipped() else _read_folder(folder)


def _read_folder(folder: Path) -> StageSet:
    file = folder / STAGES_FILE
    for needed in (STAGES_FILE, AGENT_FILE):
        if not (folder / needed).is_file():
            raise ConfigError(
                f"the stage set {folder} has no {needed}; it needs {STAGES_FILE} and {AGENT_FILE}. "
                "`rubricem init FOLDER --scaffold writing` writes both to begin from."
            )
    try:
        described = tomllib.loads(file.read_text(encoding="utf-8"))
        prompts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"cannot read the stage set {folder}: {cause}. Correct the file.") from cause
    empty = next((name for name, text in prompts.items() if not text.strip()), None)
    if empty is not None:
        raise ConfigError(f"the prompt {folder / empty}.md is empty; write it, or remove the file.")
    rows = described.get("stages")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{file} describes no stages; write a table [[stages]] for each, in order.")
    with validating(f"{file} is not a stage set", error=ConfigError):
        return stage_set_of(described, prompts)


@cache
def _read_shipped(folder: Path) -> StageSet:
    """A set of this package, read once."""
    return _read_folder(folder)


DEEP_RESEARCH = read_stage_set("deep_research")
"""The paper's task, and the default everywhere."""
