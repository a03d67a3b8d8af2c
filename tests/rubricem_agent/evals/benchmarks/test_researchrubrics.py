import json

from rubricem_agent.evals.benchmarks.researchrubrics import (
    parse_verdict,
)


def reply(score: object = 1.0, **fields: object) -> str:
    return json.dumps({"verdict": "Satisfied", "score": score, "confidence": 0.9} | fields)


def test_the_score_counts_and_the_verdict_does_not() -> None:
    verdict = parse_verdict(reply(0.5))

    assert verdict == ("Satisfied", 0.5)
