"""The eight evaluations of the paper's two tables: their examples, how they are chosen, their judge, what differs here.

This is the one source: `rubricem eval table1` and `table2` run it, and docs/reproduce.md prints it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rubricem_agent.evals.suite import PAPER, find_benchmark, rules_for
from rubricem_env.llm.prices import SHUT_DOWN

TABLES = (1, 2)
_SEED_UNSAID = "the paper does not say how; ours is DR Tulu's: shuffled with seed 42, the first {}"


class PaperChoice(NamedTuple):
    """What the paper says of one evaluation, and what we chose where it says nothing."""

    examples: int
    of: int
    """Examples of the official file."""
    judge: str
    """As the paper names it."""
    subset: str
    differs: str
    """What is known to differ from the paper, or not known of it."""


_CHOICES = {
    "healthbench": PaperChoice(
        *(1_000, 5_000, "GPT-4", _SEED_UNSAID.format("1,000")),
        "which GPT-4 is not said; DR Tulu's judge is taken. DR Tulu asks for a short answer",
    ),
    "researchqa": PaperChoice(
        *(756, 3_750, "GPT-4", "the ids that DR Tulu published; that the paper's 756 are these is our inference"),
        "which GPT-4 is not said; DR Tulu's judge is taken",
    ),
    "drb": PaperChoice(
        *(100, 100, "Gemini", "all"),
        "which Gemini is not said, and the benchmark's own is shut down. The paper says that citations enter RACE; in "
        "the official code they do not. A long report is asked for, as the paper says; DR Tulu asks for a short one",
    ),
    "researchrubrics": PaperChoice(
        *(101, 101, "an LLM", "all"), "the judge is not named; the benchmark's own is taken, which is shut down"
    ),
    "simpleqa": PaperChoice(
        *(1_000, 4_326, "an LLM", _SEED_UNSAID.format("1,000")), "the judge is not named; DR Tulu's is taken"
    ),
    "twowiki": PaperChoice(
        *(1_000, 12_576, "an LLM"),
        "the paper does not say how; ours are the 1,000 rows of DR Tulu's file, or the first 1,000 of the official "
        "file, shuffled with seed 42",
        "the official score is exact match; the judge is not named, DR Tulu's is taken",
    ),
    "webwalkerqa": PaperChoice(
        *(680, 680, "an LLM", "all"), "the judge is not named; DR Tulu's is taken, and not the benchmark's cot_qa"
    ),
    "deepsearchqa": PaperChoice(
        *(900, 900, "exact match", "all"),
        "neither official number is an exact match; the rate of fully correct answers is taken, by the official judge",
    ),
}


class PaperRow(NamedTuple):
    """One benchmark of the paper's tables."""

    benchmark: str
    title: str
    table: int
    file: str
    """Where the official file is."""
    choice: PaperChoice
    judge: str
    """That of the mode `paper`."""
    is_judge_gone: str
    """The day of its shutdown, where one is announced."""
    judge_today: str
    """That of the benchmark's leaderboard, where it is known to be another one."""

    @property
    def command(self) -> str:
        """What runs it alone."""
        file = self.file if self.file.startswith("hf:") else "FILE"
        beside = " --criteria FILE --references FILE" if self.benchmark == "drb" else ""
        return f"rubricem eval {self.benchmark} --mode paper --data {file}{beside} --policy POLICY --tools web"


def paper_rows(table: int | None = None) -> Iterator[PaperRow]:
    """The rows of one table, or of both, in the paper's order."""
    for name in PAPER:
        benchmark = find_benchmark(name)
        number = 1 if benchmark.is_long else 2
        if table in (None, number):
            judge = rules_for(name, "paper").judge
            gone, _ = SHUT_DOWN.get(judge, ("", ""))
            today = benchmark.leaderboard.judge if benchmark.leaderboard else ""
            yield PaperRow(name, benchmark.title, number, benchmark.hub, _CHOICES[name], judge, gone, today)
