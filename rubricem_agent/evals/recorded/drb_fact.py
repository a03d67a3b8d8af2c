"""Recorded FACT cases."""

from pydantic import JsonValue

from rubricem_agent.evals import citation_links, drb_fact
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class StatInput(RecordedInput):
    records: tuple[dict[str, JsonValue], ...]


class ValidateInput(RecordedInput):
    facts: tuple[Text, ...]
    reference: Text | None
    judge_replies: tuple[Text, ...]
    language: Text | None
    article_id: int | str | None


class DedupInput(RecordedInput):
    facts_by_url: tuple[tuple[Text, tuple[Text, ...]], ...]
    judge_replies: tuple[Text, ...]


class TextInput(RecordedInput):
    text: Text


def score_records(case_input: CaseInput) -> object:
    return drb_fact.score_records(StatInput.read(case_input).records)._asdict()


def validate(case_input: CaseInput) -> object:
    case = ValidateInput.read(case_input)
    results, error, calls = drb_fact.validate_url(
        case.facts,
        reference=case.reference,
        replies=case.judge_replies,
        language=case.language,
        article_id=case.article_id,
    )
    return {"validate_res": results, "has_error": error is not None, "judge_calls": calls}


def deduplicate(case_input: CaseInput) -> object:
    case = DedupInput.read(case_input)
    return drb_fact.deduplicate(case.facts_by_url, replies=case.judge_replies)._asdict()


def clean_text(case_input: CaseInput) -> object:
    text = TextInput.read(case_input).text
    return {
        "clean_urls": citation_links.clean_urls(text),
        "remove_urls": citation_links.remove_urls(text),
        "clean_escape": citation_links.clean_escape(text),
    }


UNITS = {
    "stat": Unit(score_records),
    "validate": Unit(validate),
    "dedup": Unit(deduplicate),
    "text": Unit(clean_text),
}
