"""The tiny policy that comes with the package: a trained Qwen3 of a million parameters, for the almanac, named `tiny`.

`shipped/tiny/README.md` beside this file tells how it was made and how good it is.
"""

from importlib import resources
from pathlib import Path

TINY = "tiny"
TINY_SYSTEM = "Search, then answer."
"""The system prompt that it was taught under."""


def model_folder(path: Path) -> Path:
    """The folder itself; `tiny`, where there is no such folder, is the policy that comes with the package."""
    if str(path) != TINY or path.is_dir():
        return path
    return Path(str(resources.files("rubricem_agent.policy").joinpath("shipped", TINY)))
