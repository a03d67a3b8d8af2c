"""The files for clusters are valid for the tools that know their languages; `make cluster-lane`.

`tests/trainers/verl_backend/planning/test_cluster_files.py` compares their content with the recipes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "docs" / "cluster"
TOOLS = Path(sys.executable).parent
KUBERNETES = "1.32"


def test_the_python_inside_the_slurm_script_is_python():
    text = (CLUSTER / "slurm.sbatch").read_text()
    inner = text.split("<<'JOINED'\n")[1].split("\nJOINED")[0]
    compile(inner, "slurm.sbatch", "exec")
    assert "ray.nodes()" in inner


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    """A mapping with these fields and no others."""
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


MAPPING = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
TEXT, SWITCH, NUMBER, SECTION = ({"type": kind} for kind in ("string", "boolean", "number", "object"))
GROUP = {"rayStartParams": MAPPING, "template": fields("spec", metadata=SECTION, spec=SECTION)}
HEAD = fields(*GROUP, **GROUP, serviceType=TEXT, headService=SECTION, enableIngress=SWITCH)
WORKERS = fields(
    *(*GROUP, "groupName", "minReplicas", "maxReplicas"),
    **GROUP,
    groupName={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
    scaleStrategy=SECTION,
    **dict.fromkeys(("replicas", "minReplicas", "maxReplicas", "numOfHosts"), COUNT),
)
RAY_CLUSTER = fields(
    "headGroupSpec",
    headGroupSpec=HEAD,
    workerGroupSpecs={"type": "array", "items": WORKERS},
    rayVersion=TEXT,
    autoscalerOptions=SECTION,
    headServiceAnnotations=MAPPING,
    authOptions=fields(mode={"enum": ["disabled", "token"]}, secretName=TEXT, enableK8sTokenAuth=SWITCH),
    **dict.fromkeys(("enableInTreeAutoscaling", "suspend"), SWITCH),
)
RAY_JOB_SPEC = fields(
    **dict.fromkeys(("activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"), COUNT),
    **dict.fromkeys(("entrypoint", "runtimeEnvYAML", "jobId", "entrypointResources"), TEXT),
    **dict.fromkeys(("entrypointNumCpus", "entrypointNumGpus"), NUMBER),
    **dict.fromkeys(("shutdownAfterJobFinishes", "suspend"), SWITCH),
    **dict.fromkeys(("metadata", "clusterSelector"), MAPPING),
    **dict.fromkeys(("submitterPodTemplate", "submitterConfig", "deletionStrategy"), SECTION),
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
    managedBy={"enum": ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]},
    rayClusterSpec=RAY_CLUSTER,
)
RAY_JOB = fields(
    *("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata={"type": "object", "required": ["name"]},
    spec=RAY_JOB_SPEC,
)
"""The fields of a RayJob and their types, as KubeRay's API has them (github.com/ray-project/kuberay, rayjob_types.go
and raycluster_types.go in ray-operator/apis/ray/v1). An API server silently drops a field that is not among them, so
here unknown fields are refused. Pods are checked by Kubernetes' own schema."""


def job() -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / "kuberay.yaml").read_text())


def groups(found: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = found["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_the_ray_job_has_fields_that_kuberay_knows_of_the_types_that_it_knows():
    jsonschema.validate(job(), RAY_JOB)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "backoffLimits"), 3),
        (("spec", "rayClusterSpec", "rayVersion"), 2.6),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-gpus"), 8),
        (("spec", "rayClusterSpec", "headGroupSpec", "replica"), 1),
    ],
)
def test_a_misspelt_field_or_a_number_for_a_text_is_refused(path, value):
    found = section = job()
    for name in path[:-1]:
        section = section[name]
    section[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, RAY_JOB)


def check_pods(found: dict[str, Any]) -> None:
    for group in groups(found):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "node"}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_kubernetes_takes_the_pods_of_the_ray_job():
    check_pods(job())
    spec = groups(job())[0]["template"]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize("field", ["hostNetworks", "dnsPolicys"])
def test_a_misspelt_field_of_a_pod_is_refused(field):
    found = job()
    groups(found)[0]["template"]["spec"][field] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        check_pods(found)


def test_the_image_s_lock_is_what_its_requirements_resolve_to_under_its_own_versions(tmp_path):
    """Nothing is missing in it, nothing superfluous, and no version excludes another's requirement."""
    shutil.copytree(CLUSTER, tmp_path / "docs" / "cluster")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    lock = tmp_path / "docs" / "cluster" / "constraints-image.txt"
    before = tmp_path / "before.txt"
    shutil.copy(lock, before)
    environment = {**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", "UV_CONSTRAINT": str(before)}
    command = ["bash", str(tmp_path / "docs" / "cluster" / "lock_image.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2_000:]
    versions = [[line for line in file.read_text().splitlines() if line[0] != "#"] for file in (before, lock)]
    assert versions[0] == versions[1]
    assert len(versions[0]) > 200
