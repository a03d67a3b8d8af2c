"""Scoring arithmetic against the official aggregation, and a run against its critical path."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.benchmarks.healthbench import RubricItem, score_example
from rubricem_agent.evals.benchmarks.simpleqa import SimpleQAGold
from rubricem_agent.evals.case_judge import CaseJudge
from rubricem_agent.evals.cases import case_keys
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.grading import Grade
from rubricem_agent.evals.parity.healthbench import grade_item
from rubricem_agent.evals.runner import Runner
from rubricem_agent.evals.suite import SUITE, rules_for
from rubricem_env.llm.chat import ChatReply
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_records.evaluations.logs import AnswerRecord, VerdictRecord
from rubricem_records.files.journal import Journal

EXAMPLES = 1_000
ITEMS = 11
AXES = ("accuracy", "completeness", "communication_quality", "context_awareness", "instruction_following")
THEMES = ("hedging", "communication", "global_health", "emergency_referrals")
MET, MISSED = '{"criteria_met": true}', '{"criteria_met": false}'


def cases() -> list[tuple[list[RubricItem], list[str], list[list[str]]]]:
    rng = np.random.default_rng(0)
    made = []
    for number in range(EXAMPLES):
        rubrics = [
            RubricItem(criterion="c", points=5 if item % 3 else -4, tags=(f"axis:{AXES[item % 5]}", "level:example"))
            for item in range(1, ITEMS + 1)
        ]
        replies = [[MET if rng.random() < 0.5 else MISSED] for _ in rubrics]
        made.append((rubrics, [f"theme:{THEMES[number % 4]}"], replies))
    return made


def score_all(made) -> float | None:
    grades = []
    for rubrics, tags, replies in made:
        metrics = score_example(rubrics, tags, met=[grade_item(each).is_met for each in replies])
        grades.append(Grade(metrics["overall_score"], 0.0, metrics=metrics))
    return SUITE["healthbench"].grader(rules_for("healthbench", "official")).total(grades)["overall_score"]


def official_aggregation(columns: dict[str, Sequence[float]]) -> float:
    """The published aggregation in its own way: a thousand draws one by one for each metric name."""
    rng = np.random.RandomState(0)
    for values in columns.values():
        means = [np.clip(np.mean(rng.choice(values, len(values))), 0, 1) for _ in range(1_000)]
        np.std(means)
    return float(np.clip(np.mean(columns["overall_score"]), 0, 1))


@pytest.mark.benchmark(group="healthbench, 1,000 examples")
def test_scoring_with_bootstrap(benchmark):
    made = cases()
    assert benchmark.pedantic(score_all, args=(made,), rounds=5, warmup_rounds=1) is not None


@pytest.mark.benchmark(group="healthbench, 1,000 examples")
def test_official_aggregation_alone(benchmark):
    columns: dict[str, list[float]] = {}
    for rubrics, tags, replies in cases():
        for name, value in score_example(rubrics, tags, met=[grade_item(each).is_met for each in replies]).items():
            columns.setdefault(name, []).append(value)
        columns.setdefault("score", []).append(columns["overall_score"][-1])
    benchmark.pedantic(official_aggregation, args=(columns,), rounds=3, warmup_rounds=1)


POLICY_SECONDS, JUDGE_SECONDS = 0.2, 0.1
POLICY_SLOTS, JUDGE_SLOTS = 20, 10
CRITICAL_PATH = EXAMPLES * POLICY_SECONDS / POLICY_SLOTS + JUDGE_SECONDS
"""The policy is as busy as the judge, 10 s each; the last answer is judged after it."""


async def answer_slowly(example, **settings):
    await asyncio.sleep(POLICY_SECONDS)
    return AnswerRecord(id=example.id, epoch=0, given=example.id)


class SlowJudge:
    name = "slow"

    async def complete(self, request):
        await asyncio.sleep(JUDGE_SECONDS)
        return ChatReply(text="A", model="slow")

    async def aclose(self) -> None:
        return None


def simulated() -> Loaded:
    rules = rules_for("simpleqa", "official")
    ids = [str(number) for number in range(EXAMPLES)]
    examples = tuple(Example(id=each, prompt_text=f"question {each}") for each in ids)
    gold = {each: SimpleQAGold(id=each, problem="question", answer="gold", metadata="{}") for each in ids}
    simpleqa = SUITE["simpleqa"]
    return Loaded(examples, gold, None, "", benchmark=simpleqa, grader=simpleqa.grader(rules))


async def run_simulated(folder) -> int:
    loaded = simulated()
    answers = Journal.open(folder / "answers.jsonl", AnswerRecord)
    verdicts = Journal.open(folder / "verdicts.jsonl", VerdictRecord)
    judge = CaseJudge(
        "slow",
        SlowJudge(),
        loaded=loaded,
        journal=verdicts,
        retry=RetryPolicy(),
        timing=Timing.real(0),
        slots=asyncio.Semaphore(JUDGE_SLOTS),
    )
    runner = Runner(
        loaded, answers, answerer=answer_slowly, judges=(judge,), concurrency=POLICY_SLOTS, clock=time.monotonic
    )
    await runner.run(case_keys([example.id for example in loaded.examples], 1))
    answers.close()
    verdicts.close()
    return runner.judged


def test_a_run_of_1000_examples_stays_near_its_critical_path(benchmark, tmp_path):
    done = benchmark.pedantic(lambda: asyncio.run(run_simulated(tmp_path)), rounds=1)
    assert done == EXAMPLES
    ratio = benchmark.stats.stats.mean / CRITICAL_PATH
    benchmark.extra_info["ratio to critical path"] = round(ratio, 3)
    assert ratio < 1.2
