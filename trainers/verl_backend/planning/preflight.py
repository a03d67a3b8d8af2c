"""Checks everything that a run needs before anything is started, and reports all that is missing at once.

It imports neither veRL nor torch nor Ray: their absence is one of the things that it reports. Where nothing is missing,
and Ray runs on several nodes, the network between them is measured.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import permutations
from pathlib import Path
from types import MappingProxyType

from packaging.specifiers import SpecifierSet

from rubricem_agent.config.bank import MINILM, QWEN3, WITH_WEIGHTS
from rubricem_agent.config.search_engines import SCHOLAR, SearchConfig
from rubricem_agent.policy.base import model_folder
from rubricem_agent.wiring.models import build_judge
from rubricem_agent.wiring.probe import Probe, find_silent, model_probes, search_probes
from rubricem_agent.wiring.tools import TOKEN_VARIABLE, search_backend
from rubricem_env.domain.errors import BoundaryError, ConfigError, FileFormatError, UsageError, boundary
from rubricem_env.llm.hosts import LOOPBACK, url_host
from rubricem_env.llm.keys import read_secret, without_keys
from rubricem_env.tools.engines import ENGINES

from ...settings import prompt_hashes
from ..questions import load_training_questions
from ..refusals import refuse_unfit
from .estimate import plan_disk, plan_memory, refuse_small_gpu
from .plan import search_bottleneck
from .quota import judge_bottleneck
from .run_shape import Assumptions, RunShape, find_model_shape, read_run_file, read_run_shape

_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_QUERY_SECONDS = 20.0
"""A driver that hangs never answers."""


class Machine:
    """The machine that this process runs on, as far as a preflight examines it."""

    def __init__(self) -> None:
        self.environ: Mapping[str, str] = os.environ

    def version_of(self, package: str) -> str | None:
        """None for a package that is not installed."""
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    def gpu_gib(self) -> list[float]:
        """The memory of each GPU; empty without any, or without a driver that answers."""
        try:
            asked = subprocess.run(
                _QUERY,
                capture_output=True,
                text=True,
                timeout=_QUERY_SECONDS,
                check=True,
                env=without_keys(os.environ),
            )
            return [float(line) / 1_024 for line in asked.stdout.splitlines() if line.strip()]
        except (OSError, subprocess.SubprocessError, ValueError):
            return []

    def free_gib(self, folder: Path) -> float:
        """On the disk where the folder is, or will be."""
        path = folder.expanduser().absolute()
        return shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists())).free / 2**30

    def find_silent(self, probes: Iterable[Probe]) -> dict[str, str]:
        """The services that do not answer a request of one token, and what they say."""
        return asyncio.run(find_silent(probes))

    def measure_nodes(self, nodes: int, gpus: int) -> list[tuple[float, int]]:
        """What `measure_node` finds on each of so many nodes of the cluster at RAY_ADDRESS, with so many GPUs each."""
        ray, placing = import_module("ray"), import_module("ray.util.scheduling_strategies")
        with ray.init(logging_level="ERROR"):
            # This node first: the port is free here, and the first node's process listens on it.
            own = ray.get_runtime_context().get_node_id()
            alive = [node for node in ray.nodes() if node["Alive"]]
            alive = sorted(alive, key=lambda node: node["NodeID"] != own)[:nodes]
            with socket.create_server(("", 0)) as free:
                address = f"{alive[0]['NodeManagerAddress']}:{free.getsockname()[1]}"
            task, calls = ray.remote(num_cpus=1, num_gpus=gpus)(measure_node), []
            for rank, node in enumerate(alive):
                here = placing.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                calls.append(task.options(scheduling_strategy=here).remote(rank, len(alive), address))
            return list(ray.get(calls, timeout=180.0))

    def memory_gib(self) -> float:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


COMMON = MappingProxyType(
    {
        "verl": "==0.9.1",
        "ray": ">=2.41",
        "hydra-core": ">=1.3,<1.4",
        "tensordict": ">=0.8,<=0.10,!=0.9.0",
        "TransferQueue": ">=0.1.10",
        "cachetools": ">=5",
        "fastapi": ">=0.110",
        "uvicorn": ">=0.30",
    }
)
GPU_STACK = MappingProxyType(
    {**COMMON, "torch": "==2.11.*", "vllm": "==0.24.*", "transformers": ">=5.5.3,<5.11,!=5.6.0", "flash-attn": ">=2"}
)
"""veRL 0.9.1 with its extra `vllm`; docs/cluster.md has the container."""
CPU_STACK = MappingProxyType({**COMMON, "torch": ">=2.11", "transformers": ">=5.10,<5.11"})
_INSTALL = MappingProxyType(
    {
        "vllm": "pip install 'verl[vllm]==0.9.1', as docs/cluster.md says",
        "flash-attn": "pip install flash-attn --no-build-isolation",
        "TransferQueue": "pip install TransferQueue==0.1.11",
        "cupy-cuda13x": "pip install 'verl[cupy-cu130]==0.9.1': veRL moves weights over nccl with it",
    }
)
_MODEL_FILES = MappingProxyType(
    {"config.json": ("config.json",), "weights": ("*.safetensors", "*.bin"), "tokenizer": ("tokenizer*.json",)}
)


Problem = tuple[str, str, str]
"""What is missing, what was found in its place, and the remedy."""


def find_problems(shape: RunShape, machine: Machine, *, probe: bool = True) -> list[Problem]:
    """All that the run lacks, in the order of a set-up; with `probe` its services are asked for one token."""
    missing = [*check_packages(shape, machine), *check_model(shape), *check_sizes(shape, machine)]
    missing += [*check_prompts(shape), *check_head(machine.environ)]
    if shape.settings.almanac is None:
        keys = list(check_keys(shape, machine.environ))
        missing += [*check_questions(shape), *keys]
        if probe and not keys:
            judge, tools = shape.settings.judge, shape.settings.tools
            probes = model_probes(machine.environ, judges=(judge.judge, *judge.also))
            silent = machine.find_silent([*probes, *search_probes(tools, machine.environ)])
            remedy = "correct its name, address or key; --no-probe skips this request of one token"
            missing += [(what, said, remedy) for what, said in silent.items()]
    return [*missing, *check_embedder(shape, machine)]


def check_packages(shape: RunShape, machine: Machine) -> Iterator[Problem]:
    stack = dict(CPU_STACK if shape.device == "cpu" else GPU_STACK)
    if shape.engine != "vllm":
        stack.pop("vllm", None)
    if not shape.packs:
        stack.pop("flash-attn", None)
    if shape.layout == "separate" and shape.transport == "nccl":
        stack["cupy-cuda13x"] = ">=13"
    for package, wanted in stack.items():
        version = machine.version_of(package)
        if version is None or not SpecifierSet(wanted).contains(version, prereleases=True):
            state = "not installed" if version is None else f"version {version}, tested is {wanted}"
            yield package, state, _INSTALL.get(package, "pip install 'rubricem[verl]'")


def check_model(shape: RunShape) -> Iterator[Problem]:
    """A folder that transformers and vLLM can load."""
    folder = model_folder(Path(shape.model).expanduser())
    remedy = (
        "fine-tune first, `accelerate launch --config_file configs/accelerate_zero3.yaml trainers/sft_accelerate.py "
        "--config configs/sft_qwen3_8b.yaml`, or name another folder in actor_rollout_ref.model.path"
    )
    for what, patterns in _MODEL_FILES.items():
        if not any(next(folder.glob(pattern), None) for pattern in patterns):
            yield "model", f"{folder} has no {what} ({', '.join(patterns)})", remedy
            return


def check_sizes(shape: RunShape, machine: Machine) -> Iterator[Problem]:
    """The GPUs and the memory of this node, and the disk: for the model, its state and its checkpoints."""
    on_gpu = shape.device != "cpu"
    gpus = machine.gpu_gib() if on_gpu else []
    assumed = Assumptions(gpu_gib=min(gpus)) if gpus else Assumptions()
    try:
        model = find_model_shape(shape.model)
        memory, disk = plan_memory(shape, model, assumed), plan_disk(shape, model, assumed)
    except ConfigError as refusal:
        for what in ("GPUs", "memory", "disk") if on_gpu else ("disk",):
            yield what, str(refusal), "name the model's folder in actor_rollout_ref.model.path"
        return
    if shape.engine == "vllm" and 0 < model.positions < shape.sampled_tokens:
        state = f"max_model_len is {shape.sampled_tokens}, and its config.json names {model.positions} positions "
        remedy = f"set actor_rollout_ref.rollout.max_model_len={model.positions}, or name a model of longer texts"
        yield "model", f"{state}(max_position_embeddings): vLLM would not start", remedy
    if on_gpu and len(gpus) < shape.gpus_per_node:
        remedy = (
            f"start it on the head of a cluster of {shape.nodes} nodes with {shape.gpus_per_node} GPUs each, or set "
            "trainer.nnodes and trainer.n_gpus_per_node"
        )
        yield "GPUs", f"{len(gpus)} GPUs on this node; the config needs {shape.gpus_per_node}", remedy
    elif on_gpu and (refused := _refusal_of(lambda: refuse_small_gpu(memory, shape, assumed.gpu_gib))):
        yield "GPUs", refused, "rubricem train-verl --dry-run shows what takes the memory"
    host = machine.memory_gib()
    if on_gpu and host < memory.host_gib:
        remedy = "take more nodes, or offload less (fsdp_config.param_offload, fsdp_config.optimizer_offload)"
        yield "memory", f"{host:.0f} GiB in this node; offloading needs {memory.host_gib:.0f}", remedy
    if (free := machine.free_gib(shape.folder)) < sum(disk):
        remedy = "make room, set trainer.default_local_dir, keep fewer with trainer.max_actor_ckpt_to_keep, or set "
        remedy += "rubricem.record=false, or a sample: 'rubricem.record={every: 10}'"
        state = f"{free:.3g} GiB free for {shape.folder}; checkpoints need {disk.checkpoints:.3g}"
        yield "disk", f"{state}, the run's record {disk.record:.3g}", remedy


def check_head(environ: Mapping[str, str]) -> Iterator[Problem]:
    """Whether a head of Ray beyond this machine asks its callers for a token."""
    host = url_host(f"ray://{environ.get('RAY_ADDRESS', '').rpartition('://')[2]}")
    if host and host not in LOOPBACK and environ.get("RAY_AUTH_MODE") != "token":
        state = f"RAY_ADDRESS names {host}, and RAY_AUTH_MODE is not token: whoever reaches it can run code there"
        remedy = "ray get-auth-token --generate, then RAY_AUTH_MODE=token on every node before ray start, and here"
        yield "Ray", state, remedy


def check_questions(shape: RunShape) -> Iterator[Problem]:
    """The training file, with enough questions for a window."""
    path, window = shape.settings.questions, shape.settings.window
    needed = shape.questions * window
    try:
        number = len(load_training_questions(shape.settings)[0])
    except FileFormatError as refusal:
        yield "questions", str(refusal), f"rubricem data prepare hf:rl-research/dr-tulu-rl-data -o {path}"
        return
    if number < needed:
        state = f"{number} in {path}; a window of {window} steps needs {needed}"
        yield "questions", state, "prepare more, or lower data.train_batch_size"


def check_prompts(shape: RunShape) -> Iterator[Problem]:
    """The folders of a user's own prompts."""
    if refused := _refusal_of(lambda: prompt_hashes(shape.settings, shape.settings.judge)):
        yield (
            "prompts",
            refused,
            "correct the folder, or leave rubricem.prompts and rubricem.judge.prompts out for ours",
        )


def check_keys(shape: RunShape, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Whether judges and search engine can be built: with their keys, which may be wrong, and their packages."""
    judge, tools = shape.settings.judge.model_copy(update={"prompts": None}), shape.settings.tools
    built: dict[str, Callable[[], object]] = {
        "judge": lambda: build_judge(judge, environ, stage_set=shape.settings.stage_set)
    }
    if tools.remote is not None:
        url = tools.remote.url
        built["tools"] = lambda: read_secret(environ, TOKEN_VARIABLE, purpose=f"the tool server {url}")
    elif tools.asks_engines:
        for search in (tools.google_search, tools.snippet_search):
            for engine in search.in_order:
                name = ENGINES[engine.engine].spec.name
                label = name if engine is search else f"{name} ({engine.engine})"
                built[label] = partial(_require_engine, engine, environ)
    for what, build in built.items():
        if refused := _refusal_of(build):
            yield what, refused, "export it on every node, before ray start"


def _require_engine(search: SearchConfig, environ: Mapping[str, str]) -> None:
    """Raise UsageError where an engine cannot be built, or would be asked at the low rate of all who have no key."""
    search_backend(search, environ)
    engine = ENGINES[search.engine]
    if engine.key and not engine.needs_key and search.url in (ENGINES[SCHOLAR].url, engine.url):
        purpose = f"{engine.spec.name}, whose callers without a key share one low rate,"
        read_secret(environ, engine.key, purpose=purpose)


def _refusal_of(call: Callable[[], object]) -> str:
    """What a call says that cannot be done; "" where it can."""
    try:
        call()
    except UsageError as refusal:
        return str(refusal)
    return ""


def check_embedder(shape: RunShape, machine: Machine) -> Iterator[Problem]:
    """The bank's embedder: its package and its weights, which are never downloaded."""
    bank = shape.settings.bank
    if not shape.settings.meta_policy or bank.embedder not in WITH_WEIGHTS:
        return
    if machine.version_of("sentence-transformers") is None:
        yield "embedder", "sentence-transformers is not installed", "pip install 'rubricem[bank]'"
        return
    home = Path(machine.environ.get("HF_HOME", "~/.cache/huggingface"))
    cache = Path(machine.environ.get("HF_HUB_CACHE") or home / "hub")
    folder = bank.embedder_path or cache / "models--Qwen--Qwen3-Embedding-0.6B"
    if bank.embedder != MINILM and not folder.expanduser().is_dir():
        remedy = (
            "hf download Qwen/Qwen3-Embedding-0.6B, or give its folder in rubricem.bank.embedder_path, or "
            "set rubricem.bank.embedder=minilm"
        )
        yield "embedder", f"{QWEN3} is not in {folder}", remedy


def measure_node(rank: int, nodes: int, address: str) -> tuple[float, int]:
    """GiB a second of an all-reduce between `nodes` through this one's first GPU, and its pairs without peer access.

    It runs on every node at once, in processes of Ray: over NCCL, or gloo where there is no GPU.
    """
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    gpus = torch.cuda.device_count()
    backend, device, mib = ("nccl", "cuda", 1_024) if gpus else ("gloo", "cpu", 16)
    distributed.init_process_group(backend, init_method=f"tcp://{address}", rank=rank, world_size=nodes)
    numbers, fastest = torch.zeros(mib * 2**18, device=device), float("inf")
    for _ in range(4):  # the first sets up the connections
        started = time.perf_counter()
        distributed.all_reduce(numbers)
        numbers[0].item()
        fastest = min(fastest, time.perf_counter() - started)
    distributed.destroy_process_group()
    apart = sum(not torch.cuda.can_device_access_peer(*pair) for pair in permutations(range(gpus), 2))
    return 2 * (nodes - 1) / nodes * mib / 1_024 / fastest, apart


def network_warnings(shape: RunShape, machine: Machine, assumed: Assumptions) -> Iterator[str]:
    """What is slow between the nodes, and between the GPUs of a node. It keeps no run from starting."""
    try:
        with boundary(BoundaryError, "measure the network between the nodes"):
            measured = machine.measure_nodes(shape.nodes, 0 if shape.device == "cpu" else shape.gpus_per_node)
    except BoundaryError as failure:
        yield f"warning: {failure}"
        return
    slowest = min(rate for rate, _ in measured)
    apart = sum(pairs for _, pairs in measured)
    if slowest < assumed.network_gib / 10:
        yield (
            f"warning: an all-reduce between {len(measured)} nodes moves {slowest:.2g} GiB a second to a GPU, and a "
            f"link has {assumed.network_gib:g}. NCCL seems to use TCP: give the nodes their RDMA devices "
            "(docs/cluster.md), and look at the output of NCCL_DEBUG=INFO."
        )
    if apart:
        yield (
            f"warning: {apart} pairs of GPUs within a node have no peer access, so that the host stands between them. "
            "See `nvidia-smi topo -p2p r`; in a virtual machine or a container the host must allow it."
        )


def require_ready(
    file: Path, changes: Iterable[str] = (), *, machine: Machine | None = None, probe: bool = True
) -> None:
    """List on stderr all that is missing, each with its remedy, and raise ConfigError if anything is."""
    config = read_run_file(file, changes)
    shape = read_run_shape(config)
    refuse_unfit(config, shape.settings)
    here = machine or Machine()
    problems = find_problems(shape, here, probe=probe)
    if not problems:
        assumed = Assumptions()
        model = find_model_shape(shape.model) if shape.device != "cpu" else None
        binds = [find(shape, model, assumed) for find in (search_bottleneck, judge_bottleneck) if model is not None]
        measures = probe and shape.nodes > 1 and "RAY_ADDRESS" in here.environ
        for line in (*binds, *(network_warnings(shape, here, assumed) if measures else ())):
            sys.stderr.write(f"{line}\n" if line else "")
        return
    width = max(len(what) for what, _, _ in problems)
    for what, state, remedy in problems:
        sys.stderr.write(f"  {what:<{width}}  {state}\n  {'':<{width}}  -> {remedy}\n")
    things = "thing is" if len(problems) == 1 else "things are"
    message = f"{len(problems)} {things} missing for {file.stem}; nothing was started."
    if file.stem != "verl_almanac_cpu":
        message += " The same recipe without GPUs, keys or network: rubricem train-verl verl_almanac_cpu"
    raise ConfigError(message)
