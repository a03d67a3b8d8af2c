"""Fine-tuning learns only the policy's tokens, however the batch is split, and a stopped run resumes exactly."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from research.tiny_pretraining import word_tokenizer
from rubricem_agent.data.base import TeacherTask
from rubricem_agent.data.chatml import ChatSample, encode_sample, read_samples, write_samples
from rubricem_agent.data.filter import harvest
from rubricem_agent.data.generate import Generation
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.policy.base import model_folder, own_system
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_records.files.line_file import LineFile
from rubricem_records.files.run_lock import lock_folder
from trainers.fine_tuning.settings import GIB, Precision, SftConfig, SftSchedule, plan_memory, refuse_small_gpu
from trainers.fine_tuning.sft import (
    OneProcess,
    StepResult,
    encode_all,
    fit,
    main,
    make_rows,
    recompute_activations,
    row_loss,
    run,
    run_sft,
    share_of,
    train_step,
)
from trainers.lora import LoraSettings

CPU = OneProcess("fp32", torch.device("cpu"))


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of the scripted teacher, and a model that knows nothing, made by the whole pipeline."""
    folder = tmp_path_factory.mktemp("school")
    questions = {question.id: question for question in load_questions(shipped_questions_path())[:8]}
    generation = Generation(ScriptedTeacher(questions), shipped_toolbox(), journal=LineFile(folder / "journal.jsonl"))
    tasks = [TeacherTask(name, query_of(question)) for name, question in questions.items()]
    traces = asyncio.run(generation.run(tasks))
    samples = harvest(traces, system="Search, then answer.", user=lambda query: query.question).samples
    write_samples(folder / "samples.jsonl", samples)
    texts = (message.content for sample in samples for message in sample.messages)
    tokenizer: Any = word_tokenizer(texts, max_tokens=4096)
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model: Any = Qwen3ForCausalLM(shape)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder


@pytest.fixture
def config(school: Path, tmp_path: Path) -> SftConfig:
    return SftConfig(
        model=str(school / "model"), samples=school / "samples.jsonl", out=tmp_path / "out", epochs=2,
        learning_rate=1e-2, batch_size=4, max_tokens=4096, precision="fp32", checkpoint_every=1,
    )  # fmt: skip


@pytest.fixture
def model(config: SftConfig) -> Any:
    return AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)


def gradient(model: Any, config: SftConfig, *, packing: bool) -> torch.Tensor:
    """Of the summed loss over four samples, divided by its number of targets."""
    samples = encode_all(config, AutoTokenizer.from_pretrained(config.model))
    rows = make_rows(samples.fitting[:4], capacity=4096, packing=packing)
    model.zero_grad()
    for row in rows:
        (row_loss(model, row, process=CPU) / sum(row.num_targets for row in rows)).backward()
    grad: torch.Tensor = model.model.embed_tokens.weight.grad.clone()
    return grad


def collect(into: list[StepResult]) -> Callable[[StepResult, int], None]:
    return lambda step, last: into.append(step)


def test_labels_are_masked_exactly_on_prompt_and_tool_text(school: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(school / "model")
    for sample in read_samples(school / "samples.jsonl"):
        ids, has_loss = encode_sample(sample, tokenizer)
        learnt = tokenizer.decode([token for token, learns in zip(ids, has_loss, strict=True) if learns])
        unlearnt = tokenizer.decode([token for token, learns in zip(ids, has_loss, strict=True) if not learns])

        assert learnt == "".join(text for text, is_policy in sample.pieces if is_policy) + "<|im_end|>"
        assert "<tool_output>" not in learnt
        assert unlearnt.count("<tool_output>") == sample.messages[2].content.count("<tool_output>")


def test_the_chat_template_of_transformers_gives_the_same_text(school: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(school / "model")
    sample: ChatSample = read_samples(school / "samples.jsonl")[0]
    whole = tokenizer.apply_chat_template([m.model_dump() for m in sample.messages], tokenize=False)

    assert whole == tokenizer.decode(encode_sample(sample, tokenizer).ids) + "\n"


def test_packing_changes_the_rows_and_not_the_gradient(model: Any, config: SftConfig) -> None:
    packed, alone = (gradient(model, config, packing=packing) for packing in (True, False))
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=1e-7)


def test_the_loss_falls_and_the_model_can_be_loaded(config: SftConfig) -> None:
    steps: list[StepResult] = []
    folder = fit(config, CPU, report=collect(steps))

    # 8 samples in batches of 4 for 2 epochs are 4 steps.
    assert [(step.step, step.epoch) for step in steps] == [(1, 0), (2, 0), (3, 1), (4, 1)]
    assert steps[-1].loss < steps[0].loss
    assert len(AutoTokenizer.from_pretrained(folder)) == AutoModelForCausalLM.from_pretrained(folder).config.vocab_size


@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_stopped_run_takes_the_same_next_step(config: SftConfig, tmp_path: Path, stop_after: int) -> None:
    whole: list[StepResult] = []
    parts: list[StepResult] = []
    fit(config, CPU, report=collect(whole))
    other = config.model_copy(update={"out": tmp_path / "other"})
    fit(other.model_copy(update={"stop_after": stop_after}), CPU, report=collect(parts))
    torch.manual_seed(99)
    fit(other, CPU, report=collect(parts))

    def facts(steps: list[StepResult]) -> list[tuple[int, float, float, float]]:
        return [(step.step, step.loss, step.grad_norm, step.learning_rate) for step in steps]

    assert facts(parts) == facts(whole)


def test_a_run_with_other_settings_does_not_go_on_from_the_checkpoint(config: SftConfig) -> None:
    fit(config.model_copy(update={"stop_after": 1}), CPU, report=collect([]))
    with pytest.raises(UsageError, match=r"learning_rate was 0\.01 and is 0\.5"):
        fit(config.model_copy(update={"learning_rate": 0.5}), CPU, report=collect([]))


@pytest.mark.parametrize("change", [{"weight_decay": 0.1}, {"max_grad_norm": 0.1}])
def test_every_setting_that_moves_weights_belongs_to_the_run(config: SftConfig, change: dict[str, float]) -> None:
    fit(config.model_copy(update={"stop_after": 1}), CPU, report=collect([]))
    with pytest.raises(UsageError, match=rf"{next(iter(change))} was .* and is 0\.1"):
        fit(config.model_copy(update=change), CPU, report=collect([]))


def test_as_many_other_samples_do_not_go_on_from_the_checkpoint(config: SftConfig, tmp_path: Path) -> None:
    fit(config.model_copy(update={"stop_after": 1}), CPU, report=collect([]))
    other = tmp_path / "other.jsonl"
    samples = read_samples(config.samples)
    write_samples(other, [samples[-1], *samples[1:]])
    with pytest.raises(UsageError, match=r"samples was \w+ and is \w+"):
        fit(config.model_copy(update={"samples": other}), CPU, report=collect([]))


def test_a_loss_that_is_no_number_updates_nothing(model: Any, config: SftConfig) -> None:
    samples = encode_all(config, AutoTokenizer.from_pretrained(config.model)).fitting
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    before = model.model.embed_tokens.weight.clone()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = make_rows(samples[:1], capacity=4096, packing=True)
    with pytest.raises(NonFiniteLossError, match="step 1 has the loss nan"):
        train_step(model, optimizer, rows=rows, process=CPU, plan=SftSchedule(1, 1, 1, 0, 0.1, 0.0), step=1, clip=1.0)

    assert torch.equal(model.model.embed_tokens.weight, before)


def test_samples_that_are_too_long_are_dropped_and_counted(config: SftConfig) -> None:
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    lengths = sorted(len(sample.ids) for sample in encode_all(config, tokenizer).fitting)
    encoded = encode_all(config.model_copy(update={"max_tokens": lengths[4]}), tokenizer)

    assert (len(encoded.fitting), encoded.dropped) == (5, 3)
    with pytest.raises(ConfigError, match="max_tokens is 7 and the shortest sample has"):
        encode_all(config.model_copy(update={"max_tokens": 7}), tokenizer)


def test_every_process_gets_as_many_rows_and_the_added_ones_weigh_nothing(model: Any, config: SftConfig) -> None:
    class Third(OneProcess):
        rank = 2
        num_processes = 3

    samples = encode_all(config, AutoTokenizer.from_pretrained(config.model))
    rows = make_rows(samples.fitting[:4], capacity=4096, packing=False)
    (only, added) = share_of(rows, Third("fp32", torch.device("cpu")))

    assert only is rows[2]
    assert row_loss(model, added, process=CPU).detach() == 0.0


def test_metrics_of_steps_after_the_last_checkpoint_are_forgotten_on_resume(config: SftConfig) -> None:
    run(config.model_copy(update={"stop_after": 1}), CPU)
    log = config.out / "metrics.jsonl"
    log.write_text(log.read_text() + '{"step": 2, "loss": 9.0}\n{"step": 3, "lo')
    run(config.model_copy(update={"stop_after": 2}), CPU)

    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2]
    assert json.loads(log.read_text().splitlines()[1])["loss"] < 9.0


def test_the_command_trains_from_a_config_file(
    config: SftConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(json.dumps({**config.model_dump(mode="json"), "epochs": 5}))

    assert main(["--config", str(file), "epochs=1"]) == 0
    assert "step 2/2" in capsys.readouterr().out


def test_the_shipped_policy_is_fine_tuned_by_its_short_name(config: SftConfig) -> None:
    tiny = config.model_copy(
        update={"model": "tiny", "batch_size": 4, "epochs": 1, "stop_after": 1, "max_tokens": 4096}
    )

    run(tiny, CPU)

    shipped, tuned = (
        AutoModelForCausalLM.from_pretrained(at) for at in (model_folder(Path("tiny")), config.out / "model")
    )
    assert shipped.config.hidden_size == tuned.config.hidden_size
    assert any((a != b).any() for a, b in zip(shipped.parameters(), tuned.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("learning_rat=1", "has the unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        ("model=nowhere", "no model can be loaded from 'nowhere'"),
    ],
)
def test_a_mistake_is_one_sentence(
    config: SftConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, sentence: str
) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))

    assert main(["--config", str(file), change]) == 2
    assert sentence in capsys.readouterr().err


def test_an_interrupt_is_no_traceback(config: SftConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))

    def interrupted(precision: Precision) -> OneProcess:
        raise KeyboardInterrupt

    assert run_sft(["--config", str(file)], interrupted) == 130
    assert "the same command resumes from the last checkpoint" in capsys.readouterr().err


def test_a_second_process_does_not_write_into_the_folder_of_a_running_one(config: SftConfig) -> None:
    lock = lock_folder(config.out)
    with pytest.raises(ConfigError, match="another process trains in"):
        run(config, CPU)
    lock.close()


def test_a_disk_that_refuses_is_one_sentence(
    config: SftConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.out / "metrics.jsonl").mkdir(parents=True)
    file = tmp_path / "sft.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))

    assert main(["--config", str(file)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"sft: cannot write to {config.out / 'metrics.jsonl'}: Is a directory. Make room")


def test_computing_activations_again_changes_no_gradient(model: Any, config: SftConfig) -> None:
    model.train()
    kept = gradient(model, config, packing=True)
    recompute_activations(model)
    torch.testing.assert_close(gradient(model, config, packing=True), kept)


def test_an_adapter_is_trained_alone_saved_and_merged(config: SftConfig) -> None:
    before = AutoModelForCausalLM.from_pretrained(config.model).state_dict()
    steps: list[StepResult] = []
    folder = fit(config.model_copy(update={"lora": LoraSettings(rank=2)}), CPU, report=collect(steps))
    after = AutoModelForCausalLM.from_pretrained(folder).state_dict()

    assert steps[-1].loss < steps[0].loss
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("proj.weight")}
    adapter = json.loads((config.out / "adapter" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["base_model_name_or_path"]) == (2, config.model)


def test_an_adapter_on_many_processes_is_refused(config: SftConfig) -> None:
    process = OneProcess("fp32", torch.device("cpu"))
    process.num_processes = 8
    with pytest.raises(ConfigError, match="an adapter is trained by one process"):
        run(config.model_copy(update={"lora": LoraSettings()}), process)


@pytest.fixture(scope="module")
def eight_billion(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The config.json of Qwen3-8B alone."""
    folder = tmp_path_factory.mktemp("qwen3-8b")
    Qwen3Config(
        vocab_size=151_936, hidden_size=4_096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, tie_word_embeddings=False,
    ).save_pretrained(folder)  # fmt: skip
    return str(folder)


def test_the_plan_of_the_papers_run_fits_eight_gpus_only_if_activations_are_computed_again(
    eight_billion: str, config: SftConfig
) -> None:
    paper = config.model_copy(update={"model": eight_billion, "max_tokens": 16_384, "precision": "bf16"})
    kept = paper.model_copy(update={"recompute": False})
    plan = plan_memory(paper, processes=8)

    # 8.19 billion parameters of 4 + 12 bytes over 8 GPUs.
    # Activations: the inputs of 36 layers in float32, and one layer of 250 kB a token.
    assert plan["weights"] + plan["gradients and moments"] == pytest.approx(16 * 8_190_735_360 / 8 / GIB)
    assert plan["activations"] == pytest.approx(16_384 * (36 * 4_096 * 4 + 250_000) / GIB)
    assert plan["logits"] == pytest.approx(16_384 * 151_936 * 10 / GIB)
    refuse_small_gpu(plan, paper, gpu_gib=79.6, processes=8)
    with pytest.raises(ConfigError) as refused:
        refuse_small_gpu(plan_memory(kept, processes=8), kept, gpu_gib=79.6, processes=8)
    assert "the run needs 182, 137 of them for activations" in str(refused.value)
    assert "(recompute=true), or shorten the rows (max_tokens=8192), or take more than 8 GPUs" in str(refused.value)


def test_one_gpu_trains_an_adapter_of_the_papers_model(eight_billion: str, config: SftConfig) -> None:
    whole = config.model_copy(update={"model": eight_billion, "max_tokens": 16_384, "precision": "bf16"})
    with pytest.raises(ConfigError, match=r"or train an adapter \(lora=\{rank: 16\}\)"):
        refuse_small_gpu(plan_memory(whole, processes=1), whole, gpu_gib=79.6, processes=1)
    adapter = whole.model_copy(update={"lora": LoraSettings()})
    refuse_small_gpu(plan_memory(adapter, processes=1), adapter, gpu_gib=79.6, processes=1)


def test_samples_that_are_left_out_are_counted_and_said(config: SftConfig, capsys: pytest.CaptureFixture[str]) -> None:
    encoded = encode_all(config, AutoTokenizer.from_pretrained(config.model)).fitting
    most = sorted(len(sample.ids) for sample in encoded)[-2]
    fit(config.model_copy(update={"max_tokens": most, "stop_after": 1}), CPU, report=collect([]))
    said = f"1 of {len(encoded)} samples are longer than {most} tokens and are left out"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("system", [None, "Search, then answer."])
def test_the_model_carries_the_system_prompt_that_it_was_trained_with(config: SftConfig, system: str | None) -> None:
    folder = fit(config.model_copy(update={"system": system, "stop_after": 1}), CPU, report=collect([]))
    expected = system or read_samples(config.samples)[0].messages[0].content
    assert own_system(folder) == expected.strip()
