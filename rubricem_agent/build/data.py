"""Builds teachers from their settings and runs them, in this process or in shards on Ray.

Brings a data set here and makes a training set of it: files, the hub, parquet, and what is evaluated on.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.build.models import google_key_for, key_for
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config import (
    DIRECTORY,
    GEMINI,
    GEMINI_BATCH,
    SCRIPTED,
    TeacherConfig,
    TeacherSpec,
    ToolsConfig,
    load_tools_config,
    parse_teacher,
)
from rubricem_agent.data.batch_teacher import BatchRequestQueue, BatchTeacher, Carrier, Nobody
from rubricem_agent.data.chatml import ChatTokenizer, encode_sample
from rubricem_agent.data.filter import (
    Harvest,
    SampleContext,
    TraceFilter,
    harvest,
    keep_usage,
    recall_usage,
    write_harvest,
)
from rubricem_agent.data.generate import Generation, QuestionFile, Teacher, TeachJournal, Trace, read_question_file
from rubricem_agent.data.prepare import (
    MAX_QUESTION_TOKENS,
    Preparation,
    PreparedSet,
    SourceRow,
    question_in,
    stream_rows,
    wording,
    write_training_set,
)
from rubricem_agent.data.teacher import ChatTeacher, ScriptedTeacher, TeacherPrompts
from rubricem_agent.evals.base import DataPaths
from rubricem_agent.evals.suite import SUITE, load_benchmark
from rubricem_agent.prompting import PromptStyle, agent_prompt
from rubricem_env.domain.errors import ConfigError, FileFormatError, MissingExtraError
from rubricem_env.llm.base import ChatModel, MeteredModel, Redactor
from rubricem_env.llm.limits import Limiter, RetryPolicy, Timing
from rubricem_env.llm.usage import SpendLimits, Meter
from rubricem_env.tools.base import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.world.almanac import load_questions, shipped_questions_path

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
    share = SpendLimits(
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
                journal=TeachJournal(shard.folder / "journal.jsonl"),
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
        return BatchTeacher(BatchRequestQueue(folder), Nobody(), prompts=prompts)
    if spec.kind == GEMINI_BATCH:
        return BatchTeacher(
            BatchRequestQueue(shard.folder / "batches"), _gemini_batch(spec, environ, timing=timing), prompts=prompts
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


def _frame(config: TeacherConfig) -> SampleContext:
    style = PromptStyle.REACT if config.flat else PromptStyle.SCAFFOLD
    prompt = agent_prompt((GOOGLE_SEARCH, SNIPPET_SEARCH), style=style)
    prompt_hash = "" if parse_teacher(config.teacher).kind == SCRIPTED else TeacherPrompts.ours().hash
    return SampleContext(prompt.system, lambda query: prompt.opening(query).user, config.teacher, prompt_hash)


def _filter(config: TeacherConfig) -> TraceFilter:
    keep = TraceFilter(config.max_unknown_citations, config.flat, config.max_tokens)
    if not config.tokenizer:
        return keep
    tokenizer = load_chat_tokenizer(config.tokenizer)
    return keep._replace(count_tokens=lambda sample: len(encode_sample(sample, tokenizer).ids))


HUB = "hf:"
_READABLE = (".jsonl", ".json", ".parquet")


def prepare(
    source: str,
    out: Path,
    *,
    evals: Sequence[str] = (),
    max_question_tokens: int = MAX_QUESTION_TOKENS,
    skips_broken: bool = False,
) -> PreparedSet:
    """Write the training set of a file, or of `hf:OWNER/NAME[/FILE][@REVISION]`.

    Each of `evals` is a file of JSON lines, or NAME=FILE with one of the suite's benchmarks in its own form; their
    questions and the almanac's held-out ones are left out.

    Raises:
        ConfigError: a name is none.
        FileFormatError: a file cannot be fetched or read, or holds nothing fit to train on.
        MissingExtraError: a package is missing.
    """
    path = fetch_data_set(source) if source.startswith(HUB) else Path(source).expanduser()
    if path.exists() and out.exists() and path.samefile(out):
        raise ConfigError(f"{out} is the data set itself; write the training set beside it with -o OTHER.jsonl.")
    preparation = Preparation(evaluated_wordings(evals), max_question_tokens=max_question_tokens)
    return write_training_set(out, read_rows(path), preparation=preparation, skips_broken=skips_broken)


def read_rows(path: Path) -> Iterator[SourceRow]:
    """The rows of a file by its ending: .parquet is a table, all else is JSON."""
    return _table_rows(path) if path.suffix.casefold() == ".parquet" else stream_rows(path)


def evaluated_wordings(evals: Iterable[str]) -> frozenset[str]:
    """The wordings of all questions that must not be trained on."""
    asked = [question.question for question in load_questions(shipped_questions_path()) if question.split != "train"]
    for given in evals:
        name, sign, path = given.partition("=")
        if sign and name in SUITE:
            paths = DataPaths(path=Path(path).expanduser())
            loaded = load_benchmark(name, paths, rules=SUITE[name].official, any_version=True)
            asked += [example.prompt_text for example in loaded.examples]
        else:
            asked += list(_questions_of(Path(given).expanduser()))
    return frozenset(wording(question) for question in asked)


def _questions_of(path: Path) -> Iterator[str]:
    """The questions of a file, which must name one in each row: a file half understood guards nothing."""
    for row in read_rows(path):
        question = question_in(row.content) if isinstance(row.content, dict) else ""
        if not question:
            raise FileFormatError(
                f"{path}, row {row.number} names no question, so it cannot be kept out of training. Give JSON lines "
                f"with 'question', or NAME=FILE with NAME one of {', '.join(SUITE)}."
            )
        yield question


def fetch_data_set(source: str) -> Path:
    """The file of a data set on the hub, from the cache where it is there already.

    Raises:
        ConfigError: the name is not hf:OWNER/NAME[/FILE][@REVISION], or does not tell which of several files.
        MissingExtraError: huggingface_hub is not installed.
        FileFormatError: it cannot be fetched.
    """
    name, _, revision = source.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository):
        raise ConfigError(f"the data set is {source!r}; one on the hub is named hf:OWNER/NAME[/FILE][@REVISION].")
    try:
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "huggingface_hub", "local", "a data set from the hub") from cause
    at = revision or None
    try:
        if not file:
            files = HfApi().list_repo_files(f"{owner}/{repository}", repo_type="dataset", revision=at)
            file = choose_file(files, source)
        return Path(hf_hub_download(f"{owner}/{repository}", file, repo_type="dataset", revision=at))
    except (HTTPError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as cause:
        raise FileFormatError(
            f"{source} cannot be fetched ({type(cause).__name__}). Without a network, fetch the file elsewhere and "
            "give its path."
        ) from cause


def choose_file(files: Iterable[str], source: str) -> str:
    """The one file of a repository that can be read, or the only one of them for training.

    Raises:
        ConfigError: there is none, or several.
    """
    readable = sorted(file for file in files if file.endswith(_READABLE))
    training = [file for file in readable if "train" in file.casefold()]
    for candidates in (readable, training):
        if len(candidates) == 1:
            return candidates[0]
    held = f"holds {', '.join(readable)}" if readable else f"holds no file that ends in {', '.join(_READABLE)}"
    raise ConfigError(f"{source} {held}; name one as hf:OWNER/NAME/FILE[@REVISION].")


def _table_rows(path: Path) -> Iterator[SourceRow]:
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "pyarrow", "verl", "reading parquet") from cause
    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield SourceRow(number, row)
    except (arrow.ArrowException, OSError) as cause:
        raise FileFormatError(f"cannot read the table {path}: {cause}. Give a parquet file or JSON lines.") from cause
