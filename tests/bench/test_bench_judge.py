"""How fast the judge's machinery is, the model's latency being given: run with `make bench`.

A step of 32 questions x 8 rollouts through the whole LLM path, prompts and parsing included, with log-normal
latency (median 1 s) against its critical path and against the same code with a barrier between the phases.
"""

import asyncio
import hashlib
import json
import sys
import time

import numpy as np
import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.group import Group
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.templates import PROPOSE
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.usage import Meter
from rubricem_env.testing.judges import attempt
from tests.fakes import ScriptedModel, rubric
from tests.replies import read_blocks, read_fenced

QUESTIONS, ROLLOUTS = 32, 8
SIGMA = 0.6
LIMIT = 1.15


def draft(_):
    row = {"title": "wider", "description": "Says which of the two rivers is wider", "weight": 2}
    return {
        f"stage_{n}": {"positive_rubrics": [{**row, "title": f"wider {n}"}], "negative_rubrics": []}
        for n in (1, 2, 3, 4)
    }


class SlowModel:
    """Answers at once, after a latency that depends on the prompt alone: the same in every version of the step."""

    def __init__(self) -> None:
        self.latencies: dict[tuple[str, str], list[float]] = {}
        self._read = read_fenced(lambda row, blocks: len(json.dumps(blocks["ANSWER"])) % 3, draft=draft)

    async def answer(self, request):
        seed = int.from_bytes(hashlib.sha256(request.prompt.encode()).digest()[:8], "big")
        latency = float(np.random.default_rng(seed).lognormal(0.0, SIGMA))
        blocks = read_blocks(request.prompt)
        self.latencies.setdefault((blocks["QUESTION"], request.purpose), []).append(latency)
        await asyncio.sleep(latency)
        return self._read(request)

    def critical_path(self) -> float:
        """The slowest question: its proposal, then its slowest scoring."""
        questions = {question for question, _ in self.latencies}
        return max(self.latencies[q, PROPOSE][0] + max(self.latencies[q, "score"]) for q in questions)


def step_groups(sentences: int = 500, words: str = "evidence " * 400):
    """Attempts with a page of so many sentences, and with an answer of these words."""
    page = "The survey of the river found a width and a season. " * sentences
    return [
        Group.of(
            Query(question=f"Question {number}?"),
            [
                attempt(
                    question=f"Question {number}?", page=f"{n} {page}", answer=f"<answer>{'x' * n} {words}</answer>"
                )
                for n in range(ROLLOUTS)
            ],
        )
        for number in range(QUESTIONS)
    ]


def new_judge():
    slow, timing = SlowModel(), Timing.real(0)
    model = MeteredModel(ScriptedModel(slow.answer), limiter=Limiter(Rates(), timing), meter=Meter())
    return StepJudge(LLMJudge(model, timing=timing), RubricBuffer()), slow


async def judge_with_barrier(judge, groups):
    """The same phases with all proposals awaited before the first scoring, as the paper describes its calls."""
    asked = judge.judge
    proposed = await asyncio.gather(
        *(asked.propose(Contrast(g.query.question, g.trajectories, step=1)) for g in groups)
    )
    await asyncio.gather(
        *(
            asked.score(ScoringRequest(group.query.question, parsed, proposal.rubrics))
            for group, proposal in zip(groups, proposed, strict=True)
            for parsed in group.trajectories
        )
    )


def timed(begin):
    started = time.perf_counter()
    asyncio.run(begin())
    return time.perf_counter() - started


@pytest.mark.benchmark(group="a step of 32 x 8, log-normal latency of median 1 s")
def test_bench_step_against_its_critical_path(benchmark, capsys):
    groups = step_groups()
    judge, slow = new_judge()
    pipelined = benchmark.pedantic(timed, args=(lambda: judge.judge_step(groups, step=1),), rounds=1)
    barrier_judge, _ = new_judge()
    barrier = timed(lambda: judge_with_barrier(barrier_judge, groups))
    critical = slow.critical_path()
    ratios = {"over_critical_path": pipelined / critical, "two_barriers_over_it": barrier / pipelined}
    benchmark.extra_info.update({name: round(ratio, 3) for name, ratio in ratios.items()})
    with capsys.disabled():
        sys.stderr.write(f"\njudge step: {pipelined:.2f} s, critical path {critical:.2f} s, {benchmark.extra_info}\n")
    assert pipelined <= LIMIT * critical


def big_buffer():
    rubrics = [rubric(f"criterion number {n} of the stage", STAGES[n % 4]) for n in range(14)]
    scores = {r.id: [n % 3, 1] for n, r in enumerate(rubrics)}
    one = RubricSet().with_proposed(rubrics, step=1).pruned(scores, caps=DEEP_RESEARCH.caps, step=1, archive_limit=50)
    return RubricBuffer({hashlib.sha256(str(n).encode()).hexdigest(): one for n in range(5_000)})


@pytest.fixture(scope="module")
def buffer():
    return big_buffer()


@pytest.mark.benchmark(group="a buffer of 5,000 questions with 14 rubrics each")
def test_bench_one_questions_turn_in_a_buffer_of_5000(benchmark, buffer):
    key = hashlib.sha256(b"77").hexdigest()
    proposals = [rubric(f"new {n}", STAGES[n % 4]) for n in range(8)]
    scores = {r.id: [n % 3, 0, 2] for n, r in enumerate(proposals)}

    def turn():
        grown = buffer.rubrics(key).with_proposed(proposals, step=2)
        buffer.replace(key, grown.pruned(scores, caps=DEEP_RESEARCH.caps, step=2, archive_limit=50))

    benchmark(turn)


@pytest.mark.benchmark(group="a buffer of 5,000 questions with 14 rubrics each")
def test_bench_saving_a_buffer_of_5000(benchmark, buffer):
    """After a step that changed 32 questions."""
    buffer.state_dict()
    keys = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(32)]

    def save():
        for key in keys:
            buffer.replace(key, buffer.rubrics(key))
        return json.dumps(buffer.state_dict())

    benchmark.pedantic(save, rounds=5)


@pytest.mark.benchmark(group="a buffer of 5,000 questions with 14 rubrics each")
def test_bench_restoring_a_buffer_of_5000(benchmark, buffer):
    state = json.loads(json.dumps(buffer.state_dict()))
    benchmark.pedantic(lambda: RubricBuffer().load_state_dict(state), rounds=3)
