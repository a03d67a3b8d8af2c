"""What judges, remembers and reflects in a run on veRL, put together from its settings."""

import asyncio
import time
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.judge import build_judge
from rubricem_agent.build.memory import build_bank, build_injector
from rubricem_agent.learn.deferred import Timing
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.pretrained import load_tokenizer
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_env.judge.base import Judge
from rubricem_env.judge.buffer import RubricBuffer
from rubricem_env.judge.reflecting import ReflectionJudge
from rubricem_env.judge.step import StepJudge
from rubricem_env.world.jsonl import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge
from rubricem_env.world.questions import Question
from trainers.run_seed import with_run_seed
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.settings import VerlSettings


class DeskParts(NamedTuple):
    """Everything that the desk works with, but for the engine that reflections are drawn from."""

    settings: VerlSettings
    group_size: int
    tokenizer: PolicyTokenizer
    judge: StepJudge
    reflection_judge: ReflectionJudge
    bank: RubricBank
    injector: Injector
    almanac: dict[str, Question]
    timing: Timing


def make_desk_parts(settings: VerlSettings, *, model: Path, group_size: int) -> DeskParts:
    """Build everything, at its beginning.

    Raises:
        ConfigError: a setting names what there is not, or the model's folder has no tokenizer.
        MissingExtraError: a package that a setting needs is not installed.
    """
    settings = with_run_seed(settings, settings.seed)
    tokenizer = load_tokenizer(model)
    judge, reflection_judge = _judges(settings)
    return DeskParts(
        settings=settings,
        group_size=group_size,
        tokenizer=tokenizer,
        judge=StepJudge(judge, RubricBuffer(), settings=settings.judge.settings),
        reflection_judge=reflection_judge,
        bank=build_bank(settings.bank),
        injector=build_injector(settings.bank, tokenizer.count),
        almanac=load_training_questions(settings).almanac,
        timing=Timing(time.monotonic, asyncio.sleep),
    )


def _judges(settings: VerlSettings) -> tuple[Judge, ReflectionJudge]:
    if settings.almanac is not None:
        questions = load_questions(shipped_questions_path())
        judge = AlmanacJudge(questions, knobs=settings.almanac.knobs, seed=settings.seed)
        return judge, judge
    built = build_judge(settings.judge)
    return built.judge, built.reflection_judge
