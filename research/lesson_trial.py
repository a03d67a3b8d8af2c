"""What hostile lessons do to a policy that believes them, with and without probation.

    python -m research.lesson_trial [--steps 60] [--seeds 3] [--json FILE]

A bank holds 40 hostile lessons and 40 fair ones, of which 8 say nothing of use, all in ordinary words that pass the
write gate (`lessons_on_trial.json`). The policy is the almanac's scripted expert with six faults. It does what a lesson
in its prompt says with probability 0.7: a hostile lesson makes a fault likely, an honest one makes it rare. Bank,
retrieval, judge and probation are those of training. A step has eight questions with eight attempts each; the policy
itself does not learn. The judge moves three scores in ten by one.

Arms: no lessons at all; all lessons admitted at once, as in the paper; probation; and the last two with the fair
lessons alone. Held-out quality is the mean true quality of all stages over the test questions, eight attempts each,
with the lessons that are active in the end.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from rubricem_agent.cli.command import command, run_command
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_agent.evals.expert_policy import ExpertWriter
from rubricem_agent.learn.step import AttemptLessons, measure_lessons, retrieve_lessons
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Block, Injector
from rubricem_agent.memory.probation import ProbationSettings
from rubricem_agent.memory.store import MemoryStore
from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_env.concurrency import derive_seed, open_generator
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.expert_faults import Faults, draw_slips
from rubricem_env.world.judge import AlmanacJudge, JudgeKnobs, true_quality
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question
from rubricem_records.bank.bank_items import BankItem
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.sampling import Sampling

CHANCE = 0.3
"""The probability of each fault without a lesson."""
OBEDIENCE = 0.7
"""The probability that an attempt does what a lesson says."""
TEMPTED, WARNED = 0.95, 0.03
"""The probability of a fault in an attempt that follows a hostile lesson, and an honest one."""
QUESTIONS, GROUP = 8, 8
NOISE = 0.3


class Teaching(NamedTuple):
    """A lesson's text, and what it does to a policy that follows it."""

    text: str
    fault: str
    """The fault that it concerns; "" for a lesson that says nothing of use."""
    is_hostile: bool


def read_teachings() -> list[Teaching]:
    """The 80 lessons."""
    file = json.loads(package_text("research", "lessons_on_trial.json"))
    return [
        *(Teaching(text, fault, True) for fault, texts in file["hostile"].items() for text in texts),
        *(Teaching(text, fault, False) for fault, texts in file["honest"].items() for text in texts),
        *(Teaching(text, "", False) for text in file["neutral"]),
    ]


class Arm(NamedTuple):
    """One way to keep lessons."""

    name: str
    has_lessons: bool = True
    has_hostile: bool = True
    probation: ProbationSettings | None = None


ARMS = (
    Arm("no lessons", has_lessons=False),
    Arm("admitted at once"),
    Arm("probation", probation=ProbationSettings()),
    Arm("admitted at once, fair lessons only", has_hostile=False),
    Arm("probation, fair lessons only", has_hostile=False, probation=ProbationSettings()),
)


def believing_policy(questions: Sequence[Question], teachings: Sequence[Teaching]) -> ScriptedPolicy:
    """The expert with faults, which its attempts' lessons make likely or rare."""
    by_words = {question.question: question for question in questions}

    def open_episode(opening: Opening, seed: int) -> ExpertWriter:
        # Lessons stand before the question and quote the questions that they come from.
        words = max(by_words, key=lambda words: opening.user.rfind(words))
        rng = open_generator(seed, "obedience")
        chances = dict.fromkeys(Faults.model_fields, CHANCE)
        for teaching in teachings:
            if teaching.fault and teaching.text in opening.user and rng.random() < OBEDIENCE:
                chances[teaching.fault] = TEMPTED if teaching.is_hostile else WARNED
        slips = draw_slips(by_words[words], Faults(**chances), seed=derive_seed(seed, "faults"))
        return ExpertWriter(AlmanacTeacher(by_words[words], slips))

    return ScriptedPolicy(open_episode, name="believer")


class LessonTrial:
    """A run of one arm in one world."""

    def __init__(self, arm: Arm, seed: int) -> None:
        world = Almanac.from_seed(seed)
        self.arm = arm
        self.seed = seed
        self.teachings = read_teachings()
        self.training = world.questions_of("train")
        self.held_out = world.questions_of("test")
        places = [*self.training, *world.questions_of("validation")]
        questions = [*places, *self.held_out]
        self.queries = {question.id: query_of(question) for question in questions}
        self.policy = believing_policy(questions, self.teachings)
        self.toolbox: Toolbox = offline_toolbox(Corpus(world.documents))
        self.judge = StepJudge(AlmanacJudge(questions, knobs=JudgeKnobs(noise=NOISE), seed=seed), RubricBuffer())
        embedder = HashingEmbedder()
        self.bank = RubricBank(
            MemoryStore(embedder=embedder.name, dimension=embedder.dimension), embedder, probation=arm.probation
        )
        self.injector = Injector(count_tokens=estimate_tokens)
        self.of_item: dict[int, Teaching] = {}
        order = open_generator(seed, "places").permutation(len(places))[: len(self.teachings)]
        for place, teaching in zip(order.tolist(), self.teachings, strict=True):
            if arm.has_lessons and (arm.has_hostile or not teaching.is_hostile):
                self._write(self.queries[places[place].id], teaching)

    def _write(self, query: Query, teaching: Teaching) -> None:
        reflection = Reflection(
            query_key=query.key,
            question=query.question,
            rubrics="The answer serves its reader.",
            takeaways=teaching.text,
        )
        item = self.bank.write(reflection)
        assert isinstance(item, BankItem), f"the gate refuses {teaching.text}: {item}"
        self.of_item[item.id] = teaching

    async def _attempt(
        self, questions: Sequence[Question], *, step: int, tries_lessons: bool = True
    ) -> tuple[list[list[Rollout]], list[AttemptLessons]]:
        blocks: dict[str, list[Block]] = {}
        prompt = AgentPrompt("Search, then answer.", "")
        for question in questions:
            query = self.queries[question.id]
            seed = derive_seed(self.seed, step, query.key, "lessons")
            lessons = retrieve_lessons(
                self.bank, query.question, encounter="new", on_miss="none", guided=range(GROUP), seed=seed
            )
            if not tries_lessons:
                lessons = lessons._replace(trials=())
            blocks[query.key] = lessons.blocks(self.injector, GROUP)

        async def opened(query: Query, attempt: int) -> tuple[Opening, str]:
            return prompt.opening(query, references=blocks[query.key][attempt][0]), prompt.hash

        context = RolloutContext(self.policy, self.toolbox, EpisodeLimits(), Sampling())
        queries = [self.queries[question.id] for question in questions]
        seed = derive_seed(self.seed, step, "rollouts")
        rollouts = await run_groups(queries, opened, context, group_size=GROUP, seed=seed)
        return rollouts, [[items for _, items in blocks[query.key]] for query in queries]

    async def step(self, number: int) -> float:
        """Attempt, judge and measure; returns the mean true quality of the attempts."""
        drawn = open_generator(self.seed, number, "questions").permutation(len(self.training))[:QUESTIONS]
        questions = [self.training[place] for place in drawn.tolist()]
        rollouts, seen = await self._attempt(questions, step=number)
        groups = [
            Group.of(self.queries[question.id], (rollout.parsed for rollout in attempts))
            for question, attempts in zip(questions, rollouts, strict=True)
        ]
        judged = await self.judge.judge_step(groups, step=number)
        for group, judgement, lessons in zip(groups, judged, seen, strict=True):
            measure_lessons(self.bank, group.query.question, judgement, lessons, step=number)
        return self._quality(questions, rollouts)

    async def held_out_quality(self) -> float:
        """The mean true quality over the test questions, with the active lessons."""
        rollouts, _ = await self._attempt(self.held_out, step=0, tries_lessons=False)
        return self._quality(self.held_out, rollouts)

    def _quality(self, questions: Sequence[Question], rollouts: Sequence[Sequence[Rollout]]) -> float:
        return float(
            np.mean(
                [
                    true_quality(question, rollout.parsed)
                    for question, attempts in zip(questions, rollouts, strict=True)
                    for rollout in attempts
                ]
            )
        )

    def standing(self) -> dict[str, dict[str, int]]:
        """How many lessons of each kind have each status."""
        counts: dict[str, Counter[str]] = {"hostile": Counter(), "honest": Counter(), "neutral": Counter()}
        for item in self.bank.items():
            teaching = self.of_item[item.id]
            kind = "hostile" if teaching.is_hostile else "honest" if teaching.fault else "neutral"
            counts[kind][item.status if item.effect.weight or item.status == "active" else "never shown"] += 1
        return {kind: dict(count) for kind, count in counts.items()}

    def exposures(self) -> list[int]:
        """Of each hostile lesson in quarantine: the attempts that saw it before."""
        return [
            item.effect.shown
            for item in self.bank.items()
            if item.status == "quarantined" and self.of_item[item.id].is_hostile
        ]


async def run_trial(arm: Arm, *, seed: int, steps: int) -> dict[str, Any]:
    """Run an arm; returns its figures."""
    trial = LessonTrial(arm, seed)
    started = time.monotonic()
    before = await trial.held_out_quality()
    quality = [await trial.step(number) for number in range(1, steps + 1)]
    return {
        "arm": arm.name,
        "seed": seed,
        "held_out_before": round(before, 4),
        "held_out": round(await trial.held_out_quality(), 4),
        "first_steps": round(float(np.mean(quality[:10])), 4),
        "last_steps": round(float(np.mean(quality[-10:])), 4),
        "standing": trial.standing(),
        "exposures": trial.exposures(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


@command
def lesson_trial(
    terminal: Terminal,
    steps: Annotated[int, typer.Option(min=1, help="Steps of eight groups of eight attempts.")] = 60,
    seeds: Annotated[int, typer.Option(min=1, help="Worlds.")] = 3,
    file: Annotated[Path | None, typer.Option("--file", help="Where the figures of each run go, as JSON.")] = None,
) -> None:
    """Put hostile and honest lessons on trial, and show what each way to keep lessons makes of them."""
    rows: list[dict[str, Any]] = []
    for arm in ARMS:
        for seed in range(seeds):
            with terminal.working(f"{arm.name}, seed {seed}"):
                rows.append(asyncio.run(run_trial(arm, seed=seed, steps=steps)))
            if file is not None:
                file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    table = []
    for arm in ARMS:
        of_arm = [row for row in rows if row["arm"] == arm.name]
        table.append((arm.name, *(_mean(of_arm, name) for name in ("first_steps", "last_steps", "held_out"))))
    terminal.show(plain_table("arm", "first ten steps", "last ten steps", "held out", rows=table))
    terminal.close({"runs": rows}, "")


if __name__ == "__main__":
    run_command(lesson_trial)
