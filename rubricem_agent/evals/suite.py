"""The nine benchmarks by name: where their numbers stand in the paper, what is asked of the agent, how they are loaded."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.query import AnswerFormat


class Entry(NamedTuple):
    """A benchmark of the suite."""

    name: str
    title: str
    """As the reference tables head its column."""
    answer_format: AnswerFormat
    is_long: bool
    """Which of the paper's two averages it belongs to."""
    hub: str = ""
    """The Hugging Face data set and file, or where else the official file is."""
    guidance: str = ""
    """The prompt suffix: what the agent is told of the answer's form, beyond the format."""
    ids: str = "row numbers from 0"
    """What names an example, in logs and in files of answers: a column of the data file, or this."""


SHORT_GUIDANCE = "Give the answer alone, as short as it can be, in \\boxed{}."

SUITE: Mapping[str, Entry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Entry(
                "healthbench",
                "HealthBench",
                AnswerFormat.LONG,
                True,
                "hf:openai/healthbench/2025-05-07-06-14-12_oss_eval.jsonl",
                "Reply to the last message of the conversation as a careful medical assistant would.",
                ids="prompt_id of the data file",
            ),
            Entry(
                "researchqa",
                "ResearchQA",
                AnswerFormat.SHORT,
                True,
                "hf:realliyifei/ResearchQA/test.json@87cdd81df0c5ea96de293859233e8e64dac3d168",
                "Answer in about 250 words, with citations.",
                ids="id of the data file",
            ),
            Entry(
                "drb",
                "DRB",
                AnswerFormat.LONG,
                True,
                "github.com/Ayanami0730/deep_research_bench: query.jsonl, criteria.jsonl, reference.jsonl",
                "Write the report in the language of the task.",
                ids="id of the data file",
            ),
            Entry(
                "researchrubrics",
                "ResearchRubrics",
                AnswerFormat.LONG,
                True,
                "hf:ScaleAI/researchrubrics/processed_data.jsonl",
                ids="sample_id of the data file",
            ),
            Entry(
                "simpleqa",
                "SimpleQA",
                AnswerFormat.EXACT,
                False,
                "openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv",
                SHORT_GUIDANCE,
            ),
            Entry(
                "twowiki",
                "2Wiki",
                AnswerFormat.EXACT,
                False,
                "github.com/Alab-NII/2wikimultihop",
                SHORT_GUIDANCE,
                ids="_id of the official file; row numbers from 0 of the predecessor's",
            ),
            Entry(
                "webwalkerqa",
                "WebWalker",
                AnswerFormat.EXACT,
                False,
                "huggingface.co/datasets/callanwu/WebWalkerQA: split main, as JSON Lines",
                SHORT_GUIDANCE,
            ),
            Entry(
                "deepsearchqa",
                "DSQA",
                AnswerFormat.EXACT,
                False,
                "hf:google/deepsearchqa/DSQA-full.csv@b2623f8653065c2672de6d941fc5434cd652376c",
                "If the question has several answers, give all of them in one \\boxed{}, separated by commas.",
                ids="example_id of the data file; row numbers from 0 where it has none",
            ),
            Entry(
                "almanac",
                "Almanac",
                AnswerFormat.LONG,
                False,
                "shipped with rubricem",
                ids="id of the test questions",
            ),
        )
    }
)


class DataPaths(NamedTuple):
    """The files of a benchmark. Only DeepResearchBench needs more than one."""

    path: Path | None = None
    criteria: Path | None = None
    references: Path | None = None


def find_entry(name: str) -> Entry:
    """A benchmark by name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in SUITE:
        raise ConfigError(f"there is no benchmark {name!r}; there are {', '.join(SUITE)}.")
    return SUITE[name]
