"""The tiny policy, from nothing: the almanac's expert writes, a small Qwen3 and its tokenizer are made, SFT trains it.

    python trainers/experiments/tiny_policy.py --config configs/tiny_policy.yaml [num_worlds=4 ...]

The traces go through the pipeline of any teacher: rounds, rejection, normalisation, ChatML with loss spans.
It should come out disciplined but mediocre: the scaffold nearly always valid, the answers about half right.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from transformers import Qwen3Config, Qwen3ForCausalLM

from rubricem_agent.data.chatml import ChatSample, write_samples
from rubricem_agent.data.filter import SampleContext, TraceFilter, harvest, normalize
from rubricem_agent.data.generate import Generation, TeacherTask, TeachJournal, Trace
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.entities import Split
from rubricem_env.world.expert import Faults, Lesson, lesson_after
from rubricem_env.world.judge import Evidence
from rubricem_env.world.questions import Question
from trainers.experiments.tiny_pretraining import (
    School,
    drills_of,
    hold_exam,
    practise,
    references_for,
    reflection_sample,
    train_tokenizer,
)
from trainers.settings import make_out, read_settings
from trainers.sft import run
from trainers.sft_parts.launch import OneProcess
from trainers.sft_parts.settings import SftConfig

Count = Annotated[int, Field(ge=1)]
DRILL_PAGES, DRILL_BATCH = 2, 16


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
    """The share of samples that come with lessons of an earlier attempt, as the rubric bank offers them."""
    vocabulary: Count
    hidden_size: Count
    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate_size: Count
    reflecting: UnitScore
    """The share of traces on which a reflection is written, with the attempt as its prompt."""
    overlooking: UnitScore
    """The chance that such a reflection overlooks a fault: judging the own work is left for RL to learn, too."""
    drills_per_world: Count
    """Before fine-tuning: a page or two each, and what they say."""
    drill_learning_rate: float
    epochs: Count
    learning_rate: float
    warmup_share: UnitScore = 0.05
    batch_size: Count
    max_tokens: Count
    exam_questions: Count
    exam_split: Split


class PretrainingLessons(NamedTuple):
    """What the school has written: attempts of its own, attempts with references, and a lesson on each first attempt."""

    alone: list[Trace]
    guided: list[Trace]
    references: dict[str, str]
    """By the source of a guided query."""
    learnt: list[tuple[Trace, Lesson]]


def hold_lessons(config: TinyConfig) -> PretrainingLessons:
    """All worlds of the school: first attempts, the lessons on them, then the attempts that heed the lessons."""
    held = PretrainingLessons([], [], {}, [])
    rng = np.random.default_rng([config.seed, 1])
    # Who is told of the convention follows it: so the policy learns what references are for.
    heeding = config.model_copy(update={"faults": config.faults.model_copy(update={"miss_convention": 0.0})})
    for number in range(config.first_world, config.first_world + config.num_worlds):
        school = School.of_world(number, guided=config.guided, seed=config.seed)
        first = write_traces(config, school, questions=school.questions, name=f"world-{number}")
        learnt = {trace.task.id: teach(trace, school, overlooking=config.overlooking, rng=rng) for trace in first}
        held.alone.extend(trace for trace in first if trace.task.id in school.alone)
        held.guided.extend(write_traces(heeding, school, questions=school.guided, name=f"world-{number}-guided"))
        held.references.update(references_for(school, first, learnt, rng=rng))
        held.learnt.extend((trace, learnt[trace.task.id]) for trace in first if rng.random() < config.reflecting)
    return held


def teach(trace: Trace, school: School, *, overlooking: float, rng: np.random.Generator) -> Lesson:
    """The scripted lesson on an attempt; each fault is overlooked with the given chance."""
    seen = Evidence.of(read_trajectory(normalize(trace.trajectory)))
    return lesson_after(school.questions[trace.task.id], seen, overlooks=lambda remark: rng.random() < overlooking)


def make_samples(config: TinyConfig) -> list[ChatSample]:
    """Write samples.jsonl, and the report of what was rejected."""
    held = hold_lessons(config)
    prompt = AgentPrompt(config.system, prompt_from_text("tiny", config.system).hash)
    keep = TraceFilter(flat=config.flat)
    alone = harvest(
        held.alone, SampleContext(config.system, lambda query: prompt.opening(query).user, "scripted"), keep=keep
    )
    told = SampleContext(
        config.system, lambda query: prompt.opening(query, references=held.references[query.source]).user, "scripted"
    )
    guided = harvest(held.guided, told, keep=keep)
    reflections = [reflection_sample(trace, lesson, system=config.reflection_system) for trace, lesson in held.learnt]
    samples = [*alone.samples, *guided.samples, *reflections]
    write_samples(config.out / "samples.jsonl", samples)
    reports = {"alone": alone.report.model_dump(mode="json"), "guided": guided.report.model_dump(mode="json")}
    (config.out / "rejections.json").write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    return samples


def write_traces(config: TinyConfig, school: School, *, questions: Mapping[str, Question], name: str) -> list[Trace]:
    """The expert's traces of some questions of a world, by way of a journal."""
    teacher = ScriptedTeacher(questions, faults=config.faults, seed=config.seed, flat=config.flat)
    journal = TeachJournal(config.out / "journals" / f"{name}.jsonl")
    generation = Generation(teacher, school.toolbox, journal=journal, together=max(1, len(questions)))
    tasks = [TeacherTask(task, school.query(task)) for task in questions]
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


def drill(config: TinyConfig, base: Path) -> Path:
    """The model after its reading drills; returns its folder."""
    rng = np.random.default_rng([config.seed, 2])
    drills = [
        one
        for number in range(config.first_world, config.first_world + config.num_worlds)
        for one in drills_of(
            Almanac.from_seed(number), split="train", count=config.drills_per_world, most_pages=DRILL_PAGES, rng=rng
        )
    ]
    write_samples(config.out / "drills.jsonl", drills)
    return practise(
        base,
        drills,
        out=config.out / "drilled",
        batch_size=DRILL_BATCH,
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
    """Make, train and examine the tiny policy; 2 and one sentence on stderr for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python trainers/experiments/tiny_policy.py", description="Make the tiny policy."
    )
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args(arguments)
    try:
        config = read_settings(chosen.config, TinyConfig, changes=chosen.changes)
        make_out(config.out)
        model = train(config, drill(config, make_policy(config, make_samples(config))))
        grades = asyncio.run(
            hold_exam(model, system=config.system, split=config.exam_split, num_questions=config.exam_questions)
        )
        (config.out / "exam.json").write_text(json.dumps(grades._asdict(), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{grades.sentence}\n")
    except RubricEMError as mistake:
        sys.stderr.write(f"tiny_policy: {mistake}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
