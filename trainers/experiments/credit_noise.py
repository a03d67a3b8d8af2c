"""Credit under judge noise, with the truth known (paper, theorem 3; almanac.md, experiment 4).

The policy is the almanac's scripted teacher whose faults are Bernoulli draws: its score function is known in closed
form, and each fault belongs to the stage in which it is decided. For each stage k, with Gamma_k the score function of
the stage's own decisions:

    oracle    g*_k    = sum_j matrix[k, j] E[Gamma_k Y_j]     Y: true quality
    stages    g_k     = sum_j matrix[k, j] E[Gamma_k R_j]     R: the judge's scores
    terminal  gterm_k = E[Gamma_k R_answer]

The theorem compares |g_k - g*_k| with |gterm_k - g*_k|. A terminal score also lies on another scale than g*, so the
angle to g*, which no scale can change, stands beside it.

Rollouts whose every decision is known: the almanac's teacher with faults drawn at a chance, played for real.

Run it with `rubricem theory credit`.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_agent.learn.credit import PAPER_MATRIX
from rubricem_env.domain.base import NUM_STAGES, STAGES, Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.env.step import advance
from rubricem_env.scaffold.reading import Reading
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.expert import AlmanacTeacher, Faults, Slips, draw_slips
from rubricem_env.world.judge import Evidence, criteria_of
from rubricem_env.world.questions import Question

Floats = npt.NDArray[np.float64]
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


NoiseKind = Literal["shift", "flip"]
"""How a noisy judge errs: it moves a rubric score by one, or exchanges 0 and 2.

Shifted scores shrink towards the middle and keep their order on average; with more than half of them flipped the judge
prefers the worse rollout.
"""


class ScoredGroup(NamedTuple):
    """Rollouts of one question, with their true scores by the question's criteria."""

    faults: npt.NDArray[np.bool_]
    """(rollouts, faults): which faults each rollout drew."""
    marks: npt.NDArray[np.int8]
    """(rollouts, criteria)."""
    weights: Floats
    """(criteria,)."""
    is_flaw: npt.NDArray[np.bool_]
    stages: npt.NDArray[np.int8]
    """(criteria,): the stage that each speaks of."""


class NoiseLevel(NamedTuple):
    """Both estimators at one noise level, against the oracle; one number a stage that decides anything."""

    noise: float
    stage_error: dict[str, float]
    """|g_k - g*_k| / |g*_k|."""
    terminal_error: dict[str, float]
    stage_angle: dict[str, float]
    """1 - cosine to g*_k: 0 is the same direction, 2 the opposite one."""
    terminal_angle: dict[str, float]


def stage_scores(group: ScoredGroup, marks: npt.NDArray[np.int8]) -> Floats:
    """The weighted share of each stage's criteria that is fulfilled: (rollouts, stages), in [0, 1]."""
    share = np.where(group.is_flaw, 1 - marks / 2, marks / 2)
    scores = np.zeros((len(marks), NUM_STAGES))
    for stage in range(NUM_STAGES):
        own = group.stages == stage
        scores[:, stage] = share[:, own] @ group.weights[own] / group.weights[own].sum()
    return scores


def compare_estimators(
    groups: Sequence[ScoredGroup],
    deciding: Sequence[Stage],
    *,
    kind: NoiseKind,
    noises: Sequence[float] = NOISES,
    intermediate_only: bool = False,
    chance: float,
    seed: int,
) -> list[NoiseLevel]:
    """Errors of both estimators over all rollouts, noise level by noise level.

    `deciding[f]` is the stage in which fault f, drawn at `chance`, is decided. With `intermediate_only` the scores of
    the answer stay true. Baselines are the group means, which change no expectation.

    Raises:
        UsageError: so few rollouts that the faults of a stage show no effect on any score.
    """
    owners = np.array([stage.position for stage in deciding])
    gamma = [_centred(group.faults - chance) for group in groups]
    truth = _products(gamma, [stage_scores(group, group.marks) for group in groups])
    matrix = np.array(PAPER_MATRIX)
    levels = []
    for noise in noises:
        rng = np.random.default_rng(seed)  # common random numbers: levels differ by the noise alone
        marks = [_noisy(group, noise, rng, kind=kind, spares_answer=intermediate_only) for group in groups]
        judged = [stage_scores(*pair) for pair in zip(groups, marks, strict=True)]
        levels.append(_compare(noise, truth, _products(gamma, judged), owners, matrix))
    return levels


def turnover(levels: Sequence[NoiseLevel], stage: Stage) -> float | None:
    """The first noise level at which terminal credit is the closer one; None where stage credit stays ahead."""
    for level in levels:
        if level.stage_error[stage.value] >= level.terminal_error[stage.value]:
            return level.noise
    return None


def _noisy(
    group: ScoredGroup, noise: float, rng: np.random.Generator, *, kind: NoiseKind, spares_answer: bool
) -> npt.NDArray[np.int8]:
    hit = rng.random(group.marks.shape) < noise
    up = rng.random(group.marks.shape) < 0.5
    if spares_answer:
        hit &= group.stages != Stage.ANSWER.position
    if kind == "flip":
        return np.where(hit, 2 - group.marks, group.marks).astype(np.int8)
    step = np.where((group.marks == 0) | ((group.marks == 1) & up), 1, -1)
    return (group.marks + hit * step).astype(np.int8)


def _centred(values: npt.NDArray[np.floating]) -> Floats:
    centred: Floats = (values - values.mean(axis=0)).astype(np.float64)
    return centred


def _products(gamma: Sequence[Floats], scores: Sequence[Floats]) -> Floats:
    """E[Gamma_f S_j] over all rollouts: (faults, stages)."""
    total = np.zeros((gamma[0].shape[1], NUM_STAGES))
    for own, scored in zip(gamma, scores, strict=True):
        total += own.T @ _centred(scored)
    return total / sum(len(own) for own in gamma)


def _compare(noise: float, truth: Floats, judged: Floats, owners: npt.NDArray[np.intp], matrix: Floats) -> NoiseLevel:
    level = NoiseLevel(noise, {}, {}, {}, {})
    for stage in STAGES:
        own = owners == stage.position
        if not own.any():
            continue
        row, name = matrix[stage.position], stage.value
        oracle, staged, terminal = truth[own] @ row, judged[own] @ row, judged[own][:, -1]
        if not np.any(oracle):
            raise UsageError(
                f"the faults of {name} change no score in these rollouts, so there is nothing to measure a distance "
                "by. Play more: raise --rollouts or --questions."
            )
        level.stage_error[name] = _distance(staged, oracle)
        level.terminal_error[name] = _distance(terminal, oracle)
        level.stage_angle[name] = _angle(staged, oracle)
        level.terminal_angle[name] = _angle(terminal, oracle)
    return level


def _distance(estimate: Floats, oracle: Floats) -> float:
    return float(np.linalg.norm(estimate - oracle) / np.linalg.norm(oracle))


def _angle(estimate: Floats, oracle: Floats) -> float:
    """1 - cosine; an estimate of nothing at all is at a right angle."""
    size = float(np.linalg.norm(estimate) * np.linalg.norm(oracle))
    return 1.0 - float(estimate @ oracle) / size if size > 0 else 1.0


DECIDING_STAGES = (Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.RESEARCH, Stage.ANSWER, Stage.PLAN)
"""Where each fault is decided, in the order of `fault_flags`."""


def fault_flags(slips: Slips) -> tuple[bool, ...]:
    """Which faults were drawn: skips a need, repeats, trusts the stale, claims unfound, forgets to cite, no convention."""
    return (
        bool(slips.skipped),
        slips.repeats_query,
        slips.trusts_stale,
        bool(slips.unfounded),
        slips.forgets_citation,
        slips.misses_convention,
    )


def play_groups(
    questions: Sequence[Question],
    toolbox: Toolbox,
    *,
    rollouts: int,
    chance: float,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[ScoredGroup]:
    """Play each question `rollouts` times with every fault at `chance`; marks are the true ones."""
    faults = Faults(**dict.fromkeys(Faults.model_fields, chance))
    seeds = itertools.count(seed * 1_000_003)
    groups = []
    for done, question in enumerate(questions, 1):
        slips = [draw_slips(question, faults, seed=next(seeds)) for _ in range(rollouts)]
        readings = asyncio.run(_play_all(question, slips, toolbox))
        groups.append(_marked(question, slips, readings))
        progress(done)
    return groups


async def _play_all(question: Question, slips: Sequence[Slips], toolbox: Toolbox) -> list[Reading]:
    """One whole episode of the teacher for each draw of faults."""

    async def play(drawn: Slips) -> Reading:
        teacher, episode, observations = AlmanacTeacher(question, drawn), Episode(query_of(question)), list[str]()
        while not isinstance(reply := await advance(episode, toolbox, teacher.turn(observations)), Finished):
            observations.append(reply.observation)
        return episode.read()

    return list(await asyncio.gather(*(play(drawn) for drawn in slips)))


def _marked(question: Question, slips: Sequence[Slips], readings: Sequence[Reading]) -> ScoredGroup:
    criteria = criteria_of(question)
    evidence = [Evidence.of(reading) for reading in readings]
    return ScoredGroup(
        faults=np.array([fault_flags(drawn) for drawn in slips]),
        marks=np.array([[mark(seen) for mark in criteria.values()] for seen in evidence], dtype=np.int8),
        weights=np.array([rubric.weight for rubric in criteria]),
        is_flaw=np.array([rubric.polarity == "negative" for rubric in criteria]),
        stages=np.array([rubric.stage.position for rubric in criteria], dtype=np.int8),
    )


def run(terminal: Terminal, *, rollouts: int, questions: int, chance: float, seed: int) -> None:
    """Measure both estimators at each noise level of each setting, and print the tables and the turnovers."""
    train = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:questions]
    with terminal.bar("playing the questions", len(train)) as advance_bar:
        groups = play_groups(
            train, shipped_toolbox(), rollouts=rollouts, chance=chance, seed=seed, progress=lambda _: advance_bar(1)
        )
    rows = []
    verdicts = []
    for kind, only in itertools.product(get_args(NoiseKind), (False, True)):
        levels = compare_estimators(
            groups, DECIDING_STAGES, kind=kind, intermediate_only=only, chance=chance, seed=seed
        )
        name = f"{kind} noise on {'intermediate stages' if only else 'all stages'}"
        _show_levels(name, levels, terminal)
        setting = {"kind": kind, "noises": NOISES, "intermediate_only": only, "chance": chance, "seed": seed}
        rows.append({**setting, "levels": [level._asdict() for level in levels]})
        verdicts += [f"{name}: {line}" for line in _verdicts(levels)]
    terminal.close(
        rows,
        {"questions": len(train), "rollouts of each": rollouts, "chance of a fault": chance, "seed": seed},
        brief="\n".join(verdicts),
    )


def _show_levels(name: str, levels: list[NoiseLevel], terminal: Terminal) -> None:
    names = [stage for stage in STAGES if stage.value in levels[0].stage_error]
    heads = [f"{stage.value} {what}" for stage in names for what in ("distance", "angle")]
    table = plain_table("noise", *heads)
    table.title = f"{name}: stages | terminal"
    for level in levels:
        cells = []
        for stage in names:
            name = stage.value
            cells.append(f"{level.stage_error[name]:.2f} | {level.terminal_error[name]:.2f}")
            cells.append(f"{level.stage_angle[name]:.2f} | {level.terminal_angle[name]:.2f}")
        table.add_row(f"{level.noise:.1f}", *cells)
    terminal.show(table, *(f"  {line}" for line in _verdicts(levels)))


def _verdicts(levels: list[NoiseLevel]) -> list[str]:
    """For each stage but the last, at which both estimators are the same."""
    names = [stage for stage in STAGES if stage.value in levels[0].stage_error]
    lines = []
    for stage in names[:-1]:
        at = turnover(levels, stage)
        closer = (
            "stage credit is closer throughout" if at is None else f"terminal credit is as close from noise {at:.1f} on"
        )
        lines.append(f"{stage.value}: {closer}")
    return lines
