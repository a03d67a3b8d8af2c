"""What of a step of 32 x 8 attempts of 82 kB no GPU does: processor seconds, and the longest hold of the event loop.

    python -m tests.bench.beside_gpu [--groups 4] [--buffers 500]

A few groups are played, judged and reflected on, and the figures are scaled to 32 groups; a buffer of so many questions
with 60 rubrics each, 41 kB, is saved and loaded, and scaled to 4,900. Words are drawn by Zipf's law. The judge's model
answers at once. Its event loop is watched as the judge service has it, with a thread for what takes long.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from rubricem_env.concurrency import HEAVY_WORK, run_heavy
from rubricem_env.domain.judgement import Judgement, Provenance, Rubric
from rubricem_env.domain.trajectory import Query, ToolCall, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.heap import filling_heap
from rubricem_env.judge.group import Group
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import ActiveRubric, RetiredRubric, RubricSet
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.tools.corpus_search import Corpus, Document, offline_toolbox
from tests.bench.test_bench_judge import draft
from tests.fakes import ScriptedModel
from tests.replies import read_fenced

GROUPS, GROUP_SIZE, BUFFERS, CALLS = 32, 8, 4_900, 14
LIMITS = EpisodeLimits(max_calls=CALLS, max_turns=CALLS + 5, max_tokens=10_000_000)
RNG = np.random.default_rng(0)
WORDS = np.array(["".join(RNG.choice(list("aeiourstlnmdkp"), size=int(RNG.integers(2, 11)))) for _ in range(20_000)])
CHANCES = np.cumsum(1.0 / np.arange(1, len(WORDS) + 1) ** 1.05)
LESSONS = tuple(f"Search each river by its own name, then compare {n}." for n in range(4))


def text(words: int) -> str:
    return " ".join(WORDS[np.searchsorted(CHANCES, RNG.random(words) * CHANCES[-1])])


def play(toolbox: object, question: str, results: list[object]) -> tuple[Trajectory, float]:
    """An attempt and the processor seconds of its episode without the search."""
    turns = [
        f"<think>{text(30)}</think><structured_plan><deep_analysis>{text(100)}</deep_analysis>"
        f"<rubric>{text(60)}</rubric><research_plan>1. {text(40)}</research_plan></structured_plan>",
        *(f"<think>{text(30)}</think><state_evaluation>{text(60)}</state_evaluation>" for _ in range(CALLS - 1)),
    ]
    calls = [f'{turn}<call_tool name="google_search">{text(3)}</call_tool>' for turn in turns]
    last = (
        f"<think>{text(10)}</think><review><rubric_review>{text(60)}</rubric_review><writing_plan>{text(30)}"
        f'</writing_plan></review><answer>{text(300)} <cite id="S_1">{text(30)}</cite></answer>'
    )
    began = time.process_time()
    episode = Episode(Query(question=question), prompt="Search.", limits=LIMITS)
    for call, result in zip(calls, results, strict=True):
        assert isinstance(episode.emit(call), ToolCall)
        episode.observe(result)
    episode.emit(last)
    return episode.trajectory, time.process_time() - began


def used(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class Holds:
    """How long the event loop was held at most, within it."""

    longest = 0.0

    async def __aenter__(self) -> "Holds":
        self._watch = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    async def _look(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest = max(self.longest, time.perf_counter() - began)


async def judge(groups: list[tuple[str, list[Trajectory]]]) -> dict[str, float]:
    answer = read_fenced(lambda row, blocks: len(blocks["ANSWER"]) % 3, draft=draft)
    model = LLMJudge(ScriptedModel(answer), timing=Timing.real(0))
    step = StepJudge(model, RubricBuffer())
    spent = {}
    with ThreadPoolExecutor(1) as heavy:
        HEAVY_WORK.set(heavy)
        async with Holds() as holds:
            began = time.process_time()
            made = [
                await run_heavy(Group.of, Query(question=question), [parse_trajectory(each) for each in attempts])
                for question, attempts in groups
            ]
            await step.judge_step(made, step=1)
            spent["judge, whole"] = time.process_time() - began
            began = time.process_time()
            for group in made:
                unscored = Judgement.of({})
                task = ReflectionTask(group.query.question, group.trajectories[0], unscored, (), LESSONS, seed=1)
                await model.judge_reflections(task)
            spent["judge of four reflections a group"] = time.process_time() - began
    spent["hold"] = holds.longest
    return spent


def buffer(questions: int) -> RubricBuffer:
    def rubric(number: int) -> ActiveRubric:
        wrote = Provenance(step=number, model="judge", prompt_hash="a" * 16)
        one = Rubric(stage="answer", title=text(5), description=text(55), provenance=wrote)
        return ActiveRubric(rubric=one, created_step=number, last_step=number, variance=0.1)

    return RubricBuffer(
        {
            f"q{number}": RubricSet(
                active=tuple(rubric(number) for _ in range(20)),
                archive=tuple(
                    RetiredRubric(last=rubric(number), reason="over_cap", retired_step=number) for _ in range(40)
                ),
            )
            for number in range(questions)
        }
    )


async def results_of(toolbox: object) -> list[object]:
    return [await toolbox.call(ToolCall(name="google_search", query=text(3))) for _ in range(CALLS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--buffers", type=int, default=500)
    given = parser.parse_args()
    pages = [
        Document(id=f"d{n}", title=text(5), url=f"https://a.example/{n}", text="\n".join(text(25) for _ in range(9)))
        for n in range(400)
    ]
    toolbox = offline_toolbox(Corpus(pages))
    groups, episodes = [], 0.0
    for number in range(given.groups):
        attempts = []
        for _ in range(GROUP_SIZE):
            attempt, seconds = play(toolbox, f"Which {number}?", asyncio.run(results_of(toolbox)))
            attempts.append(attempt)
            episodes += seconds
        groups.append((f"Which {number}?", attempts))
    each = [attempt for _, attempts in groups for attempt in attempts]
    size = sum(len(segment.text) for attempt in each for segment in attempt.segments) / len(each)
    by_step = GROUPS / given.groups
    found = {"episodes": episodes * by_step}
    found["parsing once"] = used(lambda: [parse_trajectory(attempt) for attempt in each]) * by_step
    found["copy check"] = used(lambda: [ShownText.in_trajectories(attempts) for _, attempts in groups]) * by_step
    found["attempts as JSON"] = used(lambda: [attempt.model_dump_json() for attempt in each]) * by_step
    judged = asyncio.run(judge(groups))
    hold = judged.pop("hold")
    found |= {name: seconds * by_step for name, seconds in judged.items()}
    made = buffer(given.buffers)
    saved = json.dumps(made.state_dict())
    of_all = BUFFERS / given.buffers
    found["saving 4,900 buffers"] = used(lambda: json.dumps(made.state_dict())) * of_all
    with filling_heap():  # as a checkpoint is restored
        found["loading them"] = used(lambda: RubricBuffer().load_state_dict(json.loads(saved))) * of_all
    sys.stdout.write(f"attempts of {size:,.0f} characters, {CALLS} calls; buffers of {len(saved) // given.buffers:,}\n")
    for name, seconds in found.items():
        sys.stdout.write(f"{name:36} {seconds:6.2f} s\n")
    sys.stdout.write(f"{'the longest hold of the event loop':36} {hold * 1_000:6.0f} ms\n")


if __name__ == "__main__":
    main()
