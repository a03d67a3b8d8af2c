"""Recorded 2WikiMultihopQA cases."""

from pydantic import Field

from rubricem_agent.evals import twowiki, twowiki_full
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class AnswerInput(RecordedInput):
    prediction: Text
    gold_answers: tuple[Text, ...]


class RecordedGold(RecordedInput):
    id: Text = Field(alias="_id")
    answer: Text
    answer_id: Text | None
    supporting_facts: tuple[twowiki_full.SupportingFact, ...]
    evidences: tuple[tuple[Text, Text, Text], ...]
    evidences_id: tuple[tuple[Text, Text, Text], ...]


class AliasLine(RecordedInput):
    id: Text = Field(alias="Q_id")
    aliases: tuple[Text, ...]
    demonyms: tuple[Text, ...]


class FullInput(RecordedInput):
    prediction: twowiki_full.Predictions
    gold: tuple[RecordedGold, ...]
    id_aliases: tuple[AliasLine, ...]


class JudgeInput(RecordedInput):
    judge_text: Text | None


def score_answer(case_input: CaseInput) -> object:
    case = AnswerInput.read(case_input)
    return twowiki.score_answer(case.prediction, case.gold_answers)._asdict()


def exact_as_drtulu(case_input: CaseInput) -> object:
    case = AnswerInput.read(case_input)
    return twowiki.drtulu_exact(case.prediction, case.gold_answers)


def f1_as_drtulu(case_input: CaseInput) -> object:
    case = AnswerInput.read(case_input)
    return twowiki.drtulu_f1(case.prediction, case.gold_answers)


def score_full(case_input: CaseInput) -> object:
    case = FullInput.read(case_input)
    gold = [twowiki_full.GoldQuestion(**question.model_dump()) for question in case.gold]
    aliases = {line.id: frozenset((*line.aliases, *line.demonyms)) for line in case.id_aliases}
    metrics, warnings = twowiki_full.score_predictions(case.prediction, gold, aliases=aliases)
    return {"metrics": metrics, "warnings": list(warnings)}


def judge_as_drtulu(case_input: CaseInput) -> object:
    return {"is_correct": twowiki.judge_says_correct(JudgeInput.read(case_input).judge_text or "")}


UNITS = {
    "answer": Unit(score_answer, {"dr_tulu_exact": exact_as_drtulu, "dr_tulu_f1": f1_as_drtulu}),
    "full": Unit(score_full),
    "dr_tulu_judge": Unit(judge_as_drtulu),
}
