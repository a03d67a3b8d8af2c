"""The settings of evaluations, judges, rubric banks, policies, teachers and search tools."""

import re
import tomllib
from collections.abc import Mapping
from operator import not_
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, model_validator

from rubricem_agent.evals.answers import Reuse
from rubricem_agent.evals.base import EvaluationMode, Rules
from rubricem_agent.evals.manifest import SubsetName
from rubricem_agent.evals.runner import RunPhase
from rubricem_agent.memory.bank import RetrievalSettings
from rubricem_agent.memory.gate import GateLimits
from rubricem_agent.memory.inject import BLOCK_TOKENS
from rubricem_agent.policy.base import TINY, Sampling
from rubricem_agent.prompting import Style
from rubricem_env.domain.base import Frozen, PositiveCount as Count
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import suggest_name, validating
from rubricem_env.judge.ask_settings import AskSettings
from rubricem_env.judge.ensemble import Combine
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.llm.limiter import Rates
from rubricem_env.llm.prices import FLASH, Dollars
from rubricem_env.llm.retry import RetryPolicy
from rubricem_env.llm.usage import SpendLimits
from rubricem_env.tools.engines import ENGINES
from rubricem_env.world.expert_faults import Faults

Section = TypeVar("Section", bound=BaseModel)
GIVEN = "file:"
"""Begins the name of a policy that is a file of answers."""
EXPERT = "expert"
"""The almanac's own expert."""
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"

JUDGE_NAMES = "rules, gemini:MODEL, openai:MODEL@URL, responses:MODEL or anthropic:MODEL"
POLICY_NAMES = "scripted, tiny, openai:MODEL@URL, vllm:MODEL@URL#FOLDER, gemini:MODEL, responses:MODEL, anthropic:MODEL or local:PATH"
OFFICIAL_PROMPTS = "Official judge prompts: a checkout, a folder of checkouts or a package; else our own."


class EvalConfig(Frozen):
    """An evaluation run; the defaults are those of the paper's main tables: no memory, one attempt, one epoch."""

    # A field with a description is an option of `rubricem eval run`.
    benchmark: Annotated[str, Field(description="The benchmark; `rubricem eval list` shows all.")]
    data: Annotated[str, Field(description="The official file, or hf:OWNER/NAME/FILE@REVISION.")] = ""
    criteria: Annotated[Path | None, Field(description="drb: the criteria file.")] = None
    references: Annotated[Path | None, Field(description="drb: the reference articles.")] = None
    any_version: Annotated[bool, Field(description="Accept other hashes and row counts.")] = False
    fact: Annotated[bool, Field(description="drb: check citations as well.")] = False
    mode: Annotated[EvaluationMode, Field(description="Whose protocol.")] = "official"
    policy: Annotated[str, Field(description=f"{POLICY_NAMES}, file:ANSWERS.jsonl, or expert.")] = "scripted"
    judges: tuple[str, ...] = ()
    """`gemini:MODEL[@URL]` or `openai:MODEL@URL`; empty for the mode's own judge."""
    prompts: Annotated[str, Field(description=OFFICIAL_PROMPTS)] = ""
    limit: Annotated[int | None, Field(ge=1, description="Use N examples, by the mode's published rule.")] = None
    subset: Annotated[SubsetName, Field(description="ablation: the same 100 in every run.")] = "mode"
    ids: Annotated[Path | None, Field(description="A file with one example id a line.")] = None
    epochs: Annotated[int, Field(ge=1, description="Repeats of every example; the variance is split.")] = 1
    stage: Annotated[RunPhase, Field(description="Only answers, only verdicts, or all.")] = "all"
    style: Annotated[Style, Field(description="The scaffold, or plain think and act.")] = "scaffold"
    reuse: Annotated[Reuse, Field(description="Reflections put before the question.")] = "none"
    bank: Annotated[Path | None, Field(description="The bank that --reuse cross retrieves from.")] = None
    attempts: Annotated[int, Field(ge=1, description="Episodes in a row; the last answer counts.")] = 1
    tools: Annotated[Path | None, Field(description="TOML of tool settings, or an index; offline by default.")] = None
    seen: tuple[Path, ...] = ()
    """Training data or banks that must not hold the examples."""
    drop_seen: Annotated[bool, Field(description="Skip the examples that --seen holds.")] = False
    out: Annotated[Path | None, Field(description="The run's folder; the same one resumes.")] = None
    answers_from: Annotated[
        Path | None,
        Field(description="Judge the answers of that run, with its examples and epochs, and answer no question."),
    ] = None
    budget: Annotated[
        float | None, Field(gt=0, description="Stop after so many dollars, over all resumes; each model needs a price.")
    ] = None
    prices: Mapping[str, tuple[Dollars, Dollars]] = Field(default_factory=dict)
    """Dollars for a million tokens read and written, by model, in place of the list price; under the empty name, of every
    model that the list does not have."""
    concurrency: Annotated[int, Field(ge=1, description="Episodes at once.")] = 16
    judge_concurrency: Annotated[int, Field(ge=1, description="Judge calls at once.")] = 64
    search_concurrency: Annotated[int, Field(ge=1, description="Searches at once.")] = 16
    retry: RetryPolicy = RetryPolicy()
    sampling: Sampling = Sampling()
    seed: Annotated[int, Field(ge=0, description="Seed of the policy's sampling and of the bootstrap.")] = 0
    probe: bool = True
    """Ask policy, judges and search engine for one token before the first call that costs more."""
    shard: tuple[int, int] = (1, 1)
    """Part number and number of parts: this process runs one part."""

    @property
    def asks_a_model(self) -> bool:
        """Whether answering costs anything."""
        return self.policy not in (EXPERT, "scripted") and not self.policy.startswith(GIVEN)

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / "eval" / f"{self.benchmark}-{self.mode}"

    def check(self) -> None:
        """Raise ConfigError where two settings contradict each other."""
        number, total = self.shard
        if not 1 <= number <= total:
            raise ConfigError(f"--shard is {number}/{total}; the parts are numbered from 1 to their number.")
        if self.reuse == "cross" and self.bank is None:
            raise ConfigError("--reuse cross needs the bank to retrieve from. Give its folder with --bank.")
        if self.reuse == "within" and self.attempts < 2:
            raise ConfigError("--reuse within shows the reflection on an earlier attempt. Use --attempts 2 or more.")
        if self.reuse != "none" and self.policy.startswith(GIVEN):
            raise ConfigError("answers from a file cannot be given a memory. Use --reuse none, or another policy.")
        if self.benchmark != "drb" and (self.criteria or self.references or self.fact):
            raise ConfigError(
                f"--criteria, --references and --fact belong to the benchmark drb; {self.benchmark} has none of them. "
                "Leave them out."
            )
        if self.sampling.top_p < 1 and self.policy.startswith((f"{LOCAL}:", f"{VLLM}:")):
            raise ConfigError(
                f"--top-p is {self.sampling.top_p:g}; {self.policy} records its tokens with their probabilities among all "
                "tokens, and draws from all. Leave --top-p out, or serve the model and use openai:MODEL@URL."
            )
        if self.answers_from is not None and self.stage == "answers":
            raise ConfigError("--answers-from judges the answers of another run. Leave --stage answers out.")
        if self.policy == EXPERT and self.benchmark != "almanac":
            raise ConfigError("the policy expert knows the questions of the almanac alone. Use another --policy.")


def default_judges(rules: Rules) -> tuple[str, ...]:
    """The mode's own judge at its provider's address; empty where no model judges."""
    named = f"gemini:{rules.judge}" if rules.judge.startswith("gemini") else f"openai:{rules.judge}@{OPENAI_URL}"
    return (named,) if rules.judge else ()


RULES = "rules"
GEMINI = "gemini"
OPENAI = "openai"
SCRIPTED = "scripted"
LOCAL = "local"
VLLM = "vllm"
GEMINI_BATCH = "gemini-batch"
DIRECTORY = "directory"
RESPONSES = "responses"
ANTHROPIC = "anthropic"
SERVED = (OPENAI, RESPONSES, ANTHROPIC)
"""Backends that one client asks, each in its own wire; the last two have a server of their own."""
TEACHER_NAMES = (
    "scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL, responses:MODEL, anthropic:MODEL or directory:PATH"
)


class ModelSpec(NamedTuple):
    """A judge, policy or teacher as the command line names it: BACKEND, BACKEND:MODEL or BACKEND:MODEL@URL."""

    backend: str
    model: str = ""
    """The model's name; the folder of a local model, or of a teacher's request files."""
    url: str = ""
    """Of a judge or a teacher also several, separated by commas."""
    tokenizer: str = ""
    """The folder of the tokenizer, for a model that is served in token mode."""

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(self.url.split(","))


def parse_judge(text: str) -> ModelSpec:
    """Parse a judge's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    return _parse_spec("judge", text, without_model=RULES, with_model=(GEMINI, *SERVED), names=JUDGE_NAMES)


def parse_policy(text: str) -> ModelSpec:
    """Parse a policy's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    backend, _, rest = text.strip().partition(":")
    if text.strip() == TINY:
        return ModelSpec(LOCAL, TINY)
    if backend == LOCAL:
        if not rest:
            raise ConfigError(f"the policy {text!r} lacks the folder of a model. Use {POLICY_NAMES}.")
        return ModelSpec(LOCAL, rest)
    served, _, folder = text.partition("#") if backend == VLLM else (text, "", "")
    spec = _parse_spec("policy", served, without_model=SCRIPTED, with_model=(*SERVED, GEMINI, VLLM), names=POLICY_NAMES)
    address = urlsplit(spec.url)
    if address.username or address.password or address.query or address.fragment:
        raise ConfigError("the policy's URL has a login, a query or a fragment; keys go into the environment.")
    # Without #FOLDER the model is one, as where vLLM was started with it.
    return spec._replace(tokenizer=folder or spec.model) if backend == VLLM else spec


def parse_teacher(text: str) -> ModelSpec:
    """Parse a teacher's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    backend, _, rest = text.partition(":")
    if backend == DIRECTORY and rest:
        return ModelSpec(DIRECTORY, rest)
    with_model = (GEMINI, GEMINI_BATCH, *SERVED)
    return _parse_spec("teacher", text, without_model=SCRIPTED, with_model=with_model, names=TEACHER_NAMES)


def _parse_spec(what: str, text: str, *, without_model: str, with_model: tuple[str, ...], names: str) -> ModelSpec:
    backend, _, rest = text.strip().partition(":")
    if text.strip() == without_model:
        return ModelSpec(without_model)
    if backend not in with_model:
        raise ConfigError(f"there is no {what} {text!r}. Use {names}.")
    found = re.fullmatch(r"(?P<model>[^@\s]+)(?:@(?P<url>\S+))?", rest)
    if found is None or (backend in (OPENAI, VLLM) and not found["url"]):
        missing = "a model" if found is None else "a URL"
        raise ConfigError(f"the {what} {text!r} lacks {missing}. Use {names}.")
    url = found["url"] or ""
    spec = ModelSpec(backend, found["model"], url)
    for one in spec.urls if url else ():
        address = urlsplit(one)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"the {what}'s URL is {one!r}; it must start with http:// or https://. Use {names}.")
    if len(spec.urls) > 1 and (what == "policy" or backend != OPENAI):
        raise ConfigError(
            f"the {what} {text!r} has several URLs, as only judges and teachers of openai: may have. Name one, such as "
            "that of a balancer."
        )
    return spec


class JudgeConfig(Frozen):
    """A judge; the defaults are the paper's."""

    judge: str = RULES
    """`rules`, `gemini:MODEL` or `openai:MODEL@URL`."""
    also: tuple[str, ...] = ()
    """Further judges, which score as an ensemble with the first."""
    combine: Combine = "mean"
    ask: AskSettings = AskSettings()
    settings: JudgeSettings = JudgeSettings()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""
    hedge_after: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a call without a reply is made a second time; the first reply is taken, both are counted."""


MINILM = "minilm"
QWEN3 = "qwen3-embedding-0.6b"
HASHING = "hashing"
WITH_WEIGHTS = (MINILM, QWEN3)
"""Embedders that are models, and take time and threads."""
EMBEDDERS = (*WITH_WEIGHTS, HASHING)


class BankConfig(Frozen):
    """A rubric bank; the defaults are the paper's, except for the embedder."""

    folder: Path | None = None
    """Where the bank is stored; None keeps it in memory, for training that saves its snapshots."""
    embedder: str = MINILM
    """`minilm` comes with its package, `qwen3-embedding-0.6b` is the paper's, `hashing` needs no package."""
    embedder_path: Path | None = None
    """A folder with the weights of qwen3-embedding-0.6b; None looks in the local cache. Nothing is downloaded."""
    retrieval: RetrievalSettings = RetrievalSettings()
    gate: GateLimits = GateLimits()
    is_moderated: bool = False
    """New items wait in quarantine until a person approves them."""
    reference_tokens: Annotated[int, Field(ge=1)] = BLOCK_TOKENS
    """The most tokens that the reference block before a question may take."""


class PolicyConfig(Frozen):
    """A policy: its backend, sampling, rates and limits."""

    policy: str = SCRIPTED
    """`scripted`, `openai:MODEL@URL`, `vllm:MODEL@URL#FOLDER`, `gemini:MODEL` or `local:PATH`."""
    sampling: Sampling = Sampling()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    retry: RetryPolicy = RetryPolicy()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds without data after which a server counts as lost."""
    local_rows: Annotated[int, Field(ge=1)] = 16
    """Conversations that a local model keeps in its cache at once."""
    local_max_length: Annotated[int, Field(ge=256)] = 26_624
    """Tokens of one conversation in a local model's cache; the paper's prompt and response together."""


class TeacherConfig(Frozen):
    """A run that generates teacher data; the defaults are the paper's."""

    questions: Path | None = None
    """None for the training questions of the shipped almanac."""
    out: Path
    """The folder of the journal, the samples and the rejection report."""
    teacher: str = SCRIPTED
    tools: Path | None = None
    """A TOML file of tool settings; None searches the shipped corpus."""
    faults: Faults = Faults()
    """Fault rates of the scripted teacher."""
    flat: bool = False
    """Think and act without the scaffold: the flat twin of a data set, for the paper's figure 7(a, b)."""
    seed: int = 0
    limit: Count | None = None
    """Take only the first N questions."""
    max_rounds: Annotated[int, Field(ge=2)] = 10
    max_tokens: Count = 16_384
    """Of a whole trace; longer ones are rejected."""
    max_output_tokens: Count = 8_192
    """Of one turn, with the thoughts that a model hides."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    max_unknown_citations: Annotated[int, Field(ge=0)] = 0
    concurrency: Count = 64
    """Episodes at once, for a live teacher; for a batch teacher, the tool calls of a round at once."""
    tokenizer: str = ""
    """The student's tokenizer, as transformers loads it, to count tokens exactly; empty counts four bytes a token."""
    probe: bool = True
    """Ask teacher and search engine for one token before the first turn."""
    shards: Count = 1
    """Processes on Ray; 1 runs in this one."""
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    price: tuple[Dollars, Dollars] | None = None
    """Dollars for a million tokens read and written, in place of the list price; batch jobs pay half of a list price."""
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""


Seconds = Annotated[float, Field(gt=0)]


class RateConfig(Rates):
    """Rate limits of one engine, for all processes of a run together."""

    concurrency: Count = 64


class EngineConfig(Frozen):
    """The engine of a search tool, and those that stand in: settings, a name, or a list of either."""

    engine: str
    fee: Dollars | None = None
    """Dollars per call in addition to tokens, for the budget; None takes the engine's usual fee."""
    rates: RateConfig | None = None
    """None takes the engine's usual ones."""
    then: Annotated[tuple[Self, ...], Field(exclude_if=not_)] = ()
    """The engines that stand in, in their order, where this one is out of money, down or too busy."""

    @model_validator(mode="before")
    @classmethod
    def _read_order(cls, given: object) -> object:
        listed = given if isinstance(given, list | tuple) else [given]
        first, *others = [{"engine": one} if isinstance(one, str) else one for one in listed] or [{"engine": ""}]
        return {**first, "then": [*first.get("then", ()), *others]} if others and isinstance(first, Mapping) else first

    @property
    def in_order(self) -> tuple[Self, ...]:
        return (self, *(one for other in self.then for one in other.in_order))

    @property
    def limits(self) -> Rates:
        return self.rates or ENGINES[self.engine].rates

    @property
    def dollars(self) -> float:
        """For one call, besides tokens."""
        return ENGINES[self.engine].price / 1_000 if self.fee is None else self.fee


class GoogleSearchConfig(EngineConfig):
    """The engine behind google_search; `google_search = ["serper", "brave"]` is an order."""

    engine: Literal["gemini", "serper", "tavily", "exa", "brave", "searxng", "plain"] = "gemini"
    """gemini: grounded generation. searxng: a server of your own, at url. plain: serper's API at another url."""
    model: str = FLASH
    url: str | None = None
    """Another address of the engine; None for its own."""
    key_header: str = "X-API-KEY"
    """plain: the header that carries the key."""
    system: str = ""
    """gemini: the instruction beside each query; empty takes the built-in one, which asks for at most 200 words."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """gemini: 0 gives a query the same answer more often; the provider advises 1.0 for grounding."""
    max_output_tokens: Count = 2_048
    """gemini: of one answer, with the thoughts that the model hides."""
    results: Count = 5
    """The number of results requested; not for gemini."""

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.engine == "searxng" and not self.url:
            raise ValueError(
                'google_search.engine = "searxng" needs google_search.url, such as "http://127.0.0.1:8080"'
            )
        return self


SCHOLAR: Final = "semantic_scholar"


class SnippetSearchConfig(EngineConfig):
    """The engine behind snippet_search; `snippet_search = ["semantic_scholar", "openalex"]` is an order."""

    engine: Annotated[Literal["semantic_scholar", "openalex", "arxiv"], Field(exclude_if=SCHOLAR.__eq__)] = SCHOLAR
    url: str = ENGINES[SCHOLAR].url
    """Another address of the engine; the one of Semantic Scholar stands for each engine's own."""


SearchConfig = GoogleSearchConfig | SnippetSearchConfig


class ToolCacheConfig(Frozen):
    """The cache of results. Errors are never cached."""

    enabled: bool = True
    path: Path | None = None
    """A SQLite file shared by all processes; None caches in memory, for this process."""
    ttl_hours: Annotated[float, Field(gt=0)] = 240.0
    entries: Count = 100_000


class RemoteToolsConfig(Frozen):
    """A remote `rubricem tools serve`; its token is read from RUBRICEM_TOOLS_TOKEN, and its host from RUBRICEM_TOOLS_TOKEN_HOST."""

    url: str
    """Or several, separated by commas: the server with the fewest open calls is asked, and one that is away is left out."""
    concurrency: Count = 256
    timeout: Seconds = 600.0
    """For one call, with its wait for a turn at the server."""


class MountedServerConfig(Frozen):
    """A third-party MCP server: a command to start, or an address."""

    name: str
    command: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Names of our environment variables that the child process gets; it gets no others of ours."""
    url: str | None = None
    """Or several, separated by commas, of servers that answer alike."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token for the address."""
    only: tuple[str, ...] = ()
    """The tools offered to the policy; empty offers all."""
    timeout: Seconds = 90.0
    concurrency: Count = 16
    repeats_lost_calls: bool = False
    """True where repeating a call is harmless: then a call survives a restart of the server."""

    @model_validator(mode="after")
    def _is_command_or_address(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"the server {self.name!r} needs either a command or a url, and not both")
        return self


class PagesConfig(Frozen):
    """How web pages are read."""

    reader: Literal["direct", "jina", "crawl4ai"] = "direct"
    """direct: fetched and read here. jina: the Jina reader, key JINA_API_KEY if set. crawl4ai: a server of your own."""
    url: str | None = None
    """The address of the reader; crawl4ai needs one, such as http://127.0.0.1:11235."""
    open_and_find: bool = False
    """Offer the tools open, which reads a long page part by part, and find, which searches a page."""
    robots: bool = False
    """direct: obey robots.txt."""
    host_delay: Annotated[float, Field(ge=0)] = 0.0
    """direct: seconds between two requests to one host."""
    rates: RateConfig = RateConfig()

    @model_validator(mode="after")
    def _has_address(self) -> Self:
        if self.reader == "crawl4ai" and self.url is None:
            raise ValueError('pages.reader = "crawl4ai" needs pages.url, such as "http://127.0.0.1:11235"')
        return self


class ToolsConfig(Frozen):
    """The search tools; the defaults need no key and no network."""

    backend: Literal["offline", "web"] = "offline"
    corpus: Path | None = None
    """Offline: the JSONL file or the folder of the index that is searched; None is the shipped corpus."""
    google_search: GoogleSearchConfig = GoogleSearchConfig()
    snippet_search: SnippetSearchConfig = SnippetSearchConfig()
    fetch_page: bool = False
    """Web: offer fetch_page as well."""
    pages: PagesConfig = PagesConfig()
    cache: ToolCacheConfig = ToolCacheConfig()
    budget: SpendLimits = SpendLimits()
    timeout: Seconds = 30.0
    """For one attempt of one call."""
    total: Seconds = 60.0
    """For a whole call with its retries. Waiting for one's turn under the rates does not count."""
    remote: RemoteToolsConfig | None = None
    """Call that server in place of a backend in this process."""
    mounted: tuple[MountedServerConfig, ...] = ()
    record: Path | None = None
    """Write every call and its result to this file."""
    replay: Path | None = None
    """Answer from this record only."""

    @property
    def asks_engines(self) -> bool:
        """Whether this process asks search engines itself."""
        return self.backend == "web" and self.remote is None and self.replay is None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.record is not None and self.replay is not None:
            raise ValueError("record and replay are both set; a replay has nothing new to record")
        web = self.model_dump(include={"google_search", "snippet_search", "fetch_page", "pages"}, exclude_defaults=True)
        if web and self.backend == "offline" and self.remote is None and self.replay is None:
            raise ValueError(f'{next(iter(web))} is a setting of the web, but backend is offline; set backend = "web"')
        return self


RENAMED: Mapping[str, str] = MappingProxyType({"audit": "held_out_judge"})
"""Keys of earlier releases, and what they are called now."""


def refuse_unknown(section: Mapping[Any, Any], kind: type[BaseModel], *, where: str, separator: str = ".") -> None:
    """Refuse a key that the model, or a model within it, does not have; `separator` stands after `where` in a path.

    Raises:
        ConfigError: there is such a key, or a value stands in the place of a model's keys.
    """
    for key, value in section.items():
        field = kind.model_fields.get(key)
        if field is None:
            if (now := RENAMED.get(key)) in kind.model_fields:
                raise ConfigError(f"{where} has the key {key!r}, which is {now!r} now; its values are the same.")
            groups = {name: _model_in(one.annotation) for name, one in kind.model_fields.items()}
            inside = [name for name, one in groups.items() if one and key in one.model_fields]
            alike = suggest_name(str(key), kind.model_fields, cutoff=0.5)
            known = f"did you mean {inside[0]}.{key}?" if len(inside) == 1 else alike
            raise ConfigError(f"{where} has the unknown key {key!r}; {known}")
        if (inner := _model_in(field.annotation)) is not None:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Mapping):
                    refuse_unknown(part, inner, where=f"{where}{separator}{key}")
                elif isinstance(part, str | int | float) and not (field.metadata or issubclass(inner, SearchConfig)):
                    at, keys = f"{where}{separator}{key}", ", ".join(f"{key}.{name}" for name in inner.model_fields)
                    raise ConfigError(f"{at} is {part!r}, which is no section; its keys are {keys}.")


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field holds, optional, in a tuple or alone."""
    found = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)]
    return found[0] if found else None


def read_mapping(section: Mapping[str, Any], kind: type[Section], *, where: str, separator: str = ".") -> Section:
    """Read settings from a mapping; raises ConfigError on an unknown key at any depth or a value out of range."""
    refuse_unknown(section, kind, where=where, separator=separator)
    with validating(f"{where} is refused", error=ConfigError):
        # Not strict: YAML and TOML have strings for paths and lists for tuples, and YAML reads 4e-5 as text.
        return kind.model_validate(section, strict=False)


def read_tools_config(settings: Mapping[str, Any], where: str = "tools") -> ToolsConfig:
    """Read settings from a mapping; raises ConfigError as above."""
    return read_mapping(settings, ToolsConfig, where=f"config {where}", separator=": ")


def load_tools_config(path: Path) -> ToolsConfig:
    """Read settings from a TOML file, at its top level or in its table [tools]; raises ConfigError as above.

    Relative paths in the file are relative to its folder. The folder of an index, or a JSONL file of documents, stands
    for the settings that search it.
    """
    if path.is_dir() or path.suffix.casefold() == ".jsonl":
        return ToolsConfig(corpus=path)
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a TOML file.") from cause
    config = read_tools_config(settings["tools"] if isinstance(settings.get("tools"), dict) else settings, str(path))
    named = (config.corpus, config.record, config.replay, config.cache.path)
    corpus, record, replay, cached = (one and path.parent / one.expanduser() for one in named)
    cache = config.cache.model_copy(update={"path": cached})
    return config.model_copy(update={"corpus": corpus, "record": record, "replay": replay, "cache": cache})


def parse_tools(text: str) -> ToolsConfig:
    """The tools that a command line names; raises ConfigError where it names none, or its settings are wrong."""
    if text in ("offline", "web"):
        return ToolsConfig.model_validate({"backend": text})
    address = urlsplit(text)
    if address.scheme in ("http", "https") and address.hostname:
        return ToolsConfig(remote=RemoteToolsConfig(url=text))
    if Path(text).suffix not in (".toml", ".jsonl") and not Path(text).is_dir():
        raise ConfigError(
            f"there are no tools {text!r}. Use offline, web, a TOML file of settings, the folder of an index, a JSONL "
            "file of documents, or the URL of a tool server."
        )
    return load_tools_config(Path(text))
