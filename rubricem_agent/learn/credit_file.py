"""A credit file: scores written down as JSON, to see what the algorithm makes of them.

    {"scores": [[plan, research, review, answer], ...], "valid": [true, ...]?, "matrix": [[...]]?, "mode": "stages|..."?}

All rollouts of a file are one group. `mode` is a credit method that needs no tokens.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from rubricem_agent.learn.credit import PAPER_MATRIX
from rubricem_agent.learn.credit_methods import BY_TOKENS, METHODS, CreditMode
from rubricem_env.domain.base import NUM_STAGES, STAGES
from rubricem_env.domain.errors import FileFormatError, suggest_name

KEYS = ("scores", "valid", "matrix", "mode")
MODES = tuple(mode for mode in METHODS if mode not in BY_TOKENS)


CreditRequest = tuple[list[list[float]], list[bool], list[list[float]], CreditMode]
"""Scores, valid, matrix and mode: the arguments of `assign_credit`."""


def read_credit_file(path: Path) -> CreditRequest:
    """The request in a file.

    Raises:
        FileFormatError: one sentence on the first thing that is wrong.
    """
    try:
        return parse_credit_request(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {path}: {_reason(cause)}. Give the path of a JSON file.") from cause
    except FileFormatError as cause:
        raise FileFormatError(f"{path}: {cause}") from cause


def parse_credit_request(text: str) -> CreditRequest:
    """The request in a JSON text."""
    content = _load(text)
    for key in content:
        if key not in KEYS:
            raise FileFormatError(f"unknown key {key!a}; {suggest_name(key, KEYS)}")
    if "scores" not in content:
        raise FileFormatError('no scores; give {"scores": [[plan, research, review, answer], ...]}.')
    scores = _rows(content["scores"], "scores", rule="a rollout has 4 scores: plan, research, review, answer")
    if not scores:
        raise FileFormatError("scores is empty; give a row for each rollout of the group.")
    mode = next((mode for mode in MODES if mode == content.get("mode", "stages")), None)
    if mode is None:
        raise FileFormatError(f"mode is {_show(content['mode'])}; it is {' or '.join(map(repr, MODES))}.")
    valid = _mask(content.get("valid", [True] * len(scores)), len(scores))
    if "matrix" not in content:
        return scores, valid, [list(row) for row in PAPER_MATRIX], mode
    matrix = _rows(content["matrix"], "matrix", rule="the matrix is 4 x 4, a row and a column for each stage")
    if len(matrix) != NUM_STAGES:
        raise FileFormatError(f"matrix has {len(matrix)} rows; the matrix is 4 x 4, a row and a column for each stage.")
    return scores, valid, matrix, mode


def _load(text: str) -> Mapping[str, object]:
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except json.JSONDecodeError as cause:
        raise FileFormatError(f"not JSON: {cause}.") from cause
    except FileFormatError:
        raise
    except (RecursionError, ValueError) as cause:
        raise FileFormatError("not a credit file: it nests too deeply or holds a number that is too long.") from cause
    if not isinstance(content, dict):
        raise FileFormatError(
            f"a credit file is a JSON object with the keys {', '.join(KEYS)}; this is {_show(content)}."
        )
    return content


def _refuse_constant(name: str) -> float:
    raise FileFormatError(f"{name} stands where a number between 0 and 1 is needed.")


def _refuse_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise FileFormatError("a key stands twice; say each once.")
    return content


def _rows(value: object, name: str, *, rule: str) -> list[list[float]]:
    if not isinstance(value, list):
        raise FileFormatError(f"{name} is {_show(value)}; {rule}.")
    return [_row(row, f"{name}, row {number}", rule=rule) for number, row in enumerate(value, start=1)]


def _row(value: object, where: str, *, rule: str) -> list[float]:
    if not isinstance(value, list):
        raise FileFormatError(f"{where} is {_show(value)}; {rule}.")
    if len(value) != NUM_STAGES:
        raise FileFormatError(f"{where} has {len(value)} columns; {rule}.")
    return [_number(item, f"{where}, {stage}") for item, stage in zip(value, STAGES, strict=True)]


def _number(value: object, where: str) -> float:
    """Compared before it is converted: an integer of a thousand digits has no float."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise FileFormatError(f"{where} is {_show(value)}; it must be a number between 0 and 1.")
    return float(value)


def _mask(value: object, length: int) -> list[bool]:
    if not isinstance(value, list) or not all(isinstance(item, bool) for item in value):
        raise FileFormatError(f"valid is {_show(value)}; it needs true or false for each rollout.")
    if len(value) != length:
        raise FileFormatError(f"valid has {len(value)} entries for {length} rollouts; give one for each.")
    return value


def _show(value: object) -> str:
    """The value as JSON in plain letters, cut where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**20:
        return "an enormous number"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _reason(cause: Exception) -> str:
    return cause.strerror or str(cause) if isinstance(cause, OSError) else "it is not UTF-8 text"
