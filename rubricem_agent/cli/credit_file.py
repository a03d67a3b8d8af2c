"""The file that `rubricem credit` reads: scores of a group, and how to credit them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.learn.credit import PAPER_MATRIX, check_mask, check_matrix, check_scores
from rubricem_agent.learn.credit_methods import BY_TOKENS, METHODS, Bools, CreditMode, Floats
from rubricem_env.domain.base import NUM_STAGES, STAGES
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text, suggest_name

CREDIT_KEYS = ("scores", "valid", "matrix", "mode")
CREDIT_MODES = tuple(mode for mode in METHODS if mode not in BY_TOKENS)


_STAGES = f": {', '.join(STAGES)}"


class CreditRequest(NamedTuple):
    """What `assign_credit` is given."""

    scores: Floats
    valid: Bools
    matrix: Floats
    mode: CreditMode


def read_credit_file(path: Path) -> CreditRequest:
    """The request in a credit file: scores written down as JSON, to see what the algorithm makes of them.

        {"scores": [[plan, research, review, answer], ...], "valid": [true, ...]?, "matrix": [[...]]?, "mode": "..."?}

    All rollouts of a file are one group. `mode` is a credit method that needs no tokens.

    Raises:
        FileFormatError: one sentence on the first thing that is wrong.
    """
    text = read_text(path, "a JSON file").removeprefix("\ufeff")
    try:
        return parse_credit_request(text)
    except FileFormatError as cause:
        raise FileFormatError(f"{path}: {cause}") from cause


def parse_credit_request(text: str) -> CreditRequest:
    """The request in a JSON text."""
    content = _load_json(text)
    for key in content:
        if key not in CREDIT_KEYS:
            raise FileFormatError(f"unknown key {key!a}; {suggest_name(key, CREDIT_KEYS)}")
    if not content.get("scores"):
        raise FileFormatError('no scores; give {"scores": [[plan, research, review, answer], ...]}.')
    mode = next((mode for mode in CREDIT_MODES if mode == content.get("mode", "stages")), None)
    if mode is None:
        raise FileFormatError(f"mode is {content['mode']!a}; it is {' or '.join(map(repr, CREDIT_MODES))}.")
    try:
        rows = content["scores"] if isinstance(content["scores"], list) else []
        if any(isinstance(row, list) and None in row for row in rows):
            raise FileFormatError("scores must be rows of numbers; null stands among them.")
        scores = check_scores(content["scores"])
        num_stages = scores.shape[1] if "matrix" in content else NUM_STAGES
        if scores.shape[1] != num_stages or any(isinstance(score, bool) for row in content["scores"] for score in row):
            raise FileFormatError(
                f"each row of scores has {num_stages} numbers{_STAGES if num_stages == NUM_STAGES else ''}."
            )
        matrix = check_matrix(content.get("matrix", PAPER_MATRIX), num_stages=num_stages)
        valid = check_mask(content.get("valid"), length=len(scores))
        return CreditRequest(scores, valid, matrix, mode)
    except UsageError as cause:
        raise FileFormatError(str(cause)) from cause


def _load_json(text: str) -> Mapping[str, Any]:
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_twins)
    except json.JSONDecodeError as cause:
        raise FileFormatError(f"not JSON: {cause}.") from cause
    except FileFormatError:
        raise
    except (RecursionError, ValueError) as cause:
        raise FileFormatError("not a credit file: it nests too deeply or holds a number that is too long.") from cause
    if not isinstance(content, dict):
        raise FileFormatError(f"a credit file is a JSON object with the keys {', '.join(CREDIT_KEYS)}.")
    return content


def _refuse_constant(name: str) -> float:
    raise FileFormatError(f"{name} stands where a number between 0 and 1 is needed.")


def _refuse_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise FileFormatError("a key stands twice; say each once.")
    return content
