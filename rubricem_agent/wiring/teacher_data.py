"""Builds a run that generates teacher data: its teacher, tools, limits and shards."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.config.tools import ToolsConfig, parse_tools
from rubricem_agent.data.base import Teacher, Trace
from rubricem_agent.data.batch_teacher import BatchTeacher
from rubricem_agent.data.chatml import ChatTokenizer, encode_sample
from rubricem_agent.data.filter import Harvest, harvest, keep_usage, recall_usage, write_harvest
from rubricem_agent.data.generate import Generation, Student
from rubricem_agent.data.question_files import QuestionFile, read_question_file
from rubricem_agent.data.teacher import PURPOSE, ChatTeacher, ScriptedTeacher, TeacherPrompts
from rubricem_agent.learn.resume_identity import refuse_other_run
from rubricem_agent.model_names import DIRECTORY, GEMINI_BATCH, SCRIPTED, ModelSpec, parse_teacher
from rubricem_agent.policy.base import model_folder
from rubricem_agent.prompting import AgentPrompt, agent_prompt, stage_prompts
from rubricem_agent.wiring.input_hashes import search_sha256
from rubricem_agent.wiring.models import (
    TEACHER_KEY,
    connect_chat_model,
    google_key_for,
    naming,
    refuse_effort,
    requires_extra,
)
from rubricem_agent.wiring.on_ray import limits_of, run_on_ray
from rubricem_agent.wiring.prices import list_prices
from rubricem_agent.wiring.probe import model_probes, require_answers, search_probes
from rubricem_agent.wiring.question_tools import NO_TOOLS, OFFLINE, tools_of_questions
from rubricem_agent.wiring.tools import TOKEN_VARIABLE, open_tools
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.limits.limiter import Limiter, LimiterOf, own_limiter
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel, expected_usage
from rubricem_env.llm.prices import Price, price_name, price_of, with_given
from rubricem_env.llm.usage import Meter, SpendLimitReached, Usage
from rubricem_env.tools.render import TokenCount, estimate_tokens
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, RUN_SQL, SHIPPED_SPECS, ToolSpec
from rubricem_env.world.almanac import shipped_questions_path
from rubricem_env.world.questions import Question
from rubricem_records.files.atomic_files import MAKE_ROOM, write_atomic, writing
from rubricem_records.files.line_file import LineFile
from rubricem_records.runs.run_settings import SETTINGS_FILE

if TYPE_CHECKING:
    pass


_JOURNAL_FILE = "journal.jsonl"
_SHAPING = {
    "scaffold",
    "flat",
    "faults",
    "seed",
    "temperature",
    "effort",
    "max_rounds",
    "max_tokens",
    "max_output_tokens",
}
"""The settings that a trace depends on, beside the teacher."""
_BATCH_TEACHERS = (GEMINI_BATCH, DIRECTORY, SCRIPTED)
"""Teachers that take a whole round of requests at once."""
OnTrace = Callable[[Trace], None]


def read_questions(config: TeacherConfig) -> QuestionFile:
    """The questions of a run, up to its limit."""
    questions = read_question_file(config.questions or shipped_questions_path())
    return questions._replace(tasks=questions.tasks[: config.limit])


def tools_of(config: TeacherConfig, questions: QuestionFile) -> ToolsConfig:
    """The tools of a run; the almanac's own questions need none named.

    Raises:
        UsageError: questions about the real world would be answered from the almanac, unasked.
    """
    scaffold = config.stage_set.scaffold
    if not scaffold.calls_tools:
        if config.tools not in ("", NO_TOOLS):
            raise ConfigError(f"the stages of {scaffold.name} call no tool, and tools is {config.tools}; leave it out.")
        return parse_tools(NO_TOOLS)
    if all(task.id in questions.almanac for task in questions.tasks):
        return parse_tools(config.tools or OFFLINE)
    return tools_of_questions(config.tools, questions=f"the questions of {config.questions}")


def prompts_of(config: TeacherConfig, specs: Sequence[ToolSpec] = ()) -> TeacherPrompts:
    """The prompts of a teacher that is a model, with the limits of the settings; `specs` say more of its tools."""
    limits = config.model_dump(include={"max_rounds", "max_output_tokens", "temperature"})
    if config.flat:
        return TeacherPrompts.ours(flat=True, **limits)
    return TeacherPrompts.of_stages(config.stage_set, rules=student_prompt(config, specs).system, **limits)


def taught_tools(scaffold: Scaffold) -> tuple[str, ...]:
    """The tools that traces have: those of the task, without the reading of pages, as in the paper."""
    return tuple(name for name in scaffold.tools if name not in (FETCH_PAGE_SPEC.name, *FETCH_PAGE_SPEC.aliases))


def student_prompt(config: TeacherConfig, specs: Sequence[ToolSpec] = ()) -> AgentPrompt:
    """The prompt that the samples have: the agent's."""
    stage_set = config.stage_set
    return agent_prompt(
        taught_tools(stage_set.scaffold),
        style="react" if config.flat else "scaffold",
        prompts=stage_prompts(stage_set),
        specs=specs,
        scaffold=stage_set.scaffold,
    )


def teacher_prices(config: TeacherConfig) -> Mapping[str, Price]:
    """The prices that the teacher's calls are metered at: the given one, or the list's; half of it in batch jobs.

    Raises:
        ConfigError: a limit in dollars could not hold, because the price is unknown.
    """
    spec = parse_teacher(config.teacher)
    prices = with_given({spec.model: config.price} if config.price is not None else {}, list_prices())
    price = price_of(spec.model, prices)
    if config.ceilings.dollars is not None and spec.backend != SCRIPTED:
        if spec.backend == DIRECTORY:
            raise ConfigError(
                "replies in a folder come without their cost, so --max-dollars cannot hold; set the limit where the "
                "requests are answered."
            )
        if price is None:
            raise ConfigError(
                f"no price of {spec.model} is known, so --max-dollars cannot hold; give what a million tokens cost, "
                "read and written, as in --price 2,12."
            )
    if price is None or config.price is not None or spec.backend != GEMINI_BATCH:
        return prices
    return {**prices, price_name(spec.model): price.batched}


def teach(
    config: TeacherConfig, environ: Mapping[str, str] = os.environ, *, on_trace: OnTrace | None = None
) -> Harvest:
    """Write all missing traces, and filter them into samples under `config.out`.

    Raises:
        ConfigError: a name is wrong or a key is missing.
        MissingExtraError: a package is missing.
        RepliesPending: a batch is in progress; the same call resumes when its replies are there.
        UsageError: the folder holds traces that were written with other settings.
    """
    environ = naming(environ, TEACHER_KEY, config.teacher)
    is_scripted = parse_teacher(config.teacher).backend == SCRIPTED
    questions = read_questions(config)
    tools = tools_of(config, questions)
    specs = asyncio.run(_described_tools(config, tools, environ))
    prompt_hash = "" if is_scripted else prompts_of(config, specs).hash
    shards = split_shards(config, questions)
    _keep_settings(config, prompt_hash, tools)
    if len(shards) == 1:
        traces = asyncio.run(write_shard(*shards[0], environ, on_trace=on_trace))
    else:
        calls = [(shard, questions, dict(environ), os.getcwd()) for shard, questions in shards]
        written = run_on_ray(_write_in_process, calls, what="writing in shards")
        traces = [trace for part in written for trace in part]
    tokenizer = load_chat_tokenizer(config.tokenizer) if config.tokenizer else None
    prompt = student_prompt(config, specs)
    harvested = harvest(
        traces,
        system=prompt.system,
        user=lambda query: prompt.opening(query).user,
        teacher=config.teacher,
        prompt_hash=prompt_hash,
        max_unknown_citations=config.max_unknown_citations,
        flat=config.flat,
        max_tokens=config.max_tokens,
        count_tokens=None if tokenizer is None else lambda sample: len(encode_sample(sample, tokenizer).ids),
        specs=[spec for spec in SHIPPED_SPECS if spec.name in taught_tools(prompt.scaffold)],
    )
    write_harvest(config.out, harvested)
    return harvested


async def _described_tools(config: TeacherConfig, tools: ToolsConfig, environ: Mapping[str, str]) -> Sequence[ToolSpec]:
    """The tools whose description is of what they are opened on, such as the tables of `run_sql`."""
    if RUN_SQL not in taught_tools(config.stage_set.scaffold):
        return ()
    async with open_tools(tools, environ) as opened:
        return opened.specs


def _keep_settings(config: TeacherConfig, prompt_hash: str, tools: ToolsConfig) -> None:
    """Write what a trace depends on beside the journals, or compare it with that of the traces that are there."""
    path = config.out / SETTINGS_FILE
    searched = {"search": tools.searched, "search_sha256": search_sha256(config.tools)}
    folding = {"context", "tokenizer"} if config.context.fold_at is not None else set()
    shaping = config.model_dump(mode="json", include=_SHAPING | folding)
    settings = json.dumps({**shaping, "prompt": prompt_hash, **searched})
    if path.exists() and any(config.out.rglob(_JOURNAL_FILE)):
        refuse_other_run(config.out, path.read_text(encoding="utf-8"), settings)
    with writing(path, MAKE_ROOM):
        write_atomic(path, settings)


Shard = tuple[TeacherConfig, QuestionFile]
"""A part of the questions, and the settings to write them with: `out` is the shard's own folder."""


def split_shards(config: TeacherConfig, questions: QuestionFile) -> list[Shard]:
    """Every Nth question goes to the same shard, with its share of the limits."""
    count = config.shards
    if count == 1:
        return [(config, questions)]
    limits = config.ceilings.share(count)
    shards = []
    for number in range(count):
        out = config.out / f"shard-{number:02d}-of-{count:02d}"
        part = questions._replace(tasks=questions.tasks[number::count])
        shards.append((config.model_copy(update={"ceilings": limits, "out": out}), part))
    return shards


async def write_shard(
    config: TeacherConfig,
    questions: QuestionFile,
    environ: Mapping[str, str],
    *,
    on_trace: OnTrace | None = None,
    limiter_of: LimiterOf = own_limiter,
) -> list[Trace]:
    """The traces of a shard, written through its own journal."""
    spec = parse_teacher(config.teacher)
    tasks, almanac = questions
    meter = Meter(config.ceilings, prices=teacher_prices(config))
    recall_usage(config.out, meter)

    def record(trace: Trace) -> None:
        keep_usage(config.out, meter)
        if on_trace is not None:
            on_trace(trace)

    tools = tools_of(config, questions)
    named = naming(environ, TOKEN_VARIABLE, config.tools) if url_host(config.tools) else environ
    specs = await _described_tools(config, tools, named)
    prompts = prompts_of(config, specs)
    teacher = _build_teacher(spec, config, prompts=prompts, almanac=almanac, environ=environ, meter=meter)
    probes = [*model_probes(environ, teacher=config.teacher), *search_probes(tools, environ)] if config.probe else []
    async with aclosing(teacher), open_tools(tools, named, limiter_of=limiter_of) as opened:
        generation = Generation(
            teacher,
            opened.toolbox,
            journal=LineFile(config.out / _JOURNAL_FILE),
            max_rounds=config.max_rounds,
            max_tokens=config.max_tokens,
            together=len(tasks) if spec.backend in _BATCH_TEACHERS else 1,
            concurrency=config.concurrency,
            begin=partial(require_answers, probes),
            student=Student(
                config.stage_set.scaffold, config.context, student_prompt(config, specs).system, _count_of(config)
            ),
        )
        return await generation.run(tasks, on_trace=record)


def _count_of(config: TeacherConfig) -> TokenCount:
    """The student's own count of tokens where its tokenizer is named and the context is bounded."""
    if not config.tokenizer or config.context.fold_at is None:
        return estimate_tokens
    tokenizer = load_chat_tokenizer(config.tokenizer)
    return lambda text: len(tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids)


def load_chat_tokenizer(name: str) -> ChatTokenizer:
    """The tokenizer of a model, by folder or name.

    Raises:
        ConfigError: it cannot be loaded, or has no chat template.
        MissingExtraError: transformers is not installed.
    """
    with requires_extra("local", "counting tokens exactly"):
        from transformers import AutoTokenizer
    try:
        # It only counts: transformers would warn of a sample longer than the model.
        tokenizer: Any = AutoTokenizer.from_pretrained(str(model_folder(Path(name))), model_max_length=2**40)
    except (OSError, ValueError) as cause:
        raise ConfigError(f"no tokenizer can be loaded from {name!r}: {str(cause).splitlines()[0]}") from cause
    if not tokenizer.chat_template:
        raise ConfigError(f"the tokenizer {name!r} has no chat template; samples are conversations. Add one to it.")
    loaded: ChatTokenizer = tokenizer
    return loaded


def _build_teacher(
    spec: ModelSpec,
    config: TeacherConfig,
    *,
    prompts: TeacherPrompts,
    almanac: Mapping[str, Question],
    environ: Mapping[str, str],
    meter: Meter,
) -> Teacher:
    if spec.backend == SCRIPTED:
        return ScriptedTeacher(almanac, faults=config.faults, seed=config.seed, flat=config.flat)
    refuse_effort(spec, config.effort, role="teacher")
    timing = Timing.real(config.seed)
    if spec.backend == DIRECTORY:
        root = Path(spec.model)
        folder = root if config.shards == 1 else root / config.out.name
        return BatchTeacher(folder, prompts=prompts)
    if spec.backend == GEMINI_BATCH:
        key = google_key_for(spec.url, environ, own=TEACHER_KEY, who=f"the teacher gemini-batch:{spec.model}")
        with requires_extra("judge", "Gemini batch jobs"):
            from rubricem_agent.data.gemini_batch import GeminiBatch

        def spend(usage: Usage) -> None:
            meter.book(PURPOSE, spec.model, usage=usage)
            keep_usage(config.out, meter)

        carrier = GeminiBatch(
            spec.model, key, timing=timing, base_url=spec.url or None, spend=spend, effort=config.effort
        )
        return BatchTeacher(
            config.out / "batches",
            prompts=prompts,
            name=carrier.name,
            carry=carrier.carry,
            close=carrier.aclose,
            affordable=partial(_affordable, model=spec.model, meter=meter),
        )
    model, redactor = connect_chat_model(
        spec, environ, own_key=TEACHER_KEY, role="teacher", timeout=config.timeout, effort=config.effort
    )
    metered = MeteredModel(model, limiter=Limiter(config.rates, timing), meter=meter, redactor=redactor)
    return ChatTeacher(metered, prompts, timing=timing, retry=RetryPolicy())


def _affordable(requests: Sequence[ChatRequest], *, model: str, meter: Meter) -> int:
    """How many of the requests, from the first, the limits allow if each reply is as long as it may be.

    Raises:
        SpendLimitReached: not one.
    """
    expected = Usage()
    for number, request in enumerate(requests):
        expected += expected_usage(request)
        try:
            meter.require(model, expected=expected)
        except SpendLimitReached:
            if number == 0:
                raise
            return number
    return len(requests)


def _write_in_process(
    config: TeacherConfig, questions: QuestionFile, environ: Mapping[str, str], folder: str, service: Any
) -> list[Trace]:
    os.chdir(folder)
    return asyncio.run(write_shard(config, questions, environ, limiter_of=limits_of(service)))
