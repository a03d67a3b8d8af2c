"""Recorded cases of the predecessor's answer extraction and citation conversion."""

from pydantic import JsonValue

from rubricem_agent.evals import drtulu_io, drtulu_record
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class ExtractionInput(RecordedInput):
    generated_text: Text


class CitationInput(RecordedInput):
    text: Text


class RecordInput(RecordedInput):
    record: dict[str, JsonValue]


def extract_answer(case_input: CaseInput) -> object:
    return {"final_response": drtulu_io.extract_answer(ExtractionInput.read(case_input).generated_text)}


def convert_citations(case_input: CaseInput) -> object:
    cited = drtulu_io.convert_citations(CitationInput.read(case_input).text)
    return {"text": cited.text, "ids": cited.ids, "id_to_text": cited.claims_by_id}


def format_record(case_input: CaseInput) -> object:
    return drtulu_record.format_record(RecordInput.read(case_input).record)._asdict()


UNITS = {
    "answer_extraction": Unit(extract_answer),
    "citation_format": Unit(convert_citations),
    "drb_record": Unit(format_record),
}
