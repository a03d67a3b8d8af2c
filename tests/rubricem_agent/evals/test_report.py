import asyncio
import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from rubricem_agent.evals.report import LONG, Summary, print_summary, render_page, summarize
from rubricem_agent.evals.suite import SUITE
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_records.evaluations.own_rows import own_rows
from rubricem_records.evaluations.published_scores import published_tables
from rubricem_records.evaluations.scores import Scores

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def almanac(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    config = EvalConfig(benchmark="almanac", policy="expert", limit=4, out=tmp_path_factory.mktemp("run"))
    return asyncio.run(run_evaluation(plan_run(config))).scores


def as_benchmark(scores: Scores, name: str, score: float) -> Scores:
    judge = scores.headline.model_copy(update={"score": score})
    manifest = scores.manifest.model_copy(update={"benchmark": name, "title": SUITE[name].title})
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
    (row,) = own_rows(summarize(runs).runs, summarize(runs).published[0].columns)
    assert row.values[-1] == pytest.approx(55.475)
    part = summarize(runs[:3]).averages[0]
    assert (part.value, part.missing) == (None, ("researchrubrics",))


def test_two_substitute_judges_of_one_policy_have_an_average_each(almanac):
    names = ("healthbench", "researchqa", "drb", "researchrubrics")
    rules = almanac.manifest.rules.model_copy(update={"judge": "gpt-4.1"})
    own = almanac.model_copy(update={"manifest": almanac.manifest.model_copy(update={"rules": rules})})
    runs = [
        as_benchmark(judged_by(own, judge), name, score)
        for judge, scores in ((J1, (0.1, 0.2, 0.3, 0.4)), (J2, (0.5, 0.6, 0.7, 0.8)))
        for name, score in zip(names, scores, strict=True)
    ]

    averages = summarize(runs).averages

    # (0.1 + 0.2 + 0.3 + 0.4) / 4 = 0.25, and 0.65 by the second judge; the first run of each benchmark hid the second.
    assert [(one.judge, one.value) for one in averages] == [(J1, pytest.approx(0.25)), (J2, pytest.approx(0.65))]


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


def judged_by(scores: Scores, *names: str) -> Scores:
    """The run as several judges would have scored it, each a tenth lower than the one before."""
    judges = [
        scores.headline.model_copy(
            update={"judge": name, "per_example": {each: v - k / 10 for each, v in scores.headline.per_example.items()}}
        )
        for k, name in enumerate(names)
    ]
    manifest = scores.manifest.model_copy(update={"judges": names})
    return scores.model_copy(update={"manifest": manifest, "judges": tuple(judges)})


def as_text(summary: Summary) -> str:
    console = Console(file=io.StringIO(), width=260)
    print_summary(summary, console)
    return console.file.getvalue()


def test_counts_of_citations_are_no_percentages_in_the_terminal(almanac):
    metrics = {"truth": 0.5, "fact:effective_citations": 3.25, "fact:citation_accuracy": 0.5}
    judge = almanac.headline.model_copy(update={"metrics": metrics})

    shown = as_text(summarize([almanac.model_copy(update={"judges": (judge,)})]))

    assert "fact:effective_citations 3.25  fact:citation_accuracy 50.0" in shown


def test_runs_of_two_judges_are_not_compared_unless_asked(almanac):
    runs = [judged_by(almanac, "strict-judge"), judged_by(almanac, "kind-judge")]

    refused, asked = summarize(runs), summarize(runs, across_judges=True)

    assert refused.comparisons == ()
    for shown in (as_text(refused), render_page(refused)):
        assert "not compared: Almanac, expert (scaffold), judged by strict-judge and" in shown
        assert "--across-judges" in shown
    for shown in (as_text(asked), render_page(asked)):
        assert "judged by kind-judge" in shown
        assert "two judges: not a difference of policies alone" in shown


def test_a_comparison_names_policy_and_judge_and_takes_the_judge_that_both_have(almanac):
    summary = summarize([judged_by(almanac, "one", "other"), judged_by(almanac, "other")])

    (gap,) = summary.comparisons

    # The second judge of the first run is a tenth lower than the only one of the second.
    assert (gap.first, gap.second) == ("Almanac, expert (scaffold), judged by other",) * 2
    assert (gap.difference, gap.note) == (pytest.approx(-0.1), "")


J1, J2 = "openai:j1@http://127.0.0.1:18761", "openai:j1@http://127.0.0.1:18762"


def test_two_servers_of_one_model_name_are_two_judges_and_both_numbers_are_said(almanac):
    kind = as_benchmark(judged_by(almanac, J1), "simpleqa", 1.0)
    strict = as_benchmark(judged_by(almanac, J2), "simpleqa", 0.0)

    summary = summarize([kind, strict])

    assert summary.comparisons == ()
    assert f"judged by {J1}" in summary.not_compared[0]
    assert f"judged by {J2}" in summary.not_compared[0]
    rows = own_rows(summary.runs, ("SimpleQA", "Average"))
    assert [(row.values[0], row.flags[-1]) for row in rows] == [(100.0, f"judged by {J1}"), (0.0, f"judged by {J2}")]


def test_a_second_run_by_the_same_judge_has_a_row_of_its_own(almanac):
    runs = [as_benchmark(judged_by(almanac, J1), "simpleqa", score) for score in (1.0, 0.25)]

    assert [row.values[0] for row in own_rows(summarize(runs).runs, ("SimpleQA", "Average"))] == [100.0, 25.0]


def test_two_runs_by_the_judge_of_one_address_are_compared_under_its_model_name(almanac):
    (gap,) = summarize([judged_by(almanac, J1), judged_by(almanac, J1)]).comparisons

    assert gap.first.endswith("judged by j1")


def test_a_number_says_whose_prompts_its_judge_was_asked_with(almanac):
    judged = almanac.manifest.model_copy(update={"prompt_hash": "abc"})
    own = almanac.model_copy(update={"manifest": judged})
    official = almanac.model_copy(update={"manifest": judged.model_copy(update={"prompts": "checkouts"})})

    assert (own.manifest.label, official.manifest.label) == ("official, own prompts, almanac", "official, almanac")
    assert almanac.manifest.label == "official, almanac"  # no judge, no prompts
    page = render_page(summarize([own]))
    assert "own prompts: the judge was asked in our words" in page
    assert "<td>prompt_hash</td><td>abc</td>" in page
    page = render_page(summarize([official]))
    assert "own prompts" not in page
    assert "<td>prompts</td><td>checkouts</td>" in page


def test_an_average_holds_no_two_kinds_of_prompts(almanac):
    judged = almanac.manifest.model_copy(update={"prompt_hash": "abc"})
    own = almanac.model_copy(update={"manifest": judged})
    official = almanac.model_copy(update={"manifest": judged.model_copy(update={"prompts": "checkouts"})})
    runs = [as_benchmark(own, "healthbench", 0.1), as_benchmark(official, "researchqa", 0.2)]

    assert [one.label for one in summarize(runs).averages] == ["official, own prompts, almanac", "official, almanac"]


def asked(scores: Scores, *, prompts: str, per_example: dict[str, float], judge: str = "gpt-4") -> Scores:
    """The almanac's run as one that a model has judged, with these scores of its examples."""
    manifest = scores.manifest.model_copy(
        update={
            "prompt_hash": "abc",
            "prompts": prompts,
            "rules": scores.manifest.rules.model_copy(update={"judge": "gpt-4"}),
        }
    )
    manifest = manifest.model_copy(update={"judges": (f"openai:{judge}",)})
    numbers = scores.headline.model_copy(update={"judge": f"openai:{judge}", "per_example": per_example})
    return scores.model_copy(update={"manifest": manifest, "judges": (numbers,)})


def test_two_runs_are_compared_question_by_question_with_the_interval_of_the_difference(almanac):
    first = asked(almanac, prompts="", per_example={"a": 1.0, "b": 0.5, "c": 0.0, "d": 1.0})
    second = asked(almanac, prompts="", per_example={"a": 0.0, "b": 0.5, "c": 0.5, "d": 0.0, "e": 1.0})

    (gap,) = summarize([first, second]).comparisons
    shown = as_text(summarize([first, second]))

    # Gaps 1, 0, -1/2 and 1: mean 3/8; two are better, one is worse, one equal.
    assert (gap.difference, gap.n, gap.better, gap.worse) == (0.375, 4, 2, 1)
    assert "+37.5" in shown
    assert "2, 1, 1" in shown
    assert f"{100 * gap.low:.1f} to {100 * gap.high:.1f}" in shown
    assert "2, 1, 1" in render_page(summarize([first, second]))


def test_runs_judged_in_other_words_are_not_compared_unless_asked(almanac):
    scores = {"a": 1.0, "b": 0.5}
    runs = [asked(almanac, prompts=prompts, per_example=scores) for prompts in ("", "checkouts")]

    refused, compared = summarize(runs), summarize(runs, across_judges=True)

    assert refused.comparisons == ()
    assert "have not been asked in the same words" in refused.not_compared[0]
    assert "own and official judge prompts" in compared.comparisons[0].note


def test_a_table_with_two_judges_of_one_benchmark_is_marked(almanac):
    runs = [asked(almanac, prompts="", per_example={"a": 1.0}, judge=judge) for judge in ("gpt-4", "gpt-6-luna")]

    assert "mixed judges, whose scores do not compare: Almanac by gpt-4 and by gpt-6-luna" in as_text(summarize(runs))
    assert "mixed judges" in render_page(summarize(runs))
    assert "mixed judges" not in as_text(summarize(runs[:1]))


def test_a_row_by_a_substitute_names_the_judge_of_the_published_rows_and_its_end(almanac):
    run = as_benchmark(asked(almanac, prompts="", per_example={"a": 1.0}, judge="gpt-6-luna"), "webwalkerqa", 0.5)

    (row,) = own_rows(summarize([run]).runs, ["WebWalker", "Avg"])

    assert (
        row.flags[-1]
        == "mixed judges: the published rows are of gpt-4, served until 2026-10-23 (successor gpt-5.6-sol)"
    )
    assert "gpt-4, served until 2026-10-23" in render_page(summarize([run]))
