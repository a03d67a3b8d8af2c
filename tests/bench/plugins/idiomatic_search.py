"""A multi-turn search environment as one is written for verifiers: a pattern, a call, a message; the same searches."""

import verifiers.v1 as vf
from openai import AsyncOpenAI

from tests.bench.adapter_attempts import QUERY, search


class SearchTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def answered(self, trace):
        return 1.0


class SearchTaskset(vf.Taskset[SearchTask, vf.TasksetConfig]):
    def load(self):
        yield SearchTask(vf.TaskData(prompt=QUERY.question), self.config.task)


class SearchHarness(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        messages = [{"role": "user", "content": data.prompt}]
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            while True:
                answer = await client.chat.completions.create(model=ctx.model, messages=messages)
                text = answer.choices[0].message.content
                messages.append({"role": "assistant", "content": text})
                read = await search(text)
                if read is None:
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                messages.append({"role": "user", "content": read})


__all__ = ["SearchHarness", "SearchTaskset"]
