"""Builds teachers from their settings and runs them, in this process or in shards on Ray."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.build.keys import google_key_for, key_for
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config.teacher import (
    DIRECTORY,
    GEMINI,
    GEMINI_BATCH,
    SCRIPTED,
    TeacherConfig,
    TeacherSpec,
    parse_teacher,
)
from rubricem_agent.config.tools import ToolsConfig, load_tools_config
from rubricem_agent.data.asking import TeacherPrompts
from rubricem_agent.data.batch_teacher import BatchTeacher, Carrier, Nobody
from rubricem_agent.data.chat_teacher import ChatTeacher
from rubricem_agent.data.generation import Generation, Trace
from rubricem_agent.data.harvest import Filter, Frame, Harvest, harvest
from rubricem_agent.data.journal import Journal
from rubricem_agent.data.mailbox import Mailbox
from rubricem_agent.data.output import keep_usage, recall_usage, write_harvest
from rubricem_agent.data.question_file import QuestionFile, read_question_file
from rubricem_agent.data.scripted_teacher import ScriptedTeacher
from rubricem_agent.data.tokens import ChatTokenizer, encode_sample
from rubricem_agent.data.turns import Teacher
from rubricem_agent.prompting.agent_prompt import PromptStyle, agent_prompt
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.limiter import Limiter
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.retry import RetryPolicy, Timing
from rubricem_env.llm.secrets import Redactor
from rubricem_env.llm.usage import Ceilings, Meter
from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.jsonl import shipped_questions_path

TEACHER_KEY = "RUBRICEM_TEACHER_KEY"

OnTrace = Callable[[Trace], None]


class Shard(NamedTuple):
    """A part of the questions, with a folder of its own."""

    config: TeacherConfig
    questions: QuestionFile
    folder: Path


def read_questions(config: TeacherConfig) -> QuestionFile:
    """The questions of a run, no more than its limit."""
    tasks, almanac = read_question_file(config.questions or shipped_questions_path())
    return QuestionFile(tasks[: config.limit], almanac)


def teach(
    config: TeacherConfig, environ: Mapping[str, str] = os.environ, *, on_trace: OnTrace | None = None
) -> Harvest:
    """Write all traces that are not written yet, and filter them into samples under `config.out`.

    Raises:
        ConfigError: a name is wrong or a key is missing.
        MissingExtraError: a package is missing.
        RepliesPending: a batch is under way; the same call goes on when it is back.
    """
    questions = read_questions(config)
    shards = split_shards(config, questions)
    if len(shards) == 1:
        traces = asyncio.run(write_shard(shards[0], environ, on_trace=on_trace))
    else:
        traces = _on_ray(shards, environ)
    harvested = harvest(traces, _frame(config), keep=_filter(config))
    write_harvest(config.out, harvested)
    return harvested


def split_shards(config: TeacherConfig, questions: QuestionFile) -> list[Shard]:
    """Every n-th question to the same shard, with its share of the ceilings."""
    if config.shards == 1:
        return [Shard(config, questions, config.out)]
    own = config.ceilings
    share = Ceilings(
        calls=None if own.calls is None else own.calls // config.shards,
        tokens=None if own.tokens is None else own.tokens // config.shards,
        dollars=None if own.dollars is None else own.dollars / config.shards,
    )
    return [
        Shard(
            config.model_copy(update={"ceilings": share}),
            QuestionFile(questions.tasks[number :: config.shards], questions.almanac),
            config.out / f"shard-{number:02d}-of-{config.shards:02d}",
        )
        for number in range(config.shards)
    ]


async def write_shard(shard: Shard, environ: Mapping[str, str], *, on_trace: OnTrace | None = None) -> list[Trace]:
    """The traces of a shard, through its own journal."""
    config = shard.config
    spec = parse_teacher(config.teacher)
    meter = Meter(config.ceilings)
    recall_usage(shard.folder, meter)

    def heard(trace: Trace) -> None:
        keep_usage(shard.folder, meter)
        if on_trace is not None:
            on_trace(trace)

    tools = load_tools_config(config.tools) if config.tools else ToolsConfig()
    teacher = _teacher(spec, shard, environ=environ, meter=meter)
    try:
        async with open_tools(tools, environ) as opened:
            generation = Generation(
                teacher,
                opened.toolbox,
                journal=Journal(shard.folder / "journal.jsonl"),
                max_rounds=config.max_rounds,
                max_tokens=config.max_tokens,
                together=len(shard.questions.tasks) if spec.is_batch else 1,
                concurrency=config.concurrency,
            )
            return await generation.run(shard.questions.tasks, on_trace=heard)
    finally:
        await teacher.aclose()


def load_chat_tokenizer(name: str) -> ChatTokenizer:
    """The tokenizer of a model, by folder or name.

    Raises:
        ConfigError: there is none of that name.
        MissingExtraError: transformers is not installed.
    """
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "transformers", "local", "counting tokens exactly") from cause
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"no tokenizer can be loaded from {name!r}: {str(cause).splitlines()[0]}") from cause
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer {name!r} has no chat template; samples are conversations. Add one to it.")
    loaded: ChatTokenizer = tokenizer
    return loaded


def _teacher(spec: TeacherSpec, shard: Shard, *, environ: Mapping[str, str], meter: Meter) -> Teacher:
    config = shard.config
    if spec.kind == SCRIPTED:
        return ScriptedTeacher(shard.questions.almanac, faults=config.faults, seed=config.seed, flat=config.flat)
    prompts = TeacherPrompts.ours(max_rounds=config.max_rounds)
    timing = Timing.real(config.seed)
    if spec.kind == DIRECTORY:
        root = Path(spec.model)
        folder = root if shard.folder == config.out else root / shard.folder.name
        return BatchTeacher(Mailbox(folder), Nobody(), prompts=prompts)
    if spec.kind == GEMINI_BATCH:
        return BatchTeacher(
            Mailbox(shard.folder / "batches"), _gemini_batch(spec, environ, timing=timing), prompts=prompts
        )
    model, redactor = _connect(spec, environ, timeout=config.timeout)
    metered = MeteredModel(model, limiter=Limiter(config.rates, timing), meter=meter, redactor=redactor)
    return ChatTeacher(metered, prompts, timing=timing, retry=RetryPolicy())


def _connect(spec: TeacherSpec, environ: Mapping[str, str], *, timeout: float) -> tuple[ChatModel, Redactor]:
    if spec.kind == GEMINI:
        key = google_key_for(spec.url, environ, own=TEACHER_KEY, who=f"the teacher gemini:{spec.model}")
        try:
            from rubricem_env.llm.gemini import GeminiModel
        except ModuleNotFoundError as cause:
            raise MissingExtraError(cause.name or "google-genai", "judge", "the Gemini teacher") from cause
        return GeminiModel.connect(spec.model, key, base_url=spec.url or None, timeout=timeout), Redactor([key])
    try:
        from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "httpx2", "judge", "an OpenAI-compatible teacher") from cause
    found = key_for(spec.url, environ, own=TEACHER_KEY, who="teacher")
    model = OpenAICompatibleModel.connect(
        spec.model, spec.url, key=found.value, key_variable=found.variable, timeout=timeout
    )
    return model, Redactor([found.value] if found.value else [])


def _gemini_batch(spec: TeacherSpec, environ: Mapping[str, str], *, timing: Timing) -> Carrier:
    key = google_key_for(spec.url, environ, own=TEACHER_KEY, who=f"the teacher gemini-batch:{spec.model}")
    try:
        from rubricem_agent.data.gemini_batch import GeminiBatch
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "google-genai", "judge", "Gemini batch jobs") from cause
    return GeminiBatch.connect(spec.model, key, timing=timing, base_url=spec.url or None)


def _on_ray(shards: Sequence[Shard], environ: Mapping[str, str]) -> list[Trace]:
    """Each shard in a process of its own, on this machine or on the cluster that RAY_ADDRESS names."""
    try:
        ray: Any = import_module("ray")
    except ModuleNotFoundError as cause:
        raise MissingExtraError("ray", "verl", "writing in shards") from cause
    ray.init(include_dashboard=False, ignore_reinit_error=True)
    try:
        work = ray.remote(_write_alone)
        written = ray.get([work.remote(shard, dict(environ)) for shard in shards])
    finally:
        ray.shutdown()
    return [trace for traces in written for trace in traces]


def _write_alone(shard: Shard, environ: Mapping[str, str]) -> list[Trace]:
    return asyncio.run(write_shard(shard, environ))


def _frame(config: TeacherConfig) -> Frame:
    style = PromptStyle.REACT if config.flat else PromptStyle.SCAFFOLD
    prompt = agent_prompt((GOOGLE_SEARCH, SNIPPET_SEARCH), style=style)
    prompt_hash = "" if parse_teacher(config.teacher).kind == SCRIPTED else TeacherPrompts.ours().hash
    return Frame(prompt.system, lambda query: prompt.opening(query).user, config.teacher, prompt_hash)


def _filter(config: TeacherConfig) -> Filter:
    keep = Filter(config.max_unknown_citations, config.flat, config.max_tokens)
    if not config.tokenizer:
        return keep
    tokenizer = load_chat_tokenizer(config.tokenizer)
    return keep._replace(count_tokens=lambda sample: len(encode_sample(sample, tokenizer).ids))
