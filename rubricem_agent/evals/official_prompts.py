"""Judge prompts of the official scorers, read from the user's own checkout or package; none is shipped here.

Each is known by its file, its name there and the hash of its text: a text of another version is refused. Files are
parsed and never run. A template is filled by its own rule, in one pass: placeholders within inserted text stay.
"""

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.machinery import PathFinder
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Literal, NamedTuple

from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text


class Piece(NamedTuple):
    """A part of a template."""

    text: str
    field: str | None
    """The placeholder after the text."""


TemplateRule = Literal["format", "angles", "plain"]
"""str.format; <<name>>; or nothing to fill. An f-string is known by its form."""


class OfficialTemplate(NamedTuple):
    """One prompt as it was read."""

    pieces: tuple[Piece, ...]
    sha256: str
    names: Mapping[str, str] = MappingProxyType({})
    """Our name of a placeholder's value, where it differs from the placeholder."""

    def fill(self, values: Mapping[str, str]) -> str:
        """The prompt with its placeholders filled."""
        return "".join(
            piece.text + ("" if piece.field is None else values[self.names.get(piece.field, piece.field)])
            for piece in self.pieces
        )


class PromptSource(NamedTuple):
    """Where an official prompt is, and which text it is."""

    repository: str
    files: Sequence[str]
    """Within a checkout, or within a package of that name."""
    name: str
    """The variable; `f()1` for the second `return` of a function f; empty where the file is the prompt."""
    sha256: str
    """The start of the hash of the text with its placeholders."""
    rule: TemplateRule = "format"
    names: Mapping[str, str] = MappingProxyType({})


SOURCES: Mapping[str, PromptSource] = MappingProxyType(
    {
        key: PromptSource(**source)
        for key, source in json.loads(
            resources.files("rubricem_agent.evals").joinpath("official_prompts.json").read_text(encoding="utf-8")
        ).items()
    }
)
"""By the name of our own prompt file, with the language or `system` after a dot."""


def read_official(
    place: str, prompts: Sequence[str], *, sources: Mapping[str, PromptSource] = SOURCES
) -> dict[str, OfficialTemplate]:
    """The official templates in the place of our own prompt files `prompts`, with their variants.

    `place` is a checkout, a folder of checkouts, or the name of an installed package.

    Raises:
        ConfigError: the official text of a prompt is not known here, or `place` is neither folder nor package.
        UsageError: `place` lacks a prompt, or has it in another version.
    """
    folders = _folders(place)
    templates: dict[str, OfficialTemplate] = {}
    for prompt in prompts:
        keys = [key for key in sources if key.partition(".")[0] == prompt]
        if not keys:
            raise ConfigError(
                f"the official text of the prompt {prompt} cannot be checked by this release; its numbers are made "
                "with our own. Leave --prompts out."
            )
        templates.update({key: _read(sources[key], folders, place=place) for key in keys})
    return templates


def _folders(place: str) -> list[Path]:
    folder = Path(place).expanduser()
    if folder.is_dir():
        return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    # A top-level package is found without running any of it.
    package = PathFinder.find_spec(place) if place.isidentifier() else None
    if package is None or not package.submodule_search_locations:
        raise ConfigError(
            f"--prompts is {place!r}, which is neither a folder nor an installed package. Give the folder of the "
            "official repository, or of several."
        )
    return list(map(Path, package.submodule_search_locations))


def _read(source: PromptSource, folders: Sequence[Path], *, place: str) -> OfficialTemplate:
    candidates = [folder / file for folder in folders for file in source.files]
    paths = [path for path in candidates if path.is_file()]
    for path in paths:
        template = _template(source, path)
        if template is not None and template.sha256.startswith(source.sha256):
            return template
    wanted = f"the official prompt {source.name or source.files[0]} of {source.repository}"
    if paths:
        raise UsageError(
            f"{paths[0]} does not hold {wanted} in the version that this release knows (sha256 {source.sha256}), so "
            "that its numbers could not be called official. Check out the version that docs/evaluation.md names."
        )
    raise UsageError(
        f"{place} has no {source.files[0]}, where {wanted} is. Give the folder of that repository, or a folder that "
        "holds the checkouts of several, with --prompts."
    )


def _template(source: PromptSource, path: Path) -> OfficialTemplate | None:
    text = read_text(path, "an official prompt file")
    pieces: list[Piece] | None = [Piece(text, None)] if not source.name else _assigned(text, path, name=source.name)
    if pieces is None:
        return None
    if all(piece.field is None for piece in pieces):
        text = "".join(piece.text for piece in pieces)
        if source.rule == "format":
            pieces = [Piece(literal, field) for literal, field, _, _ in Formatter().parse(text)]
        elif source.rule == "angles":
            parts = re.split("<<([a-z_]+)>>", text)
            pieces = [Piece(*part) for part in zip(parts[::2], [*parts[1::2], None], strict=True)]
    marked = "".join(piece.text + ("" if piece.field is None else f"\0{piece.field}\0") for piece in pieces)
    return OfficialTemplate(tuple(pieces), hashlib.sha256(marked.encode()).hexdigest(), source.names)


def _assigned(text: str, path: Path, *, name: str) -> list[Piece] | None:
    """What the first assignment to the variable says, as long as it is text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as cause:
            raise FileFormatError(f"{path} is not Python ({cause}). Check the repository out again.") from cause
    name, is_function, index = name.partition("()")
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name
    ]
    if is_function:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
        returns = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.Return)]
        returns.sort(key=lambda node: node.lineno)
        values = [node.value for node in returns[int(index) :] if node.value is not None]
    return list(_pieces(values[0])) if values else None


def _pieces(node: ast.expr) -> Iterator[Piece]:
    """Text, f-strings, their sums, and `.strip()` of a text; anything else is a placeholder."""
    match node:
        case ast.Constant(value=str(text)):
            yield Piece(text, None)
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _pieces(value.value if isinstance(value, ast.FormattedValue) else value)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            yield from (*_pieces(left), *_pieces(right))
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="strip"), args=[]):
            yield Piece(text.strip(), None)
        case _:
            yield Piece("", ast.unparse(node))
