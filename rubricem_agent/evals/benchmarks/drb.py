"""DeepResearchBench: RACE, a report against a reference report, and FACT beside it on request.

A judge cleans the article and compares it with the reference. Files are JSON Lines: tasks, their criteria, and
articles.
"""

from collections.abc import Sequence
from functools import partial

from rubricem_agent.evals import grading
from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.benchmarks import drb_fact
from rubricem_agent.evals.benchmarks.drb_data import DrbGold, load
from rubricem_agent.evals.benchmarks.drb_race import NoTaskScore, score_or_reason
from rubricem_agent.evals.benchmarks.drb_reply import parse_scores, read_scores
from rubricem_agent.evals.reply_parsing import Unparsed
from rubricem_agent.evals.rules import GEMINI_PRO, drtulu_rules, leaderboard_rules, official_rules, paper_rules
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

LEAST_CLEANED = 100
"""Characters; a shorter cleaned article officially counts as no article."""
CLEANING_TRIES = 3
RACE_PROMPTS = ("drb_clean", "drb_race")
FACT_PROMPTS = (*RACE_PROMPTS, "drb_extract", "drb_dedup", "drb_validate")


def parse_article(reply: str) -> str | Unparsed:
    is_long = len(reply.strip()) >= LEAST_CLEANED
    return reply if is_long else Unparsed(f"the cleaned article has fewer than {LEAST_CLEANED} characters")


def grade(case: grading.Case, grader: grading.Grader) -> grading.Asking[grading.Grade]:
    """Clean the article, compare it with the reference; then FACT, where the grader has its prompts."""
    gold = case.gold_as(DrbGold)
    if case.answer.is_empty:
        return grader.excluded("there is no article")
    language = gold.language
    cleaning = grader.question(
        "clean",
        "drb_clean",
        parse=parse_article,
        tries=CLEANING_TRIES,
        variant=language,
        article=case.answer.text,
        language=language,
    )
    (cleaned,) = yield (cleaning,)
    if isinstance(cleaned, Unparsed):
        return grader.excluded(cleaned.reason)
    comparison = grader.question(
        "race",
        "drb_race",
        parse=partial(read_scores, criteria=gold.criteria),
        official_parse=parse_scores,
        variant=language,
        official={"criteria": gold.criteria.as_json()},
        task=case.example.prompt_text,
        article=cleaned,
        reference=gold.reference,
        criteria=gold.criteria.for_judge(),
    )
    (scores,) = yield (comparison,)
    outcome = score_or_reason(scores, gold.criteria, tries=grader.rules.tries)
    if isinstance(outcome, NoTaskScore):
        result = grader.excluded(outcome.reason)
    else:
        # Two judges agree on who wins, hardly ever on a score of two decimals.
        labels = {name: "wins" if value > 0.5 else "loses" for name, value in outcome.dimensions.items()}
        score = outcome.overall
        result = grading.Grade(score, score, metrics=outcome.dimensions, labels=labels)
    if grader.prompts != FACT_PROMPTS:
        return result
    record = yield from drb_fact.check_citations(case, grader, language=language)
    return result._replace(record=record)


def total(grades: Sequence[grading.Grade], rules: Rules) -> grading.Totals:
    """Plain means of the overall score and the dimensions; FACT is pooled over all tasks."""
    return {"overall_score": grading.mean_score(grades), **grading.mean_metrics(grades), **drb_fact.fact_totals(grades)}


OFFICIAL = official_rules(GEMINI_PRO, tries=10, max_output_tokens=32_768, citations="numbered")
BENCHMARK = Benchmark(
    name="drb",
    title="DRB",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: grading.Grader(rules, grade, "overall_score", total, prompts=RACE_PROMPTS),
    leaderboard=leaderboard_rules(
        OFFICIAL,
        "gpt-5.5",
        effort="medium",
        fact_judge="gpt-5.4-mini",
        fact_effort="low",
        since="2026-05-11",
        source="README of github.com/Ayanami0730/deep_research_bench; efforts: allenai/olmo-eval pull request 262",
        shift="agreement with people on 200 articles: gpt-5.5 71.82 %, gemini-3.1-pro 70.58 %, between people 68.78 %; "
        "the maintainers keep two leaderboards, since scores of the two judges do not compare",
    ),
    fact_grader=lambda rules: grading.Grader(rules, grade, "overall_score", total, prompts=FACT_PROMPTS),
    official=OFFICIAL,
    # The official scorer unchanged, after cite tags became numbers.
    drtulu=drtulu_rules(OFFICIAL, citations="numbered", answer_format=AnswerFormat.SHORT),
    # The paper: "long-form reports with citations".
    paper=paper_rules(drtulu_rules(OFFICIAL, citations="numbered")),
    is_long=True,
    hub="github.com/Ayanami0730/deep_research_bench: query.jsonl, criteria.jsonl, reference.jsonl",
    guidance="Write the report in the language of the task.",
    ids="id of the data file",
)
