"""The preflight reports all that is missing for a run at once, before anything starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from rubricem_agent.wiring.training_questions import prepare
from rubricem_env.domain.errors import ConfigError
from rubricem_env.world.almanac import shipped_questions_path
from tests.trainers.verl_backend.planning.conftest import CONFIGS, RECIPE, FakeMachine
from trainers.verl_backend.planning.preflight import Machine, find_problems, require_ready
from trainers.verl_backend.planning.run_shape import read_run_file, read_run_shape

HEAVY = ("torch", "verl", "ray", "hydra", "transformers", "vllm")


@pytest.fixture
def ready(tmp_path: Path) -> list[str]:
    """Changes of the recipe to a model, questions and an embedder that are there."""
    model = tmp_path / "qwen3-8b"
    model.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (model / name).write_text("")
    shape = '{"num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, '
    (model / "config.json").write_text(shape + '"head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936}')
    prepare(str(shipped_questions_path()), tmp_path / "questions.jsonl")
    return [
        f"actor_rollout_ref.model.path={model}",
        f"rubricem.questions={tmp_path / 'questions.jsonl'}",
        f"rubricem.bank.embedder_path={tmp_path}",
        "data.train_batch_size=24",
    ]


def missing(machine: FakeMachine, *changes: str) -> dict[str, str]:
    shape = read_run_shape(read_run_file(RECIPE, changes))
    return {what: found for what, found, _ in find_problems(shape, machine)}


def test_a_cluster_that_has_everything_may_start_and_is_told_what_binds_its_steps(
    machine: FakeMachine, ready: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    require_ready(RECIPE, ready, machine=machine)
    assert missing(machine, *ready) == {}
    assert capsys.readouterr().err.startswith(
        "snippet_search (semantic_scholar) binds the step: its searches take 346 s at 60 a minute"
    )


def test_a_model_of_shorter_texts_than_vllm_is_to_read_is_refused(machine: FakeMachine, ready: list[str]) -> None:
    config = Path(ready[0].partition("=")[2]) / "config.json"
    config.write_text(config.read_text().replace("{", '{"max_position_embeddings": 20480, '))
    found = missing(machine, *ready)
    assert found == {
        "model": "max_model_len is 26624, and its config.json names 20480 positions (max_position_embeddings): "
        "vLLM would not start"
    }
    config.write_text(config.read_text().replace("20480", "26624"))
    assert missing(machine, *ready) == {}


def test_a_folder_of_prompts_that_lacks_one_is_missing_before_the_run(
    machine: FakeMachine, ready: list[str], tmp_path: Path
) -> None:
    found = missing(machine, *ready, f"rubricem.prompts={tmp_path}")
    assert "has no agent.md, react.md" in found["prompts"]
    found = missing(machine, *ready, f"rubricem.judge.prompts={tmp_path}")
    assert "has no propose.md, score.md" in found["prompts"]
    assert {*found} == {"prompts"}


def test_what_moves_weights_over_nccl_is_asked_for_where_they_are_moved(machine: FakeMachine, ready: list[str]) -> None:
    transport = "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl"
    assert missing(machine, *ready, transport) == {}
    found = missing(machine, *ready, transport, "trainer.v1.trainer_mode=rubricem_separate")
    assert found == {"cupy-cuda13x": "not installed"}


def test_all_that_is_missing_is_said_at_once_each_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    bare = FakeMachine(versions={}, gpus=[], free=1.0, memory=8.0, environ={})

    with pytest.raises(ConfigError) as refused:
        require_ready(RECIPE, machine=bare)
    told = capsys.readouterr().err

    for what in (
        "verl",
        "flash-attn",
        "model",
        "GPUs",
        "memory",
        "questions",
        "judge",
        "google_search",
        "embedder",
        "disk",
    ):
        assert f"  {what}" in told
    assert told.count("  -> ") == len(missing(bare)) == 21
    assert "rubricem train-verl verl_almanac_cpu" in str(refused.value)
    assert "nothing was started" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "what", "said"),
    [
        ({"gpus": [79.6] * 4}, "GPUs", "4 GPUs on this node; the config needs 8"),
        ({"gpus": [79.6] * 7 + [24.0]}, "GPUs", "a GPU of 24 GiB is too small"),
        ({"memory": 30.0}, "memory", "30 GiB in this node; offloading needs 38"),
        ({"free": 300.0}, "disk", "checkpoints need 366"),
        (
            {"environ": {"GEMINI_API_KEY": " ", "S2_API_KEY": "x"}},
            "google_search",
            "needs a key; set GEMINI_API_KEY or GOOGLE_API_KEY",
        ),
    ],
)
def test_one_thing_that_is_missing_is_named(changes: dict[str, object], what: str, said: str, ready: list[str]) -> None:
    assert said in missing(FakeMachine(**changes), *ready)[what]  # type: ignore[arg-type]


def test_a_version_outside_the_tested_range_is_named_with_the_range(machine: FakeMachine, ready: list[str]) -> None:
    machine.versions["verl"] = "0.10.0"
    machine.versions["transformers"] = "5.11.0"

    assert missing(machine, *ready) == {
        "verl": "version 0.10.0, tested is ==0.9.1",
        "transformers": "version 5.11.0, tested is >=5.5.3,<5.11,!=5.6.0",
    }


def test_the_judges_own_key_does_not_pay_for_searches(machine: FakeMachine, ready: list[str]) -> None:
    machine.environ = {"RUBRICEM_JUDGE_KEY": "x", "S2_API_KEY": "x"}

    assert list(missing(machine, *ready)) == ["google_search"]


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ([], {"judge": "GEMINI_API_KEY", "google_search": "GEMINI_API_KEY"}),
        (
            ["rubricem.tools.google_search.url=https://mirror.example/v1"],
            {"judge": "GEMINI_API_KEY", "google_search": "RUBRICEM_SEARCH_KEY in"},
        ),
        (
            ["rubricem.tools.google_search.engine=plain"],
            {"judge": "GEMINI_API_KEY", "google_search": "SERPER_API_KEY in"},
        ),
        (
            ["rubricem.tools.remote={url: 'http://tools:8000/mcp'}"],
            {"judge": "GEMINI_API_KEY", "tools": "RUBRICEM_TOOLS_TOKEN in"},
        ),
        (
            ["rubricem.judge.judge=openai:gpt-4.1@https://api.openai.com/v1"],
            {"judge": "OPENAI_API_KEY or RUBRICEM_JUDGE_KEY", "google_search": "GEMINI_API_KEY"},
        ),
        (
            [
                "rubricem.judge.judge=openai:mine@http://judge:8000/v1",
                "rubricem.tools.snippet_search.url=http://127.0.0.1",
            ],
            {"google_search": "GEMINI_API_KEY"},
        ),
        (["rubricem.judge.judge=rules", "rubricem.tools.backend=offline"], {}),
    ],
)
def test_keys_follow_from_judge_and_tools(
    changes: list[str], needed: dict[str, str], machine: FakeMachine, ready: list[str]
) -> None:
    machine.environ = {}
    if needed.keys() >= {"judge", "google_search"}:
        needed["snippet_search"] = "S2_API_KEY"

    found = missing(machine, *ready, *changes)
    assert found.keys() == needed.keys()
    assert [what for what, key in needed.items() if key not in found[what]] == []


def test_a_model_without_weights_or_tokenizer_is_named(machine: FakeMachine, ready: list[str], tmp_path: Path) -> None:
    (tmp_path / "qwen3-8b" / "tokenizer.json").unlink()
    assert "has no tokenizer" in missing(machine, *ready)["model"]
    (tmp_path / "qwen3-8b" / "model.safetensors").unlink()
    assert "has no weights" in missing(machine, *ready)["model"]


def test_a_model_of_unknown_size_leaves_memory_and_disk_open(machine: FakeMachine, ready: list[str]) -> None:
    lacking = missing(machine, *ready, "actor_rollout_ref.model.path=runs/mine")

    assert "has no config.json" in lacking["model"]
    for what in ("GPUs", "memory", "disk"):
        assert "its name contains no known size" in lacking[what]


def test_too_few_or_unreadable_questions_are_named(machine: FakeMachine, ready: list[str], tmp_path: Path) -> None:
    lacking = missing(machine, *ready, "data.train_batch_size=32")
    assert lacking["questions"].startswith("72 in ")
    assert lacking["questions"].endswith("a window of 3 steps needs 96")
    (tmp_path / "questions.jsonl").write_text('{"question": "Why?"}\n')
    assert "line 1: the question has no persistent rubrics" in missing(machine, *ready)["questions"]


def test_without_the_meta_policy_no_embedder_is_needed(machine: FakeMachine, ready: list[str]) -> None:
    del machine.versions["sentence-transformers"]

    assert missing(machine, *ready) == {"embedder": "sentence-transformers is not installed"}
    assert missing(machine, *ready, "rubricem.meta_policy=false") == {}


def test_what_the_run_does_not_use_is_not_needed(machine: FakeMachine, ready: list[str]) -> None:
    machine.free = 0.0
    for package in ("vllm", "flash-attn"):
        del machine.versions[package]
    model = "actor_rollout_ref"
    changes = [
        "trainer.save_freq=-1",
        "rubricem.record=false",
        f"{model}.model.use_remove_padding=false",
        f"{model}.rollout.name=transformers",
    ]

    assert missing(machine, *ready, *changes) == {}


def test_a_head_of_ray_that_asks_for_no_token_is_refused_beyond_this_machine(
    machine: FakeMachine, ready: list[str]
) -> None:
    keys = dict(machine.environ)
    for address, is_open in {"10.0.0.7:6379": True, "127.0.0.1:6379": False, "head:6379": True}.items():
        machine.environ = keys | {"RAY_ADDRESS": address}
        assert ("Ray" in missing(machine, *ready)) == is_open
        machine.environ = keys | {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"}
        assert missing(machine, *ready) == {}


def test_embedders_are_looked_for_where_they_are_loaded_from(
    machine: FakeMachine, ready: list[str], tmp_path: Path
) -> None:
    cached = [change for change in ready if "embedder_path" not in change]
    machine.environ = {**machine.environ, "HF_HOME": str(tmp_path)}
    assert "embedder" in missing(machine, *cached)
    (tmp_path / "hub" / "models--Qwen--Qwen3-Embedding-0.6B").mkdir(parents=True)
    assert missing(machine, *cached) == {}
    assert missing(machine, *cached, "rubricem.bank.embedder=minilm") == {}


def test_the_almanac_on_the_cpu_asks_for_no_gpu_no_key_and_no_cuda() -> None:
    shape = read_run_shape(read_run_file(CONFIGS / "verl_almanac_cpu.yaml"))
    lacking = {what for what, _, _ in find_problems(shape, FakeMachine(versions={}, gpus=[], memory=0.0, environ={}))}

    assert {"GPUs", "memory", "questions", "vllm", "flash-attn"}.isdisjoint(lacking)
    assert {"verl", "ray", "torch"} <= lacking


def test_this_machine_can_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Machine()
    monkeypatch.setenv("PATH", str(tmp_path))

    assert here.version_of("pydantic")
    assert here.version_of("no-such-package-at-all") is None
    assert here.gpu_gib() == []
    assert here.free_gib(tmp_path / "not" / "there" / "yet") > 0
    assert here.memory_gib() > 0.1
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\nprintf '81920\\n24576\\n'\n")
    driver.chmod(0o755)
    assert here.gpu_gib() == [80.0, 24.0]


def test_nothing_heavy_is_imported_to_say_what_is_missing() -> None:
    code = (
        "import sys, trainers.verl_backend.planning.preflight, trainers.verl_backend.planning.plan;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CONFIGS.parent)

    assert told.stdout.strip() == "[]"


class Measured(FakeMachine):
    """A machine in a cluster whose nodes were measured."""

    def __init__(self, *found: tuple[float, int], **changes: object) -> None:
        super().__init__(**changes)  # type: ignore[arg-type]
        self.environ = {**self.environ, "RAY_ADDRESS": "head:6379", "RAY_AUTH_MODE": "token"}
        self.found = found

    def measure_nodes(self, nodes: int, gpus: int) -> list[tuple[float, int]]:
        if not self.found:
            raise TimeoutError(f"{nodes} nodes of {gpus} GPUs did not answer")
        return list(self.found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(41.0, 0), (39.0, 0)], None),
        (
            [(41.0, 0), (3.9, 0)],
            "warning: an all-reduce between 2 nodes moves 3.9 GiB a second to a GPU, and a link has 40",
        ),
        ([(41.0, 0), (39.0, 6)], "warning: 6 pairs of GPUs within a node have no peer access"),
        (
            [],
            "warning: could not measure the network between the nodes: TimeoutError: 4 nodes of 8 GPUs did not answer",
        ),
    ],
)
def test_a_slow_network_is_warned_of_and_the_run_may_start(
    found: list[tuple[float, int]], said: str | None, ready: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    require_ready(RECIPE, ready, machine=Measured(*found))
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert [line.startswith(said) for line in told] == ([True] if said else [])


def test_the_network_is_not_measured_on_one_node_nor_without_probes(
    ready: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    require_ready(RECIPE, [*ready, "trainer.nnodes=1"], machine=Measured())
    require_ready(RECIPE, ready, machine=Measured(), probe=False)
    assert "warning" not in capsys.readouterr().err
