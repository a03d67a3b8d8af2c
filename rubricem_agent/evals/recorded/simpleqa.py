"""Recorded SimpleQA cases."""

from rubricem_agent.evals import simpleqa
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class ParseInput(RecordedInput):
    judge_text: Text


class AggregateInput(RecordedInput):
    judge_texts: tuple[Text, ...]

    def rates(self) -> simpleqa.Rates:
        return simpleqa.rates([simpleqa.parse_letter(text) for text in self.judge_texts])


def parse(case_input: CaseInput) -> object:
    letter = simpleqa.parse_letter(ParseInput.read(case_input).judge_text)
    names = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C"}
    return {"letter": letter} | {name: letter == wanted for name, wanted in names.items()}


def parse_strictly(case_input: CaseInput) -> object:
    return simpleqa.parse_standalone_letter(ParseInput.read(case_input).judge_text)


def parse_as_paper(case_input: CaseInput) -> object:
    return simpleqa.parse_letter(ParseInput.read(case_input).judge_text)


def aggregate(case_input: CaseInput) -> object:
    case = AggregateInput.read(case_input)
    rates = case.rates()
    metrics = simpleqa.official_metrics([simpleqa.parse_letter(text) for text in case.judge_texts])
    return {
        "score_mean": metrics.pop("score"),
        "metrics": metrics,
        "aggregate": {
            "is_correct": rates.correct,
            "is_incorrect": rates.incorrect,
            "is_not_attempted": rates.not_attempted,
            "is_given_attempted": rates.given_attempted,
            "accuracy_given_attempted": rates.accuracy_given_attempted,
        },
        "output": {"accuracy_given_attempted": rates.accuracy_given_attempted, "f1": rates.f1},
    }


def aggregate_as_inspect(case_input: CaseInput) -> object:
    rates = AggregateInput.read(case_input).rates()
    return {
        "correct": rates.correct,
        "not_attempted": rates.not_attempted,
        "incorrect": rates.incorrect,
        "attempted": 1 - rates.not_attempted,
        "correct_given_attempted": rates.accuracy_given_attempted,
        "f_score": rates.f1,
    }


UNITS = {
    "parse": Unit(
        parse,
        {"inspect_evals_original_strict": parse_strictly, "inspect_evals_original_paper": parse_as_paper},
    ),
    "aggregate": Unit(aggregate, {"inspect_evals_simpleqa_metric": aggregate_as_inspect}),
}
