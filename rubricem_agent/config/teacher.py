"""The settings of a run that generates teacher data."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_agent.model_names import SCRIPTED
from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, read_stage_set
from rubricem_env.env.context import ContextLimits
from rubricem_env.llm.chat import Effort
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.prices import Dollars
from rubricem_env.llm.usage import SpendLimits
from rubricem_env.world.expert_faults import Faults


class TeacherConfig(Frozen):
    """A run that generates teacher data; the defaults are the paper's."""

    questions: Path | None = None
    """None for the training questions of the shipped almanac."""
    out: Path
    """The folder of the journal, the samples and the rejection report."""
    teacher: str = SCRIPTED
    scaffold: str = DEEP_RESEARCH.name
    """The stages of the traces: those of the package by name, or the folder of a stage set."""
    tools: str = ""
    """What is searched, as `--tools` of a command names it; empty only for the almanac's own questions."""
    faults: Faults = Faults()
    """Fault rates of the scripted teacher."""
    flat: bool = False
    """Think and act without the scaffold: the flat twin of a data set, for the paper's figure 6(a, b)."""
    seed: int = 0
    limit: PositiveCount | None = None
    """Take only the first N questions."""
    max_rounds: Annotated[int, Field(ge=2)] = 10
    max_tokens: PositiveCount = 16_384
    """Of a whole trace; longer ones are rejected."""
    context: ContextLimits = ContextLimits()
    """How much of a trace the teacher reads, and later the student; by default all of it. A folded trace becomes a
    sample for each of its windows.
    """
    max_output_tokens: PositiveCount = 8_192
    """Of one turn, with the thoughts that a model hides."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    effort: Effort = ""
    """How much the teacher thinks before a turn; empty leaves it to its provider."""
    max_unknown_citations: Annotated[int, Field(ge=0)] = 0
    concurrency: PositiveCount = 64
    """Episodes at once, for a live teacher; for a batch teacher, the tool calls of a round at once."""
    tokenizer: str = ""
    """The student's tokenizer, as transformers loads it, to count tokens exactly; empty counts four bytes a token."""
    probe: bool = True
    """Ask teacher and search engine for one token before the first turn."""
    shards: PositiveCount = 1
    """Processes on Ray; 1 runs in this one."""
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    price: tuple[Dollars, Dollars] | None = None
    """Dollars for a million tokens read and written, in place of the list price.

    Batch jobs pay half of a list price.
    """
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""

    @property
    def stage_set(self) -> StageSet:
        """The stage set that `scaffold` names.

        Raises:
            ConfigError: there is none, or neither the script nor a flat trace can have its stages.
        """
        stage_set = read_stage_set(self.scaffold)
        if stage_set.scaffold != DEEP_RESEARCH.scaffold:
            if self.teacher == SCRIPTED:
                raise ConfigError(
                    f"the script writes {DEEP_RESEARCH.name} alone; for {stage_set.name} name a model with --teacher."
                )
            if self.flat:
                raise ConfigError(f"flat leaves out the stages of {DEEP_RESEARCH.name} alone; write the others whole.")
            if self.questions is None:
                raise ConfigError(
                    f"the shipped questions are for {DEEP_RESEARCH.name}; for {stage_set.name} name your own with "
                    "--questions."
                )
        return stage_set
