"""The rules that a mode fixes for a benchmark, as an evaluation's manifest records them."""

from typing import Annotated, Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.llm.chat import Effort

EvaluationMode = Literal["official", "drtulu", "paper", "leaderboard", "strict", "lenient"]

SearchKind = Literal["almanac", "web", "index", "tool server", "record", "closed book"]
"""What an agent has searched: the shipped almanac, the web, documents of the user's own, what a tool server serves, a
record of earlier calls, or nothing."""

SubsetRule = Literal["simple_evals", "drtulu", "first"]
"""The published rule that draws a subset: simple-evals samples with seed 0, DR Tulu shuffles with seed 42."""

CitationMode = Literal["kept", "dropped", "numbered"]
"""What the judge reads of cite tags: the tags; the claims alone; or the claims with [n] and a list of references."""

Extraction = Literal["answer_tag", "predecessor"]
"""How the answer is extracted: from the answer tags, or by DR Tulu's rule (`predecessor` in records)."""


class Rules(Frozen):
    """Everything that a mode fixes for one benchmark."""

    mode: EvaluationMode
    judge: Text
    """The model that the published numbers were made with; empty where no model judges."""
    effort: Effort = ""
    """How much that model thinks; empty leaves it to its provider."""
    fact_judge: Text = ""
    """The model that checks citations, where it is another one than the judge."""
    fact_effort: Effort = ""
    since: Text = ""
    """The day from which the benchmark's maintainers judge so, where it is known."""
    source: Text = ""
    """Where they say so."""
    shift: Text = ""
    """What is known of how its numbers differ from those of the protocol before."""
    leaves_out: tuple[Text, ...] = ()
    """Ids of examples that the protocol does not score."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=1)] = 2048
    tries: Annotated[int, Field(ge=1)] = 3
    """Replies requested before a question counts as unreadable."""
    batch_size: Annotated[int, Field(ge=1)] = 1
    clips_mean: bool = False
    follows: Literal["official", "drtulu"] = "official"
    """Whose prompts, questions and arithmetic the mode takes."""
    sampling: SubsetRule = "first"
    size: Annotated[int, Field(ge=1)] | None = None
    """Examples of the mode's own subset, drawn by `sampling`; None for all."""
    citations: CitationMode = "dropped"
    extraction: Extraction = "answer_tag"
    answer_format: AnswerFormat | None = None
    """What the agent is asked for, where it is not the benchmark's own format."""

    @property
    def is_lenient(self) -> bool:
        """Whether replies are read by the official scorer's own parse, quirks included."""
        return self.mode == "lenient"

    @property
    def is_drtulu(self) -> bool:
        """Whether it takes the prompts, questions and arithmetic of DR Tulu."""
        return self.follows == "drtulu"

    @property
    def is_strict(self) -> bool:
        return self.mode == "strict"
