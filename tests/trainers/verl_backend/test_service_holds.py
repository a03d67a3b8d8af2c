"""Nothing holds the judge service's event loop, on which every rollout worker waits, for groups of the paper's size."""

import asyncio
import json
import random
import time

import pytest

from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.judges import attempt
from rubricem_records.rollouts.rollouts import Rollout
from tests.fakes import ScriptedModel
from tests.replies import read_fenced
from tests.trainers.verl_backend.fakes import FakeClient
from tests.trainers.verl_backend.test_judge_service import (
    NEW,
    QUERY,
    REFLECTION,
    identity,
    make_service,
    save,
    with_tokens,
)

GROUP, CHARS, TOKENS = 8, 82_000, 19_400
LONGEST = 0.05
"""Seconds of the loop's own thread on a processor, so that a busy machine does not count."""
PAPER = {"reflection": {"num_candidates": GROUP, "total_tokens": 26_624, "new_tokens": 200}}


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Knows the longest time that one of its callbacks took."""

    longest = 0.0

    def call_soon(self, callback, *args, context=None):
        def timed(*given):
            began = time.thread_time()
            callback(*given)
            self.longest = max(self.longest, time.thread_time() - began)

        return super().call_soon(timed, *args, context=context)


@pytest.fixture
def loop():
    made = MeasuredLoop()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


def draft(_):
    def row(stage, number):
        return {
            "title": f"gauge {stage}.{number}",
            "description": f"Names the gauge {number} and its year",
            "weight": 2,
        }

    return {
        f"stage_{stage}": {"positive_rubrics": [row(stage, n) for n in range(3)], "negative_rubrics": []}
        for stage in (1, 2, 3, 4)
    }


def words(rng: random.Random, chars: int) -> str:
    return " ".join(f"{rng.randrange(16**5):x}" for _ in range(chars // 6))


def paper_rollout(number: int) -> Rollout:
    rng = random.Random(number)
    answer = f"<answer>{'x' * number} {words(rng, 6_000)}</answer>"
    played = attempt(question=QUERY.question, page=words(rng, CHARS - 8_000), answer=answer)
    return with_tokens(Rollout(trajectory=played, policy="verl"), (0,) * TOKENS)


async def paper_service(model_folder, tokenizer):
    """A service whose judge answers at once, so that nothing but its own work takes time."""
    service = make_service(model_folder, **PAPER)
    service.group_size = GROUP
    read = read_fenced(lambda row, blocks: (row["index"] + len(json.dumps(blocks["ANSWER"]))) % 3, draft=draft)

    async def answer(request):
        await asyncio.sleep(0)
        return read(request)

    judge = LLMJudge(ScriptedModel(answer), timing=Timing.real(0))
    service.judge, service._reflection_judge = StepJudge(judge, RubricBuffer()), judge
    await service.open(FakeClient(tokenizer, [REFLECTION], versions=(7,)))
    return service


def test_judging_credit_reflections_reports_and_checkpoints_hold_no_one_up(loop, model_folder, tokenizer, tmp_path):
    service = loop.run_until_complete(paper_service(model_folder, tokenizer))
    other = make_service(model_folder, **PAPER)
    rollouts = [paper_rollout(number) for number in range(GROUP)]
    loop.longest = 0.0

    async def step():
        await asyncio.gather(*(service.submit(NEW, one, group="g", index=n) for n, one in enumerate(rollouts)))
        await service.drain()
        await save(service, tmp_path, held=["g"])
        await service.resume_scoring()
        await other.load(tmp_path, step=1, identity=identity(other))
        return await service.report(1, ["g"])

    report = loop.run_until_complete(step())

    assert (report["lost"], report["trained_rollouts"]) == (0, GROUP)
    assert len(service.bank) == 1
    assert loop.longest < LONGEST


def test_the_prompt_of_a_reflection_is_encoded_once_for_all_candidates(loop, model_folder):
    class Counting(PolicyTokenizer):
        openings = 0

        def encode_opening(self, opening):
            self.openings += 1
            return super().encode_opening(opening)

    async def reflect():
        service = make_service(model_folder, **PAPER)
        service.tokenizer.__class__ = Counting
        client = FakeClient(service.tokenizer, [REFLECTION], versions=(7,))
        await service.open(client)
        service.group_size = 1
        await service.submit(NEW, paper_rollout(0), group="g", index=0)
        await service.drain()
        return service.tokenizer.openings, len(client.prompts)

    assert loop.run_until_complete(reflect()) == (1, GROUP)
