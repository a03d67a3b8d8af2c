"""Makes the tiny policy: traces of the almanac's expert, a small Qwen3 with its tokenizer, pretraining and SFT.

    python trainers/experiments/tiny_policy.py --config configs/tiny_policy.yaml [num_worlds=4 ...]

The traces go through the pipeline of any teacher: rounds, rejection, normalisation, ChatML with loss spans.
The result should nearly always write a valid scaffold, with about half of the answers right.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from transformers import Qwen3Config, Qwen3ForCausalLM

from rubricem_agent.data.chatml import ChatSample, write_samples
from rubricem_agent.data.filter import harvest, normalize
from rubricem_agent.data.generate import Generation, TeacherTask, Trace
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_agent.files import LineFile
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.domain.trajectory import Query
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.entities import Split
from rubricem_env.world.expert import Faults, Lesson, lesson_after
from rubricem_env.world.judge import Evidence
from rubricem_env.world.questions import Question
from trainers.experiments.tiny_pretraining import (
    PretrainingWorld,
    evaluate_policy,
    pretrain,
    reading_tasks,
    references_for,
    reflection_sample,
    train_tokenizer,
)
from trainers.settings import make_out, read_command, run_command
from trainers.sft import run
from trainers.sft_parts.launch import OneProcess
from trainers.sft_parts.settings import SftConfig

Count = Annotated[int, Field(ge=1)]
READING_PAGES, READING_BATCH = 2, 16


class TinyConfig(Frozen):
    """How the tiny policy is made."""

    out: Path
    seed: int = 0
    system: str
    """The system prompt of every trace: short, because the policy's context is."""
    reflection_system: str
    """That of every reflection."""
    flat: bool = False
    """Think-and-act traces instead of the scaffold."""
    num_worlds: Count
    first_world: int
    faults: Faults
    guided: UnitScore
    """The share of samples with lessons of an earlier attempt, as the rubric bank shows them."""
    vocabulary: Count
    hidden_size: Count
    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate_size: Count
    reflecting: UnitScore
    """The share of traces with a reflection, whose prompt is the attempt."""
    overlooking: UnitScore
    """The probability that such a reflection overlooks a fault: RL should learn to judge its own work, too."""
    drills_per_world: Count
    """Reading tasks of the pretraining: a page or two each, then facts from them."""
    drill_learning_rate: float
    epochs: Count
    learning_rate: float
    warmup_share: UnitScore = 0.05
    batch_size: Count
    max_tokens: Count
    exam_questions: Count
    """Questions of the evaluation at the end."""
    exam_split: Split


def teach(trace: Trace, world: PretrainingWorld, *, overlooking: float, rng: np.random.Generator) -> Lesson:
    """The scripted lesson on an attempt; each fault is overlooked with the given probability."""
    seen = Evidence.of(read_trajectory(normalize(trace.trajectory)))
    return lesson_after(world.questions[trace.task.id], seen, overlooks=lambda remark: rng.random() < overlooking)


def make_samples(config: TinyConfig) -> list[ChatSample]:
    """Write samples.jsonl and the report of rejected traces.

    For each world: first attempts, the lessons on them, then attempts that follow the lessons.
    """
    alone: list[Trace] = []
    guided: list[Trace] = []
    references: dict[str, str] = {}
    reflections = []
    rng = np.random.default_rng([config.seed, 1])
    # An attempt with references always follows the convention, so that the policy learns to use references.
    guided_config = config.model_copy(update={"faults": config.faults.model_copy(update={"miss_convention": 0.0})})
    for number in range(config.first_world, config.first_world + config.num_worlds):
        world = PretrainingWorld.from_seed(number, guided=config.guided, seed=config.seed)
        first = write_traces(config, world, questions=world.questions, name=f"world-{number}")
        lessons = {trace.task.id: teach(trace, world, overlooking=config.overlooking, rng=rng) for trace in first}
        alone += [trace for trace in first if trace.task.id in world.alone]
        guided += write_traces(guided_config, world, questions=world.guided, name=f"world-{number}-guided")
        references |= references_for(world, first, lessons, rng=rng)
        reflections += [
            reflection_sample(trace, lessons[trace.task.id], system=config.reflection_system)
            for trace in first
            if rng.random() < config.reflecting
        ]
    prompt = AgentPrompt(config.system, prompt_from_text("tiny", config.system).hash)

    def user_text(query: Query) -> str:
        return prompt.opening(query, references=references.get(query.source, "")).user

    samples: list[ChatSample] = []
    reports = {}
    for name, traces in (("alone", alone), ("guided", guided)):
        harvested = harvest(traces, system=config.system, user=user_text, teacher="scripted", flat=config.flat)
        samples += harvested.samples
        reports[name] = harvested.report.model_dump(mode="json")
    samples += reflections
    write_samples(config.out / "samples.jsonl", samples)
    (config.out / "rejections.json").write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    return samples


def write_traces(
    config: TinyConfig, world: PretrainingWorld, *, questions: Mapping[str, Question], name: str
) -> list[Trace]:
    """The expert's traces of some questions of a world, through a journal."""
    teacher = ScriptedTeacher(questions, faults=config.faults, seed=config.seed, flat=config.flat)
    journal = LineFile(config.out / "journals" / f"{name}.jsonl")
    generation = Generation(teacher, world.toolbox, journal=journal, together=max(1, len(questions)))
    tasks = [TeacherTask(task, world.query(task)) for task in questions]
    return asyncio.run(generation.run(tasks))


def make_policy(config: TinyConfig, samples: Sequence[ChatSample]) -> Path:
    """The untrained model with its tokenizer, as transformers loads them."""
    texts = (message.content for sample in samples for message in sample.messages)
    tokenizer: Any = train_tokenizer(texts, vocabulary=config.vocabulary, max_tokens=config.max_tokens)
    torch.manual_seed(config.seed)
    shape = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=2 * config.max_tokens,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    folder = config.out / "untrained"
    model: Any = Qwen3ForCausalLM(shape)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def pretrain_reading(config: TinyConfig, base: Path) -> Path:
    """Pretrain the model on reading tasks; returns its folder."""
    rng = np.random.default_rng([config.seed, 2])
    samples = [
        sample
        for number in range(config.first_world, config.first_world + config.num_worlds)
        for sample in reading_tasks(
            Almanac.from_seed(number), split="train", count=config.drills_per_world, most_pages=READING_PAGES, rng=rng
        )
    ]
    write_samples(config.out / "drills.jsonl", samples)
    return pretrain(
        base,
        samples,
        out=config.out / "drilled",
        batch_size=READING_BATCH,
        learning_rate=config.drill_learning_rate,
        seed=config.seed,
    )


def train(config: TinyConfig, base: Path) -> Path:
    """Fine-tune with `trainers/sft.py`; returns the folder of the model."""
    settings = SftConfig(
        model=str(base),
        samples=config.out / "samples.jsonl",
        out=config.out / "sft",
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        warmup_share=config.warmup_share,
        batch_size=config.batch_size,
        max_tokens=config.max_tokens,
        # Short samples on a CPU: attention over a packed row costs more than the packing saves.
        packing=False,
        seed=config.seed,
    )
    run(settings, OneProcess.here(settings.precision))
    return settings.out / "model"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, train and evaluate the tiny policy. A user error gives exit code 2 and one sentence on stderr."""

    def make() -> None:
        config = read_command(
            arguments,
            TinyConfig,
            prog="python trainers/experiments/tiny_policy.py",
            description="Make the tiny policy.",
        )
        make_out(config.out)
        model = train(config, pretrain_reading(config, make_policy(config, make_samples(config))))
        scores = asyncio.run(
            evaluate_policy(model, system=config.system, split=config.exam_split, num_questions=config.exam_questions)
        )
        (config.out / "exam.json").write_text(json.dumps(scores._asdict(), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{scores.sentence}\n")

    return run_command("tiny_policy", make)


if __name__ == "__main__":
    sys.exit(main())
