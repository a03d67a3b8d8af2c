"""Samples to fine-tune a policy on, written by the almanac's expert: attempts, attempts with lessons, reflections.

    python -m research.almanac_traces --config NAME [num_worlds=4 ...]

The expert's faults are strategy alone, so that RL can improve on them. The traces go through the pipeline of any
teacher: rounds, rejection, normalisation, ChatML with loss spans.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from research import tiny_pretraining
from research.sample_command import SampleSettings, run_sample_command
from rubricem_agent.data.base import TeacherTask, Trace
from rubricem_agent.data.chatml import ChatSample, write_samples
from rubricem_agent.data.filter import harvest, normalize
from rubricem_agent.data.generate import Generation
from rubricem_agent.data.teacher import ScriptedTeacher
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.domain.base import PositiveCount, UnitScore
from rubricem_env.domain.trajectory import Query
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.world.expert_faults import Faults
from rubricem_env.world.judge import Evidence
from rubricem_env.world.lessons import Lesson, lesson_after
from rubricem_env.world.questions import Question
from rubricem_records.files.line_file import LineFile


class TraceConfig(SampleSettings):
    """What the expert writes."""

    seed: int = 0
    system: str
    """The system prompt of every trace: short, because the policy's context is."""
    reflection_system: str
    """That of every reflection."""
    flat: bool = False
    """Think-and-act traces instead of the scaffold."""
    num_worlds: PositiveCount
    first_world: int
    faults: Faults
    guided: UnitScore
    """The share of samples with lessons of an earlier attempt, as the rubric bank shows them."""
    reflecting: UnitScore
    """The share of traces with a reflection, whose prompt is the attempt."""
    overlooking: UnitScore
    """The probability that such a reflection overlooks a fault: RL should learn to judge its own work, too."""


def teach(
    trace: Trace, world: tiny_pretraining.PretrainingWorld, *, overlooking: float, rng: np.random.Generator
) -> Lesson:
    """The scripted lesson on an attempt; each fault is overlooked with the given probability."""
    seen = Evidence.of(parse_trajectory(normalize(trace.trajectory)))
    return lesson_after(world.questions[trace.task.id], seen, overlooks=lambda remark: rng.random() < overlooking)


def make_samples(config: TraceConfig) -> list[ChatSample]:
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
        world = tiny_pretraining.PretrainingWorld.from_seed(number, guided=config.guided, seed=config.seed)
        first = write_traces(config, world, questions=world.questions, name=f"world-{number}")
        lessons = {trace.task.id: teach(trace, world, overlooking=config.overlooking, rng=rng) for trace in first}
        alone += [trace for trace in first if trace.task.id in world.alone]
        guided += write_traces(guided_config, world, questions=world.guided, name=f"world-{number}-guided")
        references |= tiny_pretraining.references_for(world, first, lessons, rng=rng)
        reflections += [
            tiny_pretraining.reflection_sample(trace, lessons[trace.task.id], system=config.reflection_system)
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
    config: TraceConfig, world: tiny_pretraining.PretrainingWorld, *, questions: Mapping[str, Question], name: str
) -> list[Trace]:
    """The expert's traces of some questions of a world, through a journal."""
    teacher = ScriptedTeacher(questions, faults=config.faults, seed=config.seed, world=name, flat=config.flat)
    journal = LineFile(config.out / "journals" / f"{name}.jsonl")
    generation = Generation(teacher, world.toolbox, journal=journal, together=max(1, len(questions)))
    tasks = [TeacherTask(task, world.query(task)) for task in questions]
    return asyncio.run(generation.run(tasks))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the samples. A user error gives exit code 2 and one sentence on stderr."""
    return run_sample_command("almanac_traces", arguments, TraceConfig, make_samples)


if __name__ == "__main__":
    sys.exit(main())
