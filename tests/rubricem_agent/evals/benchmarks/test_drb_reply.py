import json

import pytest
from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS
from rubricem_agent.evals.benchmarks.drb_reply import parse_scores
from rubricem_agent.evals.reply_parsing import Unparsed


def entry(criterion: str, target: JsonValue, reference: JsonValue) -> dict[str, JsonValue]:
    return {"criterion": criterion, "article_1_score": target, "article_2_score": reference}


def reply(*entries: dict[str, JsonValue]) -> dict[str, JsonValue]:
    rest: JsonValue = [entry("A", 5, 5), entry("B", 5, 5)]
    return {name: rest for name in DIMENSIONS} | {"insight": list(entries)}


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "Scores: {} as {{asked}}", "<o>{}</o> }}", "```json\n{}"])
def test_a_reply_is_rescued_from_what_surrounds_it(wrap: str) -> None:
    scores = reply(entry("A", 1, 2))

    assert parse_scores(wrap.format(json.dumps(scores))) == scores


@pytest.mark.parametrize("text", ["null", "[]", "prose", "", '{"insight": []}'])
def test_a_reply_without_all_dimensions_is_asked_again(text: str) -> None:
    assert isinstance(parse_scores(text), Unparsed)
