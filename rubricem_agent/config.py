"""The settings of an evaluation: which benchmark in which mode, who answers and who judges, how much of it.

The settings of a judge: which backend, how it is asked, how rubrics are kept, what it may cost.

The settings of the rubric bank: where it lies, how it embeds, what it lets in and what it offers.

The settings of a policy: which backend, how it samples, what it may cost.

The settings of teacher data: who writes, from which questions, what is kept and what it may cost.

What may be set about the search tools.
"""

import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rubricem_agent.evals.answers import Reuse
from rubricem_agent.evals.base import EvaluationMode, Rules
from rubricem_agent.evals.manifest import SubsetName
from rubricem_agent.evals.runner import Limits, RunPhase
from rubricem_agent.memory.bank import RetrievalSettings
from rubricem_agent.memory.gate import GateLimits
from rubricem_agent.memory.inject import BLOCK_TOKENS
from rubricem_agent.policy.base import Sampling
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError, parse_assignment, suggest_name
from rubricem_env.domain.trajectory import first_problem
from rubricem_env.judge.base import JudgeSettings
from rubricem_env.judge.ensemble import Combine
from rubricem_env.judge.llm_judge import AskSettings
from rubricem_env.llm.limits import Rates, RetryPolicy
from rubricem_env.llm.usage import SpendLimits
from rubricem_env.world.expert import Faults

GIVEN = "file:"
"""Begins the name of a policy that is a file of answers."""
EXPERT = "expert"
"""The almanac's own expert."""
OPENAI_URL = "https://api.openai.com/v1"

Count = Annotated[int, Field(ge=1)]


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping.

    Raises:
        ConfigError: the file cannot be read, or is not a mapping.
    """
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        reason = " ".join(str(cause).split())
        raise ConfigError(f"cannot read the config {path}: {reason}. Give the path of a YAML file.") from cause
    if not isinstance(fields, dict | None):
        raise ConfigError(f"{path} holds a YAML {type(fields).__name__}; a config is a mapping of keys to values.")
    return fields or {}


def parse_yaml_assignment(text: str, *, example: str) -> tuple[str, Any]:
    """The key of a KEY=VALUE argument, and its value read as YAML.

    Raises:
        ConfigError: the argument is not KEY=VALUE, or the value is not YAML.
    """
    key, value = parse_assignment(text, example=example)
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as cause:
        raise ConfigError(f"the value of {text!r} is not YAML; write KEY=VALUE, such as {example}.") from cause


class Style(StrEnum):
    """By which rules the agent works."""

    SCAFFOLD = "scaffold"
    REACT = "react"
    """Think and act, with the same model and tools: the paper's comparison."""


class EvalConfig(Frozen):
    """Everything that a run is made from; the defaults are the paper's main tables: no memory, one attempt, one epoch."""

    benchmark: str
    mode: EvaluationMode = EvaluationMode.OFFICIAL
    data: str = ""
    """The official file, or `hf:OWNER/NAME/FILE[@REVISION]`."""
    criteria: Path | None = None
    references: Path | None = None
    any_version: bool = False
    fact: bool = False
    policy: str = "scripted"
    """As any policy of the project, `file:ANSWERS.jsonl`, or `expert` for the almanac."""
    judges: tuple[str, ...] = ()
    """`gemini:MODEL[@URL]` or `openai:MODEL@URL`; without any, the mode's own."""
    limit: Count | None = None
    subset: SubsetName = SubsetName.MODE
    ids: Path | None = None
    epochs: Count = 1
    stage: RunPhase = RunPhase.ALL
    style: Style = Style.SCAFFOLD
    reuse: Reuse = Reuse.NONE
    bank: Path | None = None
    attempts: Count = 1
    tools: Path | None = None
    """A file of tool settings; without it the offline corpus answers."""
    seen: tuple[Path, ...] = ()
    drop_seen: bool = False
    out: Path | None = None
    answers_from: Path | None = None
    """A run whose answers are judged here: its examples, epochs and policy are taken over, and nothing is answered."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """Dollars, over all the times that the run is resumed. Models without a known price are not counted."""
    limits: Limits = Limits()
    retry: RetryPolicy = RetryPolicy()
    seed: Annotated[int, Field(ge=0)] = 0
    shard: tuple[int, int] = (1, 1)
    """Which part of how many this process runs."""

    @property
    def asks_a_model(self) -> bool:
        """Whether answering costs anything."""
        return self.policy not in (EXPERT, "scripted") and not self.policy.startswith(GIVEN)

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / "eval" / f"{self.benchmark}-{self.mode.value}"

    def check(self) -> None:
        """Refuse what does not go together.

        Raises:
            ConfigError: in one sentence, with the way out.
        """
        number, total = self.shard
        if not 1 <= number <= total:
            raise ConfigError(f"--shard is {number}/{total}; the parts are numbered from 1 to their number.")
        if self.reuse is Reuse.CROSS and self.bank is None:
            raise ConfigError("--reuse cross needs the bank to retrieve from. Give its folder with --bank.")
        if self.reuse is Reuse.WITHIN and self.attempts < 2:
            raise ConfigError("--reuse within shows the reflection on an earlier attempt. Use --attempts 2 or more.")
        if self.reuse is not Reuse.NONE and self.policy.startswith(GIVEN):
            raise ConfigError("answers from a file cannot be given a memory. Use --reuse none, or another policy.")
        if self.benchmark != "drb" and (self.criteria or self.references or self.fact):
            raise ConfigError(
                f"--criteria, --references and --fact belong to the benchmark drb; {self.benchmark} has none of them. "
                "Leave them out."
            )
        if self.answers_from is not None and self.stage is RunPhase.ANSWERS:
            raise ConfigError("--answers-from judges the answers of another run. Leave --stage answers out.")
        if self.policy == EXPERT and self.benchmark != "almanac":
            raise ConfigError("the policy expert knows the questions of the almanac alone. Use another --policy.")


def default_judges(rules: Rules) -> tuple[str, ...]:
    """The mode's own judge at its maker's address; none where nothing is judged by a model."""
    if not rules.judge:
        return ()
    if rules.judge.startswith("gemini"):
        return (f"gemini:{rules.judge}",)
    return (f"openai:{rules.judge}@{OPENAI_URL}",)


RULES = "rules"
GEMINI = "gemini"
OPENAI = "openai"
_WAY_OUT = "Use rules, gemini:MODEL or openai:MODEL@URL."
_SPEC = re.compile(r"(?P<backend>[a-z]+)(?::(?P<model>[^@\s]+)(?:@(?P<url>\S+))?)?")


class JudgeSpec(NamedTuple):
    """A judge as it is named on the command line."""

    backend: str
    model: str = ""
    url: str = ""


class JudgeConfig(Frozen):
    """Everything that a judge is built from; the defaults are the paper's."""

    judge: str = RULES
    """`rules`, `gemini:MODEL` or `openai:MODEL@URL`."""
    also: tuple[str, ...] = ()
    """Further judges; with any, they mark as an ensemble."""
    combine: Combine = "mean"
    ask: AskSettings = AskSettings()
    settings: JudgeSettings = JudgeSettings()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""


def parse_judge(text: str) -> JudgeSpec:
    """A judge's name, taken apart.

    Raises:
        ConfigError: there is no such backend, or a part of the name is missing or not a web address.
    """
    found = _SPEC.fullmatch(text.strip())
    spec = JudgeSpec(*(part or "" for part in found.groups())) if found else JudgeSpec("")
    if spec.backend not in (RULES, GEMINI, OPENAI):
        raise ConfigError(f"there is no judge {text!r}. {_WAY_OUT}")
    if spec.backend == RULES:
        if spec.model:
            raise ConfigError(f"the judge {text!r} names a model, but rules need none. {_WAY_OUT}")
        return spec
    if not spec.model or (spec.backend == OPENAI and not spec.url):
        lacking = "a model" if not spec.model else "a URL"
        raise ConfigError(f"the judge {text!r} lacks {lacking}. {_WAY_OUT}")
    address = urlsplit(spec.url)
    if spec.url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(f"the judge's URL is {spec.url!r}; it must start with http:// or https://. {_WAY_OUT}")
    return spec


MINILM = "minilm"
QWEN3 = "qwen3-embedding-0.6b"
HASHING = "hashing"
WITH_WEIGHTS = (MINILM, QWEN3)
"""Those that are models, and take time and threads."""
EMBEDDERS = (*WITH_WEIGHTS, HASHING)


class BankConfig(Frozen):
    """Everything that a bank is built from; the defaults are the paper's, but for the embedder."""

    folder: Path | None = None
    """Where the bank lasts; None keeps it in memory, for training that saves its snapshots."""
    embedder: str = MINILM
    """`minilm` comes with its package, `qwen3-embedding-0.6b` is the paper's, `hashing` needs nothing."""
    embedder_path: Path | None = None
    """A folder with the weights of qwen3-embedding-0.6b; None looks in the local cache. Nothing is downloaded."""
    retrieval: RetrievalSettings = RetrievalSettings()
    gate: GateLimits = GateLimits()
    is_moderated: bool = False
    """New items wait in quarantine until a person approves them."""
    reference_tokens: Annotated[int, Field(ge=1)] = BLOCK_TOKENS
    """The most that the reference block before a question may take."""


SCRIPTED = "scripted"
LOCAL = "local"
VLLM = "vllm"
_POLICY_WAY_OUT = "Use scripted, openai:MODEL@URL, vllm:MODEL@URL#FOLDER, gemini:MODEL or local:PATH."
_SERVED = re.compile(r"(?P<model>[^@\s]+)(?:@(?P<url>\S+))?")


class PolicySpec(NamedTuple):
    """A policy as it is named on the command line."""

    backend: str
    model: str = ""
    """The model's name, or the folder of a local one."""
    url: str = ""
    tokenizer: str = ""
    """The folder of the tokenizer of a model that is served in token mode."""


class PolicyConfig(Frozen):
    """Everything that a policy is built from."""

    policy: str = SCRIPTED
    """`scripted`, `openai:MODEL@URL`, `vllm:MODEL@URL#FOLDER`, `gemini:MODEL` or `local:PATH`."""
    sampling: Sampling = Sampling()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    retry: RetryPolicy = RetryPolicy()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds of silence after which a server counts as gone."""
    local_rows: Annotated[int, Field(ge=1)] = 16
    """Conversations that a local model keeps in its cache at once."""
    local_max_length: Annotated[int, Field(ge=256)] = 26_624
    """Tokens of one conversation in a local model's cache; the paper's prompt and response together."""


def parse_policy(text: str) -> PolicySpec:
    """A policy's name, taken apart.

    Raises:
        ConfigError: there is no such backend, or a part of the name is missing or not a web address.
    """
    backend, _, rest = text.strip().partition(":")
    if backend == SCRIPTED and not rest:
        return PolicySpec(SCRIPTED)
    if backend not in (OPENAI, GEMINI, LOCAL, VLLM):
        raise ConfigError(f"there is no policy {text!r}. {_POLICY_WAY_OUT}")
    if backend == LOCAL:
        if not rest:
            raise ConfigError(f"the policy {text!r} lacks the folder of a model. {_POLICY_WAY_OUT}")
        return PolicySpec(LOCAL, rest)
    if backend == VLLM:
        return _parse_in_tokens(text, rest)
    return _parse_served(text, backend, rest=rest)


def _parse_in_tokens(text: str, rest: str) -> PolicySpec:
    """MODEL@URL#FOLDER; without a folder MODEL is one, as where vLLM was started with it."""
    served, _, folder = rest.partition("#")
    spec = _parse_served(text, VLLM, rest=served)
    return spec._replace(tokenizer=folder or spec.model)


def _parse_served(text: str, backend: str, *, rest: str) -> PolicySpec:
    found = _SERVED.fullmatch(rest)
    if found is None or (backend != GEMINI and not found["url"]):
        lacking = "a model" if found is None else "a URL"
        raise ConfigError(f"the policy {text!r} lacks {lacking}. {_POLICY_WAY_OUT}")
    url = found["url"] or ""
    address = urlsplit(url)
    if url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(f"the policy's URL is {url!r}; it must start with http:// or https://. {_POLICY_WAY_OUT}")
    if address.username or address.password or address.query or address.fragment:
        raise ConfigError("the policy's URL has a login, a query or a fragment; keys go into the environment.")
    return PolicySpec(backend, found["model"], url)


GEMINI_BATCH = "gemini-batch"
DIRECTORY = "directory"
_WITH_MODEL = (GEMINI, GEMINI_BATCH, OPENAI)
_TEACHER_WAY_OUT = "Use scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL or directory:PATH."
_TEACHER_SPEC = re.compile(r"(?P<kind>[a-z-]+)(?::(?P<model>[^@\s]+)(?:@(?P<url>\S+))?)?")


class TeacherSpec(NamedTuple):
    """A teacher as it is named on the command line."""

    kind: str
    model: str = ""
    """The path, for a directory."""
    url: str = ""

    @property
    def is_batch(self) -> bool:
        """Whether whole rounds go out at once."""
        return self.kind in (GEMINI_BATCH, DIRECTORY, SCRIPTED)

    @property
    def costs(self) -> bool:
        """Whether its calls may cost money."""
        return self.kind != SCRIPTED


class TeacherConfig(Frozen):
    """A generation run; the defaults are the paper's."""

    questions: Path | None = None
    """None for the training questions of the shipped almanac."""
    out: Path
    """The journal, the samples, what was rejected and why."""
    teacher: str = SCRIPTED
    tools: Path | None = None
    """A TOML file of tool settings; None searches the shipped corpus."""
    faults: Faults = Faults()
    """Of the scripted teacher."""
    flat: bool = False
    """Scripted teacher: think and act without the scaffold."""
    seed: int = 0
    limit: Count | None = None
    """Take only so many questions, from the first."""
    max_rounds: Annotated[int, Field(ge=2)] = 10
    max_tokens: Count = 16_384
    max_unknown_citations: Annotated[int, Field(ge=0)] = 0
    concurrency: Count = 64
    """Episodes at once, for a live teacher."""
    tokenizer: str = ""
    """The student's, as transformers loads it, to count tokens exactly; empty counts four bytes a token."""
    shards: Count = 1
    """Processes on Ray; 1 runs in this one."""
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""


def parse_teacher(text: str) -> TeacherSpec:
    """A teacher's name, taken apart.

    Raises:
        ConfigError: there is no such teacher, or a part of the name is missing or not a web address.
    """
    if text.startswith(f"{DIRECTORY}:") and len(text) > len(DIRECTORY) + 1:
        return TeacherSpec(DIRECTORY, text.removeprefix(f"{DIRECTORY}:"))
    found = _TEACHER_SPEC.fullmatch(text.strip())
    spec = TeacherSpec(*(part or "" for part in found.groups())) if found else TeacherSpec("")
    if spec.kind not in (SCRIPTED, *_WITH_MODEL):
        raise ConfigError(f"there is no teacher {text!r}. {_TEACHER_WAY_OUT}")
    if bool(spec.model) != (spec.kind in _WITH_MODEL) or (spec.kind == OPENAI and not spec.url):
        raise ConfigError(f"the teacher {text!r} has a part too many or too few. {_TEACHER_WAY_OUT}")
    address = urlsplit(spec.url)
    if spec.url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(
            f"the teacher's URL is {spec.url!r}; it must start with http:// or https://. {_TEACHER_WAY_OUT}"
        )
    return spec


SEARCH_KEY = "RUBRICEM_SEARCH_KEY"
"""The variable with the key of a server that speaks Gemini's API and is not Google's."""
Dollars = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]


class _Settings(BaseModel):
    """A group of keys; an unknown one is refused with the nearest known name."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _knows_its_keys(cls, given: Any) -> Any:
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields:
                raise ValueError(f"there is no key {key!r}; {suggest_name(str(key), cls.model_fields, cutoff=0.5)}")
        return given


class RateConfig(_Settings):
    """How fast one engine is asked."""

    concurrency: Count = 64
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None


class GoogleSearchConfig(_Settings):
    """The engine behind google_search."""

    engine: Literal["gemini", "plain"] = "gemini"
    """gemini: grounded generation, key GEMINI_API_KEY. plain: a Serper-like endpoint, key SERPER_API_KEY."""
    model: str = "gemini-3-flash"
    url: str | None = None
    """Another base address of the API (gemini), or the endpoint (plain)."""
    key_header: str = "X-API-KEY"
    """Plain: the header that carries the key."""
    results: Count = 5
    """Plain: how many are asked for."""
    fee: Dollars | None = None
    """Dollars a call beside tokens, for the budget; None takes the engine's usual fee."""
    rates: RateConfig = RateConfig(requests_per_minute=1_000)


class SnippetSearchConfig(_Settings):
    """Semantic Scholar; S2_API_KEY is used where it is set."""

    url: str = "https://api.semanticscholar.org"
    rates: RateConfig = RateConfig(concurrency=4, requests_per_minute=60)


class ToolCacheConfig(_Settings):
    """What is remembered. Errors never are."""

    enabled: bool = True
    path: Path | None = None
    """A SQLite file shared by all processes; None remembers in memory, for this process."""
    ttl_hours: Annotated[float, Field(gt=0)] = 240.0
    entries: Count = 100_000


class ToolBudgetConfig(_Settings):
    """The most that a run may spend on tools; None is no ceiling."""

    calls: Count | None = None
    dollars: Dollars | None = None


class RemoteToolsConfig(_Settings):
    """A `rubricem tools serve` elsewhere; its token is read from RUBRICEM_TOOLS_TOKEN."""

    url: str
    concurrency: Count = 256
    timeout: Seconds = 90.0


class MountedServerConfig(_Settings):
    """Anybody's MCP server: a command to start, or an address."""

    name: str
    command: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Names of our environment variables that the child process gets; it gets no others of ours."""
    url: str | None = None
    token_variable: str | None = None
    """The environment variable that holds the bearer token for the address."""
    only: tuple[str, ...] = ()
    """The tools that are offered; empty offers all."""
    timeout: Seconds = 90.0
    concurrency: Count = 16
    repeats_lost_calls: bool = False
    """True where calling twice does no harm: then a call survives the server's restart."""

    @model_validator(mode="after")
    def _is_command_or_address(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"the server {self.name!r} needs either a command or a url, and not both")
        return self


class ToolsConfig(_Settings):
    """All about the search tools; the defaults need no key and no network."""

    backend: Literal["offline", "web"] = "offline"
    corpus: Path | None = None
    """Offline: the JSONL file that is searched; None is the shipped one."""
    google_search: GoogleSearchConfig = GoogleSearchConfig()
    snippet_search: SnippetSearchConfig = SnippetSearchConfig()
    fetch_page: bool = False
    """Web: offer fetch_page as well."""
    cache: ToolCacheConfig = ToolCacheConfig()
    budget: ToolBudgetConfig = ToolBudgetConfig()
    timeout: Seconds = 30.0
    """For one try of one call."""
    total: Seconds = 60.0
    """For a call in all: retries, and waiting for a place."""
    remote: RemoteToolsConfig | None = None
    """Ask that server instead of a backend in this process."""
    mounted: tuple[MountedServerConfig, ...] = ()
    record: Path | None = None
    """Write every call and its result to this file."""
    replay: Path | None = None
    """Answer from this record, and from nothing else."""

    @model_validator(mode="after")
    def _records_or_replays(self) -> Self:
        if self.record is not None and self.replay is not None:
            raise ValueError("record and replay are both set; a replay has nothing new to record")
        return self


def read_tools_config(settings: Mapping[str, Any], where: str = "tools") -> ToolsConfig:
    """Settings from a mapping.

    Raises:
        ConfigError: a key is unknown or a value out of range; the message names the place and the way out.
    """
    try:
        return ToolsConfig.model_validate(settings)
    except ValidationError as cause:
        raise ConfigError(f"config {where}, {first_problem(cause)}") from cause


def load_tools_config(path: Path) -> ToolsConfig:
    """Settings from a TOML file, at its top level or in its table [tools].

    Raises:
        ConfigError: the file cannot be read, or as `read_tools_config`.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a TOML file.") from cause
    inner = settings.get("tools")
    return read_tools_config(inner if isinstance(inner, dict) else settings, str(path))
