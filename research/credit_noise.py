"""Compares credit methods on frozen rollouts whose true credit is known (the paper's theorem 3; almanac.md, 4).

The policy is the almanac's scripted teacher whose faults are Bernoulli draws, each decided in one stage. What stage k
deserves in rollout i is what its own decisions did to the true quality Y, with the others' left to chance:

    credit[i, k] = sum_{f of k} effect[f, k] (x_if - mean x_f)     effect: least squares of the target on the faults
    target       = sum_{j >= k} Y_j (`process`), or Y_answer (`answer`); question by question

A noisy judge scores the rollouts once, and all methods read its scores. Three figures compare their advantages A with
the credit. The first is the correlation over rollouts and stages. The second is the angle, 1 - cosine, between two
gradients for the chances of the faults: that of one step of eight groups of eight, and that which the credit gives over
all rollouts. The third is the share of A with the wrong sign. None depends on the scale of A.

IGPO reads no policy here: the gain of a turn is the share of needs whose page it was the first to show, which is what a
policy that reads would measure.

    python -m research.credit_noise [--rollouts 32] [--questions 72] [--chance 0.3] [--seeds 1]
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import typer

from rubricem_agent.cli.command import command, run_command
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_agent.learn.credit import PAPER_MATRIX, assign_credit
from rubricem_agent.learn.credit_methods import METHODS, CreditMode
from rubricem_env.domain.base import NUM_STAGES, STAGES, Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Origin
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.step import advance
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.expert_faults import Faults, Slips, draw_slips
from rubricem_env.world.judge import Evidence, criteria_of
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_env.world.questions import Question
from rubricem_records.rollouts.stage_lookup import stage_lookup

Floats = npt.NDArray[np.float64]
NOISES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
GROUP, STEP = 8, 64
"""Rollouts of a group, and of a step."""
NoiseKind = Literal["shift", "flip"]
"""How a noisy judge errs: it moves a score by one, or exchanges 0 and 2.

Shifted scores shrink towards the middle and keep their order on average; with more than half of them flipped the judge
prefers the worse rollout.
"""
Target = Literal["process", "answer"]
UPPER_ONES = np.triu(np.ones((NUM_STAGES, NUM_STAGES)))
CONTESTANTS: Mapping[str, tuple[CreditMode, npt.ArrayLike]] = {
    **{mode: (mode, PAPER_MATRIX) for mode in METHODS},
    "stages, identity": ("stages", np.eye(NUM_STAGES)),
    "stages, upper ones": ("stages", UPPER_ONES),
}
"""The methods, and two settings of the matrix."""
DECIDING_STAGES = (Stage.PLAN, Stage.RESEARCH, Stage.RESEARCH, Stage.RESEARCH, Stage.ANSWER, Stage.PLAN)
"""Where each fault is decided, in the order of `fault_flags`."""


class ScoredGroup(NamedTuple):
    """Rollouts of one question, with their true scores by the question's criteria."""

    faults: npt.NDArray[np.bool_]
    """(rollouts, faults): which faults each rollout drew."""
    rubric_scores: npt.NDArray[np.int8]
    """(rollouts, criteria)."""
    weights: Floats
    """(criteria,)."""
    is_flaw: npt.NDArray[np.bool_]
    stages: npt.NDArray[np.int8]
    """(criteria,): the stage that each speaks of."""
    words: Sequence[npt.NDArray[np.int64]]
    """For each rollout, (turns, stages): what the policy wrote, counted as the methods count tokens."""
    shares: Sequence[Sequence[float]]
    """For each rollout, the share of needs whose page was shown before each turn."""


class CreditComparison(NamedTuple):
    """A method at one noise level, against the true credit."""

    correlation: float
    angle: float
    """1 - cosine: 0 is the same direction, 2 the opposite one; a mean over steps."""
    wrong_sign: float
    """The share of stages that deserve credit or blame and get the other."""


def stage_scores(group: ScoredGroup, rubric_scores: npt.NDArray[np.int8]) -> Floats:
    """The weighted share of each stage's criteria that is fulfilled: (rollouts, stages), in [0, 1]."""
    share = np.where(group.is_flaw, 1 - rubric_scores / 2, rubric_scores / 2)
    scores = np.zeros((len(rubric_scores), NUM_STAGES))
    for stage in range(NUM_STAGES):
        own = group.stages == stage
        scores[:, stage] = share[:, own] @ group.weights[own] / group.weights[own].sum()
    return scores


def true_credit(group: ScoredGroup, deciding: Sequence[Stage], target: Target) -> Floats:
    """(rollouts, stages): what each stage's decisions did to the target."""
    truth = stage_scores(group, group.rubric_scores)
    wanted = truth @ UPPER_ONES.T if target == "process" else truth[:, -1:].repeat(NUM_STAGES, axis=1)
    drawn = _centred(group.faults)
    effects = np.linalg.lstsq(drawn, _centred(wanted), rcond=None)[0]
    owners = np.array([stage.position for stage in deciding])
    credit: Floats = drawn @ (effects * (owners[:, None] == np.arange(NUM_STAGES)))
    return credit


def noisy_scores(
    group: ScoredGroup, noise: float, rng: np.random.Generator, *, kind: NoiseKind, spares_answer: bool = False
) -> npt.NDArray[np.int8]:
    """The scores of a judge that errs in this share of them; with `spares_answer` those of the answer stay true."""
    hit = rng.random(group.rubric_scores.shape) < noise
    up = rng.random(group.rubric_scores.shape) < 0.5
    if spares_answer:
        hit &= group.stages != Stage.ANSWER.position
    if kind == "flip":
        return np.where(hit, 2 - group.rubric_scores, group.rubric_scores).astype(np.int8)
    step = np.where((group.rubric_scores == 0) | ((group.rubric_scores == 1) & up), 1, -1)
    return (group.rubric_scores + hit * step).astype(np.int8)


def compare_methods(
    groups: Sequence[ScoredGroup],
    deciding: Sequence[Stage],
    *,
    kind: NoiseKind,
    target: Target = "process",
    noises: Sequence[float] = NOISES,
    intermediate_only: bool = False,
    chance: float,
    seed: int,
) -> dict[float, dict[str, CreditComparison]]:
    """Every method at every noise level. `deciding[f]` is the stage in which fault f, drawn at `chance`, is decided.

    Raises:
        UsageError: so few rollouts that no fault shows an effect on the target.
    """
    rng = np.random.default_rng(seed)
    # Groups of all questions in turn, so that a step has as many questions as it can.
    sizes = [len(group.faults) for group in groups]
    order = np.argsort(np.concatenate([np.arange(size) // GROUP for size in sizes]), kind="stable")
    members = np.concatenate([place * 10_000 + np.arange(size) // GROUP for place, size in enumerate(sizes)])
    credit = np.concatenate([true_credit(group, deciding, target) for group in groups])
    if not np.abs(credit).max() > 0:
        raise UsageError(
            "the faults change no score in these rollouts, so there is no credit to compare with. Play more: raise "
            "--rollouts or --questions."
        )
    gamma = np.concatenate([group.faults for group in groups]) - chance
    owners = [stage.position for stage in deciding]
    oracle = np.sum(gamma * credit[:, owners], axis=0)
    tokens = _pad([words for group in groups for words in group.words], np.zeros((1, NUM_STAGES), dtype=np.int64))
    gains = _pad([np.diff(np.array(shares)) for group in groups for shares in group.shares], np.full(1, np.nan))
    gains = np.concatenate([gains, np.full((len(gains), tokens.shape[1] - gains.shape[1]), np.nan)], axis=1)
    levels: dict[float, dict[str, CreditComparison]] = {}
    draws = rng.integers(2**32, size=len(groups))  # common random numbers: levels differ by the noise alone
    for noise in noises:
        dice = [np.random.default_rng(draw) for draw in draws]
        rubric_scores = [
            noisy_scores(group, noise, die, kind=kind, spares_answer=intermediate_only)
            for group, die in zip(groups, dice, strict=True)
        ]
        scores = np.concatenate([stage_scores(*pair) for pair in zip(groups, rubric_scores, strict=True)])
        levels[noise] = {}
        for name, (mode, matrix) in CONTESTANTS.items():
            given = assign_credit(
                scores, groups=members, mode=mode, matrix=matrix, tokens=tokens, gains=gains
            ).advantages
            pushed = (gamma * given[:, owners])[order]
            steps = [pushed[first : first + STEP].sum(axis=0) for first in range(0, len(pushed), STEP)]
            angle = float(np.mean([_angle(step, oracle) for step in steps]))
            deserves = np.abs(credit) > 1e-9
            wrong = float(np.mean((given * credit < 0)[deserves]))
            levels[noise][name] = CreditComparison(1.0 - _angle(_centred(given).ravel(), credit.ravel()), angle, wrong)
    return levels


def turnover(levels: Mapping[float, Mapping[str, CreditComparison]]) -> float | None:
    """The first noise level at which answer-only credit points at least as well as SS-GRPO; None where none does."""
    for noise, methods in levels.items():
        if methods["stages"].angle >= methods["answer_only"].angle:
            return noise
    return None


def _centred(values: npt.NDArray[np.generic]) -> Floats:
    numbers: Floats = values.astype(np.float64)
    centred: Floats = numbers - numbers.mean(axis=0)
    return centred


def _angle(estimate: Floats, oracle: Floats) -> float:
    """1 - cosine; an estimate of nothing at all is at a right angle."""
    size = float(np.linalg.norm(estimate) * np.linalg.norm(oracle))
    return 1.0 - float(estimate @ oracle) / size if size > 0 else 1.0


def _pad(rows: Sequence[npt.NDArray[np.generic]], fill: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    most = max(map(len, rows))
    return np.stack([np.concatenate([row, fill.repeat(most - len(row), axis=0)]) for row in rows])


def fault_flags(slips: Slips) -> tuple[bool, ...]:
    """Which faults were drawn: needs skipped, repeats, stale pages, unfound claims, citations or conventions missed."""
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
    """Play each question `rollouts` times with every fault at `chance`; rubric scores are the true ones."""
    faults = Faults(**dict.fromkeys(Faults.model_fields, chance))
    seeds = itertools.count(seed * 1_000_003)
    groups = []
    for done, question in enumerate(questions, 1):
        slips = [draw_slips(question, faults, seed=next(seeds)) for _ in range(rollouts)]
        readings = asyncio.run(_play_all(question, slips, toolbox))
        groups.append(_scored(question, slips, readings))
        progress(done)
    return groups


async def _play_all(question: Question, slips: Sequence[Slips], toolbox: Toolbox) -> list[ParsedTrajectory]:
    """One whole episode of the teacher for each draw of faults."""

    async def play(drawn: Slips) -> ParsedTrajectory:
        teacher, episode, observations = AlmanacTeacher(question, drawn), Episode(query_of(question)), list[str]()
        while not isinstance(reply := await advance(episode, toolbox, teacher.turn(observations)), Finished):
            observations.append(reply.observation)
        return episode.read()

    return list(await asyncio.gather(*(play(drawn) for drawn in slips)))


def _scored(question: Question, slips: Sequence[Slips], readings: Sequence[ParsedTrajectory]) -> ScoredGroup:
    criteria = criteria_of(question)
    evidence = [Evidence.of(parsed) for parsed in readings]
    return ScoredGroup(
        faults=np.array([fault_flags(drawn) for drawn in slips]),
        rubric_scores=np.array(
            [[true_score(seen) for true_score in criteria.values()] for seen in evidence], dtype=np.int8
        ),
        weights=np.array([rubric.weight for rubric in criteria]),
        is_flaw=np.array([rubric.polarity == "negative" for rubric in criteria]),
        stages=np.array([STAGES.index(rubric.stage) for rubric in criteria], dtype=np.int8),
        words=[count_words(parsed) for parsed in readings],
        shares=[shown_shares(question, parsed) for parsed in readings],
    )


def count_words(parsed: ParsedTrajectory) -> npt.NDArray[np.int64]:
    """(turns, stages): the words of the policy."""
    stage_at, begins = stage_lookup(parsed.spans), 0
    counts = np.zeros((len(parsed.turns), NUM_STAGES), dtype=np.int64)
    for number, turn in enumerate(parsed.turns):
        for word in re.finditer(r"\S+", turn.text):
            counts[number, STAGES.index(stage_at(begins + word.start()))] += 1
        begins += len(turn.text)
    return counts


def shown_shares(question: Question, parsed: ParsedTrajectory) -> list[float]:
    """Before each turn, the share of needs and conventions of which a tool has shown a page."""
    needs = [need.document_ids for need in question.truth.needs]
    needs += [duty.document_ids or duty.convention_ids for duty in question.truth.implicit_needs]
    shares, seen = list[float](), ""
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.POLICY:
            shares.append(sum(any(f"/{page}\n" in seen for page in pages) for pages in needs) / len(needs))
        elif segment.origin is Origin.TOOL:
            seen += segment.text
    return shares


@command
def credit_noise(
    terminal: Terminal,
    rollouts: Annotated[int, typer.Option(min=2, help="Rollouts of each question.")] = 32,
    questions: Annotated[int, typer.Option(min=1, help="Training questions to play.")] = 72,
    chance: Annotated[float, typer.Option(min=0.01, max=0.99, help="The chance of each fault.")] = 0.3,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of faults and noise, from 0.")] = 1,
) -> None:
    """Compare every credit method with the true credit of each stage as the judge gets noisier."""
    train = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:questions]
    settings = list(itertools.product(get_args(NoiseKind), (False, True), get_args(Target)))
    comparisons: dict[tuple[NoiseKind, bool, Target], list[dict[float, dict[str, CreditComparison]]]] = {
        setting: [] for setting in settings
    }
    with terminal.bar("playing the questions", len(train) * seeds) as advance_bar:
        for seed in range(seeds):
            groups = play_groups(
                train, shipped_toolbox(), rollouts=rollouts, chance=chance, seed=seed, progress=lambda _: advance_bar(1)
            )
            for kind, only, target in settings:
                drawn = {"chance": chance, "seed": seed, "target": target, "intermediate_only": only}
                comparisons[kind, only, target].append(compare_methods(groups, DECIDING_STAGES, kind=kind, **drawn))
    rows, verdicts = [], []
    for (kind, only, target), runs in comparisons.items():
        name = f"{kind} noise on {'intermediate stages' if only else 'all stages'}, credit for the {target}"
        table = plain_table("method", *(f"noise {noise:g}" for noise in NOISES))
        table.title = f"{name}: correlation, angle of a step, wrong sign"
        for method in CONTESTANTS:
            means = [np.mean([run[noise][method] for run in runs], axis=0).tolist() for noise in NOISES]
            table.add_row(method, *(f"{right:.2f} {angle:.2f} {wrong:.0%}" for right, angle, wrong in means))
        ends = [f"{end:g}" for end in map(turnover, runs) if end is not None]
        verdict = f"answer-only credit is as close to the true credit as SS-GRPO in {len(ends)} of {seeds} seeds"
        terminal.show(table, f"  {verdict}" + f", from noise {', '.join(ends)} on" * bool(ends))
        verdicts.append(f"{name}: {verdict}")
        levels = [
            {
                str(noise): {method: comparison._asdict() for method, comparison in methods.items()}
                for noise, methods in run.items()
            }
            for run in runs
        ]
        rows.append({"kind": kind, "intermediate_only": only, "target": target, "chance": chance, "seeds": levels})
    summary = {"questions": len(train), "rollouts of each": rollouts, "chance of a fault": chance, "seeds": seeds}
    terminal.close(rows, summary, brief="\n".join(verdicts))


if __name__ == "__main__":
    run_command(credit_noise)
