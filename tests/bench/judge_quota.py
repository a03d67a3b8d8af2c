"""A judge with a real quota of tokens a minute: python -m tests.bench.judge_quota [--faster 20] [--quotas 2 4 8].

Steps of 32 questions x 8 attempts of 86 kB, so that a step's proposals and scores have 10.6 million tokens, through the
whole LLM path, against an HTTP server in another process whose bucket of a minute's tokens is filled evenly. The groups
of a step end over two minutes, or at once. All times are divided by --faster, so that a minute takes three seconds. The
limiter knows the quota (`rates`), or it does not and learns of it from refusals alone. A line says how many proposals
and attempts were lost.
"""

import argparse
import asyncio
import itertools
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import uvicorn

from rubricem_env.judge.group import Group
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.templates import PROPOSE, SCORE
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Meter
from rubricem_env.testing.loopback import free_port
from rubricem_env.testing.servers import ModelReply, ModelServer
from tests.bench.judge_tail import wait_for
from tests.bench.test_bench_judge import draft, step_groups
from tests.replies import read_blocks, read_fenced

PROPOSE_SECONDS, SCORE_SECONDS = 70.0, 35.0
SENTENCES = 1_500
SPREAD_SECONDS = 120.0


class Bucket:
    """Tokens that a server grants: at most a minute's at once."""

    def __init__(self, each_minute: float, faster: float) -> None:
        self._size = self._level = each_minute
        self._each_second = each_minute / 60 * faster
        self._at = time.monotonic()

    def take(self, tokens: float) -> float:
        """0 where they are granted, else the seconds until they would be."""
        now = time.monotonic()
        self._level = min(self._size, self._level + (now - self._at) * self._each_second)
        self._at = now
        if self._level >= tokens:
            self._level -= tokens
            return 0.0
        return (tokens - self._level) / self._each_second


def serve(port: int, *, quota: float, faster: float, says_when: bool) -> None:
    bucket = Bucket(quota, faster)
    answer = read_fenced(lambda row, blocks: len(blocks["ANSWER"]) % 3, draft=draft)

    def reply(asked):
        purpose = PROPOSE if "ATTEMPTS" in read_blocks(asked.prompt) else SCORE
        text = answer(ChatRequest(asked.prompt, purpose=purpose))
        read, written = (len(asked.prompt) + len(asked.system)) // 4, len(text) // 4 + 500
        if wait := bucket.take(read + written):
            return ModelReply("quota", status=429, headers={"retry-after": f"{wait:.3f}"} if says_when else {})
        return ModelReply(
            text, delay=(PROPOSE_SECONDS if purpose == PROPOSE else SCORE_SECONDS) / faster, usage=(read, written)
        )

    uvicorn.run(ModelServer(reply), port=port, log_level="critical", access_log=False)


async def judge_steps(url: str, rates: Rates, groups: list[Group], *, faster: float, bursts: bool, steps: int) -> str:
    """Judge steps one after the other, and count what is lost."""
    timing, meter = Timing.real(0), Meter()
    served = OpenAICompatibleModel("judge", f"{url}/v1")
    model = MeteredModel(served, limiter=Limiter(rates, timing), meter=meter)
    paper = RetryPolicy(initial_delay=1 / faster, max_delay=60 / faster, deadline=1_800 / faster)
    short = RetryPolicy(attempts=2, initial_delay=1 / faster, deadline=60 / faster)
    settings = AskSettings(retry=paper, fallback_retry=short)
    judge = StepJudge(LLMJudge(model, timing=timing, settings=settings), RubricBuffer())
    rng, lost = np.random.default_rng(0), Counter[str]()

    async def judge_group(group: Group, step: int) -> None:
        await asyncio.sleep(0.0 if bursts else float(rng.random()) * SPREAD_SECONDS / faster)
        judged = await judge.judge_group(group, step=step)
        lost["proposals"] += bool(judged.proposal_failure)
        lost["attempts"] += sum(not rollout.is_valid for rollout in judged.rollouts)
        lost["answers alone"] += sum(rollout.is_answer_only for rollout in judged.rollouts)

    took = []
    for step in range(1, steps + 1):
        started = time.perf_counter()
        await asyncio.gather(*(judge_group(group, step) for group in groups))
        took.append((time.perf_counter() - started) * faster)
    await model.aclose()
    number, attempts = steps * len(groups), steps * sum(len(group.trajectories) for group in groups)
    used = meter.total.usage
    return (
        f"lost {lost['proposals']} of {number} proposals, {lost['attempts']} of {attempts} attempts; "
        f"{lost['answers alone']} answers alone; steps {', '.join(f'{seconds:.0f}' for seconds in took)} s; "
        f"{used.tokens / 1e6 / steps:.1f}M tokens a step"
    )


def measure(options: argparse.Namespace, groups: list[Group]) -> None:
    ways = itertools.product(options.quotas, (True, False), (False, True), (True, False))
    for millions, says_when, bursts, knows in ways:
        quota, port = millions * 1e6, free_port()
        command = [sys.executable, "-m", "tests.bench.judge_quota", "--serve", str(port), "--quotas", f"{millions}"]
        server = subprocess.Popen(
            [*command, "--faster", f"{options.faster}", *(["--says-when"] if says_when else [])], start_new_session=True
        )
        rates = Rates(tokens_per_minute=int(quota * options.faster) if knows else None)
        try:
            wait_for(port)
            run = judge_steps(
                f"http://127.0.0.1:{port}", rates, groups, faster=options.faster, bursts=bursts, steps=options.steps
            )
            said = asyncio.run(run)
        finally:
            server.terminate()
            server.wait()
        named = f"{millions:g}M a minute, {'with' if says_when else 'without'} Retry-After, "
        named += f"{'groups at once' if bursts else 'groups over 120 s'}, {'rates set' if knows else 'rates unknown'}"
        sys.stdout.write(f"{named}: {said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faster", type=float, default=20.0)
    parser.add_argument("--quotas", type=float, nargs="+", default=[2.0, 4.0, 8.0])
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--says-when", action="store_true")
    parser.add_argument("--serve", type=int)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, quota=chosen.quotas[0] * 1e6, faster=chosen.faster, says_when=chosen.says_when)
    else:
        measure(chosen, step_groups(SENTENCES))
