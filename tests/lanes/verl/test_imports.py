"""A GPU process imports nothing that only a CPU needs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = (
    "import sys, trainers.verl_backend.trainer, trainers.verl_backend.plugin, trainers.verl_backend.evaluate;"
    "print([name for name in sys.modules if name.startswith('trainers.verl_backend.cpu')])"
)


def test_the_trainer_imports_no_module_for_a_cpu_without_verl_platform():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]"
