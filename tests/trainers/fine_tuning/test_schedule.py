"""The parts of fine-tuning: rows, the plan of a run, and settings."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.data.chatml import TokenSample
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from trainers.fine_tuning.accelerated import Accelerated
from trainers.fine_tuning.settings import SftConfig, SftSchedule
from trainers.fine_tuning.sft import make_row, pack
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

NEEDED = "model: m\nsamples: s\nout: o\n"


@given(st.lists(st.integers(1, 50), max_size=40))
def test_packing_puts_every_sample_into_one_row_and_overfills_none(lengths: list[int]) -> None:
    rows = pack(lengths, 50)

    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in row) <= 50 for row in rows)


def test_longest_samples_are_placed_first() -> None:
    # 6 takes a row; 5 takes the next, where 3 still fits; 2 fits beside 6.
    assert pack([2, 5, 3, 6], 8) == [[3, 0], [1, 2]]


def test_a_row_counts_positions_anew_for_each_sample_and_learns_no_first_token() -> None:
    row = make_row([TokenSample([7, 8, 9], [False, True, True]), TokenSample([5, 6], [True, True])])

    assert row.ids.tolist() == [[7, 8, 9, 5, 6]]
    assert row.positions.tolist() == [[0, 1, 2, 0, 1]]
    # 8 is foretold by 7, 9 by 8, and 6 by 5; 5 begins its sample.
    assert row.predicting.tolist() == [0, 1, 3]
    assert row.targets.tolist() == [8, 9, 6]


def test_each_epoch_meets_every_sample_once_in_an_order_of_its_own() -> None:
    plan = SftSchedule(num_samples=5, batch_size=2, epochs=2, seed=0, learning_rate=1.0, warmup_share=0.1)
    epochs = [[index for step in steps for index in plan.batch(step)] for steps in ((1, 2, 3), (4, 5, 6))]

    assert plan.num_steps == 6
    assert [sorted(epoch) for epoch in epochs] == [[0, 1, 2, 3, 4]] * 2
    assert epochs[0] != epochs[1]


def test_the_rate_warms_up_over_a_tenth_and_falls_along_a_cosine_and_no_step_is_made_at_rate_zero() -> None:
    plan = SftSchedule(num_samples=20, batch_size=1, epochs=1, seed=0, learning_rate=4e-5, warmup_share=0.1)

    # Two steps of warm-up; half way down after half of the other 18.
    assert [plan.rate(step) for step in (1, 2)] == [2e-5, 4e-5]
    # Halfway between the peak at step 2 and zero at step 21.
    assert (plan.rate(11) + plan.rate(12)) / 2 == pytest.approx(2e-5)
    assert 0 < plan.rate(20) < 4e-7


def test_a_dotted_key_changes_one_setting_of_a_section_and_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("policy: tiny\nout: o\nwatch: {window: 5, shortest_answer: 0.5}\n")

    settings = read_settings(file, LocalConfig, changes=["watch.window=3", "limits.max_calls=4"])

    assert (settings.watch.window, settings.watch.shortest_answer) == (3, 0.5)
    # The section that the file lacks keeps its defaults, of which 1,400 tokens is the trainer's own.
    assert (settings.limits.max_calls, settings.limits.max_tokens) == (4, 1_400)
    with pytest.raises(ConfigError, match=r"watch has the unknown key 'windw'; did you mean 'window'"):
        read_settings(file, LocalConfig, changes=["watch.windw=3"])
    with pytest.raises(ConfigError, match=r"policy\.path=x: policy is 'tiny', not a section\. Write policy=VALUE"):
        read_settings(file, LocalConfig, changes=["policy.path=x"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("judge=gemini:m", "judge is 'gemini:m', which is no section; its keys are judge.judge, judge.also, "),
        ("lora=8", "lora is 8, which is no section; its keys are lora.rank, "),
    ],
)
def test_a_value_in_the_place_of_a_section_is_refused_with_the_sections_keys(
    tmp_path: Path, change: str, said: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("policy: tiny\nout: o\n")
    with pytest.raises(ConfigError, match=said):
        read_settings(file, LocalConfig, changes=[change])
    # The tools are named by a folder or an address as well.
    assert str(read_settings(file, LocalConfig, changes=["tools=web"]).tools.backend) == "web"


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (NEEDED + "batch_sise: 3", [], "the unknown key 'batch_sise'; did you mean 'batch_size'"),
        (NEEDED + "zzz: 3", [], "the unknown key 'zzz'; the keys are model, samples"),
        (NEEDED + "epochs: 0", [], "is refused: at epochs: input should be greater than or equal to 1"),
        ("model: m\n", [], "is refused: at samples: field required"),
        ("- a\n", [], "holds a YAML list; a config has lines KEY: VALUE"),
        ("a: [", [], "cannot read the config"),
        (NEEDED, ["epochs"], "'epochs' is not a setting; write KEY=VALUE"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(tmp_path: Path, text: str, changes: list[str], message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        read_settings(file, SftConfig, changes=changes)
    assert message in str(refusal.value)


def test_several_processes_without_accelerate_are_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtraError, match=r"needs accelerate, .* pip install 'rubricem\[cluster\]'"):
        Accelerated.here("fp32")
