"""The trajectory as versioned JSON: one format for the viewer, the judge, the adapters and the data sets.

Version 1 is written. Version 0, a bare {"question", "segments": [{"origin", "text"}]}, is read as well.
"""

import json

from pydantic import ValidationError

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import TRAJECTORY_VERSION, Trajectory


def dump_trajectory(trajectory: Trajectory) -> str:
    """One line of JSON; equal trajectories give equal bytes."""
    return json.dumps(trajectory.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def load_trajectory(text: str, where: str = "trajectory") -> Trajectory:
    """Read any version up to this one; `where` names the file or line in the message.

    Raises:
        FileFormatError: not JSON, a newer version, or a field that breaks the format.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. A trajectory file holds one JSON object.") from cause
    if not isinstance(fields, dict):
        kind = type(fields).__name__
        raise FileFormatError(f"{where} holds a JSON {kind}; a trajectory is an object with 'question' and 'segments'.")
    version = fields.get("version", 0)
    if type(version) is not int or version < 0:
        raise FileFormatError(f"{where} has the version {version!r}; a version is a whole number from 0 up.")
    if version > TRAJECTORY_VERSION:
        raise FileFormatError(
            f"{where} is a trajectory of version {version}; this release reads up to {TRAJECTORY_VERSION}. "
            "Upgrade rubricem to read it."
        )
    try:
        # Not strict: JSON has lists for tuples and strings for enums. No mark or score lives in a trajectory.
        return Trajectory.model_validate({**fields, "version": TRAJECTORY_VERSION}, strict=False)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is not a trajectory: {first_problem(cause)}") from cause


def first_problem(error: ValidationError) -> str:
    """The first thing that pydantic found wrong, as one sentence with its place and value."""
    problem = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in problem["loc"]) or "the object"
    value = repr(problem["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    return f"at {place}: {message[:1].lower()}{message[1:]} (got {shown})."
