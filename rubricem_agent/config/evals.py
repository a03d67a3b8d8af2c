"""The settings of an evaluation: which benchmark in which mode, who answers and who judges, how much of it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_agent.evals.answering.reuse import Reuse
from rubricem_agent.evals.modes import Mode, Rules
from rubricem_agent.evals.run.runner import Limits, Stage
from rubricem_agent.evals.subset import SubsetName
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.retry import RetryPolicy

GIVEN = "file:"
"""Begins the name of a policy that is a file of answers."""
EXPERT = "expert"
"""The almanac's own expert."""
OPENAI_URL = "https://api.openai.com/v1"

Count = Annotated[int, Field(ge=1)]


class Style(StrEnum):
    """By which rules the agent works."""

    SCAFFOLD = "scaffold"
    REACT = "react"
    """Think and act, with the same model and tools: the paper's comparison."""


class EvalConfig(Frozen):
    """Everything that a run is made from; the defaults are the paper's main tables: no memory, one attempt, one epoch."""

    benchmark: str
    mode: Mode = Mode.OFFICIAL
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
    stage: Stage = Stage.ALL
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
        if self.answers_from is not None and self.stage is Stage.ANSWERS:
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
