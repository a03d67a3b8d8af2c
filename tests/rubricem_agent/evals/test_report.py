import asyncio
import re
from html.parser import HTMLParser

import pytest

from rubricem_agent.build.eval_plan import plan_run
from rubricem_agent.build.evals import run_evaluation
from rubricem_agent.config import EvalConfig
from rubricem_agent.evals.report import LONG, Summary, own_rows, published_tables, render_page, summarize
from rubricem_agent.evals.scores import Scores

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def almanac(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    config = EvalConfig(benchmark="almanac", policy="expert", limit=4, out=tmp_path_factory.mktemp("run"))
    return asyncio.run(run_evaluation(plan_run(config))).scores


def as_benchmark(scores: Scores, name: str, score: float) -> Scores:
    judge = scores.headline.model_copy(update={"score": score})
    manifest = scores.manifest.model_copy(update={"benchmark": name})
    return scores.model_copy(update={"manifest": manifest, "judges": (judge,)})


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_nothing_on_the_page_runs_or_comes_from_elsewhere(almanac):
    judge = almanac.headline.model_copy(
        update={"judge": HOSTILE, "excluded": {HOSTILE: 1}, "metrics": {HOSTILE: 0.5, f"{HOSTILE}:x": 0.1}}
    )
    reader = Reader()

    page = render_page(summarize([almanac.model_copy(update={"judges": (judge,), "failures": {HOSTILE: 1}})]))
    reader.feed(page)

    assert "script" not in reader.tags
    assert reader.addresses == ["data:,"]
    assert not re.search(r"url\(|@import|https?://", page)
    assert "&lt;script&gt;alert(1)" in page


def test_the_mode_stands_beside_every_run(almanac):
    page = render_page(summarize([almanac]))

    assert "Almanac, expert (scaffold), mode official" in page


def test_the_long_average_is_that_of_the_paper_and_is_not_made_of_three(almanac):
    names = ("healthbench", "researchqa", "drb", "researchrubrics")
    runs = [as_benchmark(almanac, name, score) for name, score in zip(names, (0.493, 0.745, 0.478, 0.503), strict=True)]

    # The paper's own row: 49.3, 74.5, 47.8 and 50.3 have the mean 55.475.
    whole = {average.what: average.value for average in summarize(runs).averages}
    assert whole[LONG] == pytest.approx(0.55475)
    (row,) = own_rows(summarize(runs), summarize(runs).published[0].columns)
    assert row.values[-1] == pytest.approx(55.475)
    part = summarize(runs[:3]).averages[0]
    assert (part.value, part.missing) == (None, ("researchrubrics",))


def test_two_runs_of_one_benchmark_are_compared_on_the_examples_they_share(almanac, tmp_path):
    config = EvalConfig(benchmark="almanac", policy="scripted", limit=4, style="react", out=tmp_path)
    other = asyncio.run(run_evaluation(plan_run(config))).scores

    (gap,) = summarize([almanac, other]).comparisons

    assert gap.n == 4
    assert gap.difference == pytest.approx(1.0 - other.headline.score)


def test_published_rows_carry_their_flags():
    (table,) = published_tables(["HealthBench"])
    flags = {row.system: row.flags for row in table.rows}

    assert "HealthBench n=100 per DR Tulu" in flags["GPT-5 + Search"]
    assert flags["RubricEM-8B (RL, 1400 steps)"] == ()
    assert flags["DR Tulu-8B (SFT)"] == ("other search backend",)


def test_a_summary_survives_json(almanac):
    summary = summarize([almanac])

    assert Summary.model_validate_json(summary.model_dump_json()) == summary
