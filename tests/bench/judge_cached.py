"""The scoring prompts of a step, sent to vLLM on a CPU: which of their tokens it took from its cache.

    make vllm-lane                                        # sets up .venv-vllm
    .venv-vllm/bin/python -m tests.bench.judge_cached [--questions 8]

A tiny Qwen3 of random weights is served with prefix caching. Each attempt of a group is scored after the one before it,
as a judge with one slot does; a reply has one token. The tokenizer is trained on the prompts.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import httpx2

from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.templates import SCORE
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.usage import Meter
from tests.bench.test_bench_judge import draft, step_groups
from tests.fakes import ScriptedModel
from tests.lanes.vllm.served import NAME, serve_tiny
from tests.replies import read_blocks, read_fenced

MAX_LENGTH = 32_768


def scoring_prompts(questions: int, *, sentences: int, words: str) -> list[list[ChatRequest]]:
    """The requests that score the attempts of each question."""
    groups: dict[str, list[ChatRequest]] = defaultdict(list)
    answer = read_fenced(lambda row, blocks: len(blocks["ANSWER"]) % 3, draft=draft)

    async def reply(request: ChatRequest) -> str:
        if request.purpose == SCORE:
            groups[read_blocks(request.prompt)["QUESTION"]].append(request)
        return answer(request)

    timing = Timing.real(0)
    model = MeteredModel(ScriptedModel(reply), limiter=Limiter(Rates(), timing), meter=Meter())
    judge = StepJudge(LLMJudge(model, timing=timing), RubricBuffer())
    asyncio.run(judge.judge_step(step_groups(sentences, words)[:questions], step=1))
    return list(groups.values())


def measure(url: str, groups: list[list[ChatRequest]], what: str) -> None:
    read = cached = 0
    with httpx2.Client(timeout=300) as client:
        for group in groups:
            for number, request in enumerate(group):
                messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.prompt}]
                body = {"model": NAME, "messages": messages, "max_tokens": 1}
                usage = client.post(f"{url}/chat/completions", json=body).raise_for_status().json()["usage"]
                if number:
                    read += usage["prompt_tokens"]
                    cached += (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    count = sum(len(group) - 1 for group in groups)
    sys.stdout.write(
        f"{what}: {count} scoring prompts after the first of their group, {read / count:.0f} tokens each, "
        f"{cached / count:.0f} of them cached ({cached / read:.1%})\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--questions", type=int, default=8)
    questions = parser.parse_args().questions
    short = scoring_prompts(questions, sentences=10, words="evidence")
    long = scoring_prompts(questions, sentences=500, words="evidence " * 400)
    texts = [request.system + request.prompt for groups in (short, long) for group in groups for request in group]
    with tempfile.TemporaryDirectory() as folder:
        options = ("--enable-prompt-tokens-details", "--enable-prefix-caching")
        with serve_tiny(Path(folder), corpus=texts, max_length=MAX_LENGTH, options=options) as served:
            measure(served.url, short, "short attempts")
            measure(served.url, long, "long attempts")


if __name__ == "__main__":
    main()
