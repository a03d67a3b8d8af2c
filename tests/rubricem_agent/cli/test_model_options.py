from collections.abc import Mapping
from pathlib import Path

from rubricem_agent.cli.model_options import model_options, read_model
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_records.rollouts.sampling import Sampling

DEFAULTS = {parameter.name: parameter.default for parameter in model_options(EvalConfig)}


def read(**given: object) -> EvalConfig:
    return read_model(EvalConfig, {**DEFAULTS, "benchmark": "almanac", **given})


def test_without_options_a_command_reads_the_defaults_of_its_settings() -> None:
    assert read() == EvalConfig(benchmark="almanac")


def test_an_option_that_is_written_in_another_way_sets_its_field() -> None:
    config = read(judge=["a:b"], seen=[Path("x")], price=["m=2,12"], shard="2/8", no_probe=True, top_p=0.5)

    expected: Mapping[str, object] = {
        "judges": ("a:b",),
        "seen": (Path("x"),),
        "prices": {"m": (2.0, 12.0)},
        "shard": (2, 8),
        "probe": False,
        "sampling": Sampling(top_p=0.5),
    }
    assert {name: getattr(config, name) for name in expected} == expected


def test_every_field_of_an_evaluation_but_the_retry_policy_is_an_option() -> None:
    config = EvalConfig(benchmark="almanac")
    renamed = {"judges": "judge", "prices": "price", "probe": "no_probe", "sampling": "top_p"}
    renamed |= {"limits": "max_calls", "context": "fold_at"}

    assert {name for name, _ in config if renamed.get(name, name) not in DEFAULTS} == {"retry"}
