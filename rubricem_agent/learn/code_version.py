"""The version of the code that a run was started with."""

import os
import subprocess
from pathlib import Path
from shutil import which

from rubricem_env import __version__
from rubricem_env.llm.keys import without_keys

CODE_FILE = "code.txt"
"""The version of the code that last started the run."""


def code_version() -> str:
    """The release, and in a clone its commit, with -dirty after it where files were changed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or not which("git"):
        return f"rubricem {__version__}"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, env=without_keys(os.environ))
    commit = done.stdout.strip()
    return f"rubricem {__version__}, commit {commit}"
