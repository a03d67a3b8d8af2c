"""The settings of an evaluation; a field that describes itself is an option of `rubricem eval run`."""

import re
from collections.abc import Mapping, Sequence
from operator import not_
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from rubricem_agent.evals.references import Reuse
from rubricem_agent.evals.runner import RunPhase
from rubricem_agent.evals.subsets import SubsetName
from rubricem_agent.model_names import EXPERT, GIVEN, LOCAL, OPENAI_URL, POLICY_NAMES, SCRIPTED, VLLM
from rubricem_agent.prompting import Style
from rubricem_agent.wiring.command_option import (
    FOLD_AT_HELP,
    FOLD_TO_HELP,
    KEEP_HELP,
    MAX_CALLS_HELP,
    MAX_TOKENS_HELP,
    MAX_TURNS_HELP,
    NO_PROBE_HELP,
    PRICE_HELP,
    CommandOption,
)
from rubricem_agent.wiring.prices import parse_prices
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.llm.chat import Effort
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.prices import Dollars
from rubricem_records.evaluations.rules import EvaluationMode, Rules
from rubricem_records.rollouts.sampling import Sampling

_SHARD = re.compile(r"(\d+)/(\d+)")


SAMPLINGS: Mapping[str, Sampling] = MappingProxyType({"drtulu": Sampling(temperature=0.7)})
"""drtulu: the default of `auto_search_sft.py` of rlresearch/dr-tulu at 6188f34. Its own `auto_search_sft.yaml` sets
1.0, which is our default."""


def parse_shard(text: str) -> tuple[int, int]:
    """The part and the number of parts of I/N. Raises ConfigError on another text."""
    part = _SHARD.fullmatch(text)
    if part is None:
        raise ConfigError(f"--shard is {text!r}; write the part and the number of parts, such as 2/8.")
    return int(part[1]), int(part[2])


def _listed(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple(values or ())


class EvalSettings(Settings):
    """What one evaluation and a whole table are set by; the defaults are those of the paper's main tables.

    No memory, one attempt, one epoch.
    """

    # A field with a description or a CommandOption is an option of `rubricem eval`.
    criteria: Annotated[Path | None, Field(description="drb: the criteria file.")] = None
    references: Annotated[Path | None, Field(description="drb: the reference articles.")] = None
    any_version: Annotated[bool, Field(description="Accept other hashes and row counts.")] = False
    mode: Annotated[EvaluationMode, Field(description="Whose protocol.")] = "official"
    policy: Annotated[str, Field(description=f"{POLICY_NAMES}, file:ANSWERS.jsonl, or expert.")] = "scripted"
    prompts: Annotated[
        str, Field(description="Official judge prompts: a checkout, a folder of checkouts or a package; else our own.")
    ] = ""
    limit: Annotated[int | None, Field(ge=1, description="Use N examples, by the mode's published rule.")] = None
    subset: Annotated[SubsetName, Field(description="ablation: the same 100 in every run.")] = "mode"
    epochs: Annotated[int, Field(ge=1, description="Repeats of every example; the variance is split.")] = 1
    guidance: Annotated[bool, Field(description="Put a line of ours on the answer's form after each question.")] = False
    style: Annotated[Style, Field(description="The scaffold, or plain think and act.")] = "scaffold"
    agent_prompts: Annotated[
        Path | None, Field(description="A folder of your own prompts for the policy, as a run's `prompts`.")
    ] = None
    reuse: Annotated[Reuse, Field(description="Reflections put before the question.")] = "none"
    bank: Annotated[Path | None, Field(description="The bank that --reuse cross retrieves from.")] = None
    attempts: Annotated[int, Field(ge=1, description="Episodes in a row; the last answer counts.")] = 1
    tools: Annotated[
        str,
        Field(
            description="What is searched: web, an index, a TOML file, the URL of a tool server, none, or offline (the "
            "almanac). Only the almanac's own questions need none named."
        ),
    ] = ""
    drop_seen: Annotated[bool, Field(description="Skip the examples that --seen holds.")] = False
    budget: Annotated[
        float | None, Field(gt=0, description="Stop after so many dollars, over all resumes; each model needs a price.")
    ] = None
    concurrency: Annotated[int, Field(ge=1, description="Episodes at once.")] = 16
    judge_concurrency: Annotated[int, Field(ge=1, description="Judge calls at once.")] = 64
    search_concurrency: Annotated[int, Field(ge=1, description="Searches at once.")] = 16
    seed: Annotated[int, Field(ge=0, description="Seed of the policy's sampling and of the bootstrap.")] = 0
    judges: Annotated[
        tuple[str, ...],
        CommandOption(
            "judge", "gemini:MODEL or openai:MODEL@URL; repeat for agreement.", list[str] | None, parse=_listed
        ),
    ] = ()
    """`gemini:MODEL[@URL]` or `openai:MODEL@URL`; empty for the mode's own judge."""
    effort: Annotated[Effort, Field(description="How much the policy thinks, where its server has such a setting.")] = (
        ""
    )
    judge_effort: Annotated[Effort, Field(description="How much the judges think; the mode's own by default.")] = ""
    seen: Annotated[
        tuple[Path, ...],
        CommandOption(
            "seen",
            "Training data or a bank that must not hold the examples; repeatable.",
            list[Path] | None,
            parse=_listed,
        ),
    ] = ()
    """Training data or banks that must not hold the examples."""
    prices: Annotated[
        Mapping[str, tuple[Dollars, Dollars]],
        CommandOption("price", PRICE_HELP, list[str] | None, parse=lambda texts: parse_prices(texts or ())),
    ] = Field(default_factory=dict)
    """Dollars for a million tokens read and written, by model, in place of the list price.

    The empty name stands for every model that the list does not have.
    """
    sampling: Annotated[
        Sampling,
        CommandOption(
            "temperature",
            "Of the policy; 0 takes the likeliest token.",
            float,
            Sampling().temperature,
            lowest=0,
            highest=5,
            part="temperature",
        ),
        CommandOption(
            "top_p",
            "Draw from the likeliest tokens of this probability.",
            float,
            Sampling().top_p,
            lowest=0.001,
            highest=1,
            part="top_p",
        ),
        CommandOption(
            "max_turn_tokens",
            "The most tokens of one turn.",
            int,
            Sampling().max_turn_tokens,
            lowest=1,
            part="max_turn_tokens",
        ),
    ] = Sampling()
    limits: Annotated[
        EpisodeLimits,
        CommandOption("max_calls", MAX_CALLS_HELP, int, EpisodeLimits().max_calls, lowest=1, part="max_calls"),
        CommandOption(
            "max_turns",
            MAX_TURNS_HELP,
            int,
            EpisodeLimits().max_turns,
            lowest=2,
            part="max_turns",
        ),
        CommandOption(
            "max_tokens",
            MAX_TOKENS_HELP,
            int,
            EpisodeLimits().max_tokens,
            lowest=1,
            part="max_tokens",
        ),
    ] = EpisodeLimits()
    context: Annotated[
        ContextLimits,
        CommandOption("fold_at", FOLD_AT_HELP, int | None, lowest=1, part="fold_at"),
        CommandOption("fold_to", FOLD_TO_HELP, int, ContextLimits().fold_to, lowest=1, part="fold_to"),
        CommandOption("keep", KEEP_HELP, int, ContextLimits().keep, lowest=1, part="keep"),
    ] = ContextLimits()
    sampling_of: Annotated[
        Literal["", "drtulu"],
        Field(description="A named sampling of the policy in place of the three options: drtulu."),
    ] = ""
    probe: Annotated[bool, CommandOption("no_probe", NO_PROBE_HELP, bool, False, parse=not_)] = True
    """Ask policy, judges and search engine for one token before the first call that costs more."""
    retry: RetryPolicy = RetryPolicy()

    @property
    def asks_a_model(self) -> bool:
        """Whether answering costs anything."""
        return self.policy not in (EXPERT, SCRIPTED) and not self.policy.startswith(GIVEN)

    def preset(self) -> Self:
        """The settings with the named sampling in its place; raises ConfigError where another is given beside it."""
        if not self.sampling_of:
            return self
        if self.sampling not in (Sampling(), SAMPLINGS[self.sampling_of]):
            raise ConfigError(
                f"--sampling-of {self.sampling_of} names the sampling; leave --temperature, --top-p and "
                "--max-turn-tokens out."
            )
        return self.model_copy(update={"sampling": SAMPLINGS[self.sampling_of]})


class EvalConfig(EvalSettings):
    """An evaluation run."""

    benchmark: Annotated[str, Field(description="The benchmark; `rubricem eval list` shows all.")]
    data: Annotated[str, Field(description="The official file, or hf:OWNER/NAME/FILE@REVISION.")] = ""
    fact: Annotated[bool, Field(description="drb: check citations as well.")] = False
    scaffold: Annotated[
        str,
        Field(description="The stages of the task: a name or a folder. Benchmarks but own take deep_research alone."),
    ] = DEEP_RESEARCH.name
    ids: Annotated[Path | None, Field(description="A file with one example id a line.")] = None
    stage: Annotated[RunPhase, Field(description="Only answers, only verdicts, or all.")] = "all"
    out: Annotated[Path | None, Field(description="The run's folder; the same one resumes.")] = None
    answers_from: Annotated[
        Path | None,
        Field(description="Judge the answers of that run, with its examples and epochs, and answer no question."),
    ] = None
    shard: Annotated[
        tuple[int, int], CommandOption("shard", "Run part I of N: I/N.", str, "1/1", parse=parse_shard)
    ] = (1, 1)
    """Part number and number of parts: this process runs one part."""
    ray: Annotated[
        int,
        Field(ge=0),
        CommandOption("ray", "Split the run into N parts on a Ray cluster; 0 runs it here.", int, 0, lowest=0),
    ] = 0
    """The number of parts that run on a Ray cluster; 0 for a run in this process."""

    @property
    def stage_set(self) -> StageSet:
        """The stage set that `scaffold` names.

        Raises:
            ConfigError: there is none.
        """
        return read_stage_set(self.scaffold)

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / "eval" / f"{self.benchmark}-{self.mode}"

    @property
    def makes_answers(self) -> bool:
        """Whether a policy answers in this run; else the answers are those of a file or of another run."""
        return not self.policy.startswith(GIVEN) and self.stage != "verdicts" and self.answers_from is None

    def _check_other_stages(self) -> None:
        if self.policy in (SCRIPTED, EXPERT):
            raise ConfigError(
                f"--policy {self.policy} writes {DEEP_RESEARCH.name} alone; for {self.scaffold} name a model."
            )
        if self.style != "scaffold":
            raise ConfigError(
                f"--scaffold is {self.scaffold}, and --style {self.style} has no stages. Leave one of them out."
            )

    def check(self) -> None:
        """Raise ConfigError where two settings contradict each other."""
        if self.scaffold != DEEP_RESEARCH.name:
            self._check_other_stages()
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
                f"--top-p is {self.sampling.top_p:g}; {self.policy} records its tokens with their probabilities among "
                "all tokens, and draws from all. Leave --top-p out, or serve the model and use openai:MODEL@URL."
            )
        if self.answers_from is not None and self.stage == "answers":
            raise ConfigError("--answers-from judges the answers of another run. Leave --stage answers out.")
        if self.policy == EXPERT and self.benchmark != "almanac":
            raise ConfigError("the policy expert knows the questions of the almanac alone. Use another --policy.")


def effort_of(config: EvalSettings, rules: Rules) -> Effort:
    """How much the judges think: as the settings say, else as the mode does, for the mode's own judge."""
    return config.judge_effort or ("" if config.judges else rules.effort)


def fact_judges(config: EvalConfig, rules: Rules) -> tuple[str, ...]:
    """The judge of citations, where FACT is asked for and the mode has another one for it."""
    return (at_its_provider(rules.fact_judge),) if config.fact and rules.fact_judge and not config.judges else ()


def default_judges(rules: Rules) -> tuple[str, ...]:
    """The mode's own judge at its provider's address; empty where no model judges."""
    return (at_its_provider(rules.judge),) if rules.judge else ()


def at_its_provider(model: str) -> str:
    """A judge's name as the command line writes it, at its provider's address."""
    return f"gemini:{model}" if model.startswith("gemini") else f"openai:{model}@{OPENAI_URL}"
