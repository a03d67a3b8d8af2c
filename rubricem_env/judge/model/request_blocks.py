"""The data blocks of a request to a judge model: question, attempts, criteria, reflections."""

import re
from collections.abc import Mapping
from typing import Any

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.judgement import Rubric, StageScore
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.attempt_parts import shorten_middle
from rubricem_env.judge.model.delimiters import delimit
from rubricem_env.judge.model.shown_attempt import QUESTION_CHARS, render_stages
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.scaffold.untrusted import neutralize

MAX_CANDIDATE_CHARS = 8_000
Numbered = Mapping[int, Rubric]
"""Rubrics by their index in the prompt, from 1."""


def render_contrast(contrast: Contrast, *, tokens: int) -> str:
    """The group in delimited blocks: shuffled, anonymous, with the rubrics that exist already."""
    order = open_generator(contrast.seed, "order").permutation(len(contrast.trajectories))
    each = tokens // max(1, len(contrast.trajectories))
    attempts = [
        {"attempt": f"T{number}", **render_stages(contrast.trajectories[chosen], tokens=each)}
        for number, chosen in enumerate(order, start=1)
    ]
    known = contrast.known
    scaffold = contrast.scaffold
    existing = {
        "persistent": [_describe(rubric, scaffold) for rubric in known.persistent],
        "active": [_describe(entry.rubric, scaffold) for entry in known.active],
        "retired": [_describe(entry.last.rubric, scaffold) for entry in known.archive],
    }
    question = shorten_middle(neutralize(contrast.question, scaffold), QUESTION_CHARS)
    contents = [("QUESTION", question), ("ATTEMPTS", attempts), ("EXISTING", existing)]
    return delimit(contents, contrast.seed, scaffold)


_ABSENCE = re.compile(
    r"(?:(?:the|this|an?)\s+)?(?:(?:answer|attempt|response|report|plan|review|agent|it)\s+)?"
    r"(?:avoids?|avoiding|refrains?|omits?|"
    r"leaves?\s+out|keeps?\s+(?:free|clear)|is\s+free|(?:does|do|did|is|are|has|have|must|should)\s+not\b|"
    r"doesn't|never|"
    r"(?:makes?|gives?|contains?|has|claims?|uses?|invents?)\s+no\b|without|no\b|not\b|absence|freedom\s+from"
    r"|free\s+of)",
    re.IGNORECASE,
)


def is_of_absence(rubric: Rubric) -> bool:
    """Whether title or description begins by saying what is not there; then there is nothing to quote for it."""
    return any(_ABSENCE.match(text.strip()) for text in (rubric.title, rubric.description))


def _describe(rubric: Rubric, scaffold: Scaffold) -> dict[str, str]:
    return {
        "stage": rubric.stage,
        "polarity": rubric.polarity,
        "title": neutralize(rubric.title, scaffold),
        "description": neutralize(rubric.description, scaffold),
    }


def render_scoring(request: ScoringRequest, rubrics: Numbered, *, settings: AskSettings) -> str:
    """Question, criteria, attempt and its answer, each in a delimited block.

    What a group shares comes first, so that servers cache it.
    """
    stages = render_stages(request.parsed, tokens=settings.trajectory_tokens)
    scaffold = request.parsed.scaffold
    answer = stages.pop(scaffold.last)
    # A reduced call follows a failed full one, so it is kept small: it has nothing but the answer.
    is_reduced = all(rubric.stage == scaffold.last for rubric in rubrics.values())
    criteria = [
        {
            "index": index,
            **_describe(rubric, scaffold),
            "polarity": rubric.polarity.upper(),
            "needs_quote": settings.requires_quote and rubric.polarity == "positive" and not is_of_absence(rubric),
        }
        for index, rubric in rubrics.items()
    ]
    contents = [
        ("QUESTION", shorten_middle(neutralize(request.question, scaffold), QUESTION_CHARS)),
        ("CRITERIA", criteria),
        ("TRAJECTORY", {"left_out": "only the answer is to be scored"} if is_reduced else stages),
        ("ANSWER", answer),
    ]
    # One seed for all attempts: that of the request differs between them, and with it all delimiters would.
    return delimit(contents, settings.seed or 0, scaffold)


def render_reflection_task(task: ReflectionTask, numbered: Mapping[int, int], *, tokens: int) -> str:
    scaffold = task.parsed.scaffold
    candidates = [
        {"index": number, "reflection": shorten_middle(task.candidates[index], MAX_CANDIDATE_CHARS)}
        for number, index in numbered.items()
    ]
    contents = [
        ("QUESTION", shorten_middle(neutralize(task.question, scaffold), QUESTION_CHARS)),
        ("TRAJECTORY", render_stages(task.parsed, tokens=tokens)),
        ("SCORES", _render_scores(task)),
        ("CANDIDATES", candidates),
    ]
    return delimit(contents, task.seed, scaffold)


def _render_scores(task: ReflectionTask) -> dict[str, Any]:
    rubrics = {rubric.id: rubric for rubric in task.rubrics}
    scaffold = task.parsed.scaffold
    scores: dict[str, Any] = {}
    for stage in task.judgement.stages:
        outcome = task.judgement.outcome(stage)
        if not isinstance(outcome, StageScore):
            scores[stage] = {"score": None, "why": outcome.reason}
            continue
        criteria = [
            {
                "criterion": neutralize(rubrics[score.rubric_id].title, scaffold),
                "polarity": rubrics[score.rubric_id].polarity,
                "score": score.rounded,
                "why": neutralize(score.justification, scaffold),
            }
            for score in outcome.rubric_scores
            if score.rubric_id in rubrics
        ]
        scores[stage] = {"score": round(outcome.score, 3), "missing": outcome.missing, "criteria": criteria}
    return scores
