"""Which steps a veRL run has saved, read from its folder."""

import re
from pathlib import Path

from rubricem_env.domain.errors import UsageError

MARKER = "latest_checkpointed_iteration.txt"
"""The file in which veRL writes the last saved step, and from which it reads the step to resume from."""


def marked_step(marker: Path) -> int:
    """The step that veRL resumes from; raises UsageError where the file of that name holds none."""
    try:
        text = marker.read_text(encoding="utf-8").strip()
        if re.fullmatch(r"[0-9]{1,18}", text):
            return int(text)
        problem = f"holds {text[:40]!r}"
    except (OSError, UnicodeDecodeError) as cause:
        problem = f"cannot be read ({cause})"
    raise UsageError(
        f"{marker} {problem} in place of the last saved step. "
        "Write the number of a global_step folder beside it into it."
    )


def saved_steps(run: Path) -> list[int]:
    """The steps whose weights are in the folder of a veRL run, in their order."""
    names = [path.parent.name.removeprefix("global_step_") for path in run.glob("global_step_*/actor")]
    return sorted(int(name) for name in names if name.isdecimal())
