"""The name under which `trainers` is installed: in a wheel this folder holds its modules, in a clone it points there.

Whatever names a module as text (configs, child processes, Ray) says `rubricem_trainers`, which is right in both.
"""

from pathlib import Path

__path__ = [str(Path(__file__).parents[1] / "trainers")]
