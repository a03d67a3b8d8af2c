"""A benchmark of the suite, and its data loaded for a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from rubricem_agent.evals.dataset import Dataset, Example
from rubricem_agent.evals.grading import Grader
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules, SearchKind

REAL_WORLD: tuple[SearchKind, ...] = ("web", "index", "tool server", "record")
"""What an agent may search that looks for evidence. A tool server and a record hold what their owner says."""
OR_FROM_MEMORY: tuple[SearchKind, ...] = (*REAL_WORLD, "closed book")
"""For benchmarks whose own protocol asks a model without tools as well."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of the suite: its column in the paper, its files, its rules by mode, its graders."""

    name: str
    title: str
    """As the reference tables head its column."""
    answer_format: AnswerFormat
    load: Callable[..., Dataset]
    """Reads and checks the files: load(paths: DataPaths, *, any_version: bool = False)."""
    grader: Callable[[Rules], Grader]
    official: Rules
    drtulu: Rules | None = None
    """None where DR Tulu did not run the benchmark."""
    paper: Rules | None = None
    """None where the paper did not run the benchmark."""
    leaderboard: Rules | None = None
    """The protocol of today's leaderboard; None where no other one than the official is known."""
    fact_grader: Callable[[Rules], Grader] | None = None
    """Checks citations as well, where the benchmark has such a part."""
    is_long: bool = False
    """Which of the paper's two averages it belongs to."""
    hub: str = ""
    """The Hugging Face data set and file, or where else the official file is."""
    guidance: str = ""
    """A line of ours on the answer's form, put after the question with `--guidance`; no official code has one."""
    question: Callable[[Example, Grader], str] | None = None
    """The words in which a mode puts an example to the agent, where they are not those of the file."""
    drtulu_ids: str = ""
    """The file on the hub with the ids that DR Tulu runs, where they are not drawn by a rule."""
    searches: tuple[SearchKind, ...] = REAL_WORLD
    """What its protocol lets an agent search."""
    is_almanac: bool = False
    """Whether its questions are those of the shipped almanac, which is then searched without being named."""
    takes_any_stages: bool = False
    """Whether it may be answered in the stages of any task; a format of deep research's cannot."""
    ids: str = "row numbers from 0"
    """What identifies an example in logs and in files of answers: a column of the data file, or this."""


@dataclass(frozen=True, kw_only=True)
class Loaded(Dataset):
    """The data of a benchmark loaded for a run, with the grader of the mode."""

    benchmark: Benchmark
    grader: Grader

    @property
    def name(self) -> str:
        return self.benchmark.name

    @property
    def rules(self) -> Rules:
        return self.grader.rules

    @cached_property
    def _by_id(self) -> Mapping[str, Example]:
        return {example.id: example for example in self.examples}

    def example(self, example_id: str) -> Example:
        return self._by_id[example_id]

    def format_of(self, example_id: str) -> AnswerFormat:
        return self.formats.get(example_id, self.rules.answer_format or self.benchmark.answer_format)

    def asked(self, example_id: str) -> Example:
        """The example in the words in which the mode puts it to the agent."""
        example = self.example(example_id)
        question = self.benchmark.question
        if question is None:
            return example
        return example.model_copy(update={"prompt_text": question(example, self.grader)})
